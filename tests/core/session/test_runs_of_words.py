"""Words that come many in one read (`wire.runs`) are shown and recorded as if each came alone."""

from pathlib import Path

import pytest

from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import AGENT_MESSAGE, AGENT_THOUGHT, TOOL_CALL_UPDATE
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.session.journals import recorded
from tests.core.session.living import DONE, Living, first, living
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import PlayedAgent

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("T2.1")]

_CURSORS: Json = {"_meta": {"acp_bridge": {"cursors": {}}}}


def chunk(text: str, message: str | None = None, kind: str = AGENT_MESSAGE) -> Json:
    update: Json = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return update | ({"messageId": message} if message else {})


def grows(text: str) -> Json:
    content = {"type": "content", "content": {"type": "text", "text": text}}
    return {"sessionUpdate": TOOL_CALL_UPDATE, "toolCallId": "c", "content": [content]}


_CARD: Json = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "T"}
#: what turns say; ids come again in later ones.
_SAID = [
    [chunk(" ", "m"), chunk("a", "m"), chunk("", "m"), chunk("b", "m")],
    [
        chunk("1", "m"),
        chunk("2", "m"),
        chunk("", "m"),
        chunk("\u2028\U0001f600", "m"),
        chunk('"text":"x"', "m"),
    ]
    + [_CARD, chunk("3", "m"), grows("x"), grows("xy"), grows("xyz"), chunk("4", "m")]
    + [chunk(each, kind=AGENT_THOUGHT) for each in "uvw"]
    + [chunk(each, "n") for each in "567"]
    + [chunk("8"), chunk("9"), chunk("10", "m"), chunk("11", "m")],
    [chunk(" ", "o")],
    [chunk(" ", "o"), chunk(" ", "o"), chunk("not blank", "o")],
]


def line(update: Json) -> bytes:
    params = {"sessionId": "0", "update": update}
    return encode({"jsonrpc": "2.0", "method": "session/update", "params": params})


async def played(here: Living, *, reads: bool) -> None:
    """Play the turns. `reads`: each turn's words come in one read."""
    agent: PlayedAgent = here.context.agents[-1]
    agent.mute = True
    for said in _SAID:
        request_id = here.prompt()
        request = await agent.asked("session/prompt")
        lines = [line(update) for update in said]
        for data in [b"".join(lines)] if reads else lines:
            agent.peer.feed(data)
        agent.answer(request, DONE)
        await here.answered(request_id)


def of_any_notice(update: Json) -> Json:
    """Return an update without what tells one notice from another with the same words."""
    is_notice = "[acp-bridge]" in str(update)
    return {name: update[name] for name in update if name != "messageId" or not is_notice}


def of_agent(told: list[Json]) -> list[tuple[Json, bool]]:
    """Return the agent's updates among these params, each with whether it has a cursor."""
    return [
        (of_any_notice(params["update"]), "cursor" in str(params.get("_meta")))
        for params in told
        if params["update"]["sessionUpdate"] != "user_message_chunk"
    ]


@pytest.mark.parametrize("abilities", [{}, _CURSORS], ids=["plain", "with cursors"])
async def test_what_comes_in_one_read_is_shown_and_recorded_as_if_each_came_alone(
    abilities: Json, tmp_path: Path
) -> None:
    shown, transcripts = list[list[tuple[Json, bool]]](), list[list[tuple[Json, bool]]]()
    for reads in (False, True):
        folder = tmp_path / str(reads)
        folder.mkdir()
        async with living(folder, first=first()) as here:
            other = ClientEnd(abilities)
            here.session.transcript.attach(other.client)
            await played(here, reads=reads)
            transcripts.append(of_agent(await recorded(here.journal)))
            for client in (here.client, other):
                got = [each["params"] for each in client.sent.messages if "method" in each]
                shown.append(of_agent([each for each in got if "update" in each]))
    alone, alone_there, together, together_there = shown
    assert (together, together_there) == (alone, alone_there)
    assert transcripts[0] == transcripts[1]
    texts = [u["content"]["text"] for u, _ in alone if isinstance(u.get("content"), dict)]
    *texts, notice, blank, also, last = texts
    assert "without a word" in notice
    texts += [blank, also, last]
    assert texts == [
        each["content"]["text"]
        for said in _SAID
        for each in said
        if isinstance(each.get("content"), dict) and each["content"]["text"]
    ]
    assert all(has_cursor for _, has_cursor in alone_there) is bool(abilities)


async def begun(here: Living, *said: Json) -> tuple[PlayedAgent, Json]:
    """Begin a turn in which the agent has said this; returns the agent, and what it was asked."""
    agent: PlayedAgent = here.context.agents[-1]
    here.prompt()
    request = await agent.asked("session/prompt")
    for update in said:
        agent.peer.feed(line(update))
    return agent, request


async def test_a_stop_while_a_run_is_shown_counts_for_the_rest_of_it(tmp_path: Path) -> None:
    async with living(tmp_path, first=first(), client_limit=1 << 20) as here:
        agent, request = await begun(here, chunk("a", "m"))

        def stop(epoch: int) -> None:
            here.session.feed(ev.Cancel())
            here.client.sent.stuck = 1 << 20  # a client that does not read is kept nothing more

        here.session.when_shown(stop)
        agent.peer.feed(b"".join(line(chunk(each, "m")) for each in "bcd"))
        assert here.texts() == ["a", "b"]
        here.client.sent.take_all()
        agent.answer(request, {"stopReason": "cancelled"})


@pytest.mark.hazard("C6.2")
async def test_a_run_that_a_turn_before_has_left_is_shown_no_word_of(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request = await begun(here, chunk("old", "m"))
        here.session.feed(ev.Cancel())
        agent.answer(request, {"stopReason": "cancelled"})
        here.session.transcript.end_quiet(here.client.client)
        agent, request = await begun(here)
        new = [line(chunk(each, "n")) for each in ("new", "er", "est")]
        late = [line(chunk(each, "m")) for each in ("la", "te", "st")]
        agent.peer.feed(new[0])
        agent.peer.feed(b"".join([*new[1:], *late]))
        agent.peer.feed(b"".join(late))
        assert here.texts() == ["old", "new", "er", "est"]
        agent.answer(request, DONE)
        await here.turn(await here.agent(2))
