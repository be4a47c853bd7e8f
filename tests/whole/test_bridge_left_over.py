"""The bridge ends while prompts wait or run: left over and interrupted, never run by themselves."""

import signal
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.protocol import STATE
from tests.support.client import RecordingClient
from tests.support.fixture_agents import replayed
from tests.support.processes import all_gone
from tests.support.recording import Message
from tests.support.trace_reader import read_trace
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, shown, stopped

pytestmark = pytest.mark.process

#: what each end of a bridge exits with.
ENDS = {"EOF": 0, "SIGTERM": 0, "SIGKILL": -signal.SIGKILL}


async def leave_waiting(world: World, client: RecordingClient, *words: str) -> list[Message]:
    """A turn that stands at the gate `g` with a card open, and prompts that wait behind it;
    what was shown."""
    await client.prompt("say before; think deep thoughts")
    client.send_prompt("say one two; tool t; gate g; say never")
    await world.gates.reached("g")
    await client.until_recorded(lambda: "toolCallId" in str(client.updates()))
    for word in words:
        await accepted(client, client.send_prompt(f"say {word}; gate h"))
    return shown(client)


async def end(client: RecordingClient, how: str) -> None:
    if how == "EOF":
        client.close_stdin()
    else:
        client.terminate(signal.Signals[how])
    assert await client.wait(within=3) == ENDS[how]


def interrupted(updates: list[Message], open_card: str) -> list[Message]:
    """What a load says of a turn that was cut off: its card has failed, and the notice."""
    *rest, card, notice = updates
    assert card["sessionUpdate"] == "tool_call_update"
    assert (card["toolCallId"], card["status"]) == (open_card, "failed")
    assert notice["content"]["text"].startswith("\n\n[acp-bridge] Interrupted")
    return rest


@pytest.mark.hazard("K1.3", "Q5", "Q6", "R12.1", "C16", "P1", "P2")
@pytest.mark.parametrize("how", ENDS)
async def test_after_any_end_what_was_shown_is_replayed_and_what_waited_is_left_over(
    world: World, how: str, tmp_path: Path
) -> None:
    trace, claude = ("--trace", str(tmp_path / "trace")), replayed("claude")
    async with world.bridge(
        options=trace, command=claude, capabilities=TELL_ACCEPTED, exits=ENDS[how]
    ) as client:
        await client.prompt("say something")
        client.side.permission = "never"
        client.send_prompt("run it")
        await client.until_request("session/request_permission")
        for word in ("three", "four"):
            await accepted(client, client.send_prompt(word))
        (before, state), session = said(client), client.session_id
        await end(client, how)
    await all_gone(world.mark)
    async with world.inside(session=False, command=claude, trace=tmp_path / "after") as client:
        loaded = await client.load_session(session, world.cwd)
        (*told, held), restored = said(client)
        users = [u["content"]["text"] for u in told if u["sessionUpdate"] == "user_message_chunk"]
        assert users == ["say something", "run it"]
        told = [u for u in told if u["sessionUpdate"] != "user_message_chunk"]
        assert interrupted(told, "call_1") == before
        assert restored == state
        assert "2 prompts were waiting" in held["content"]["text"]
        assert "- 3: three\n- 4: four" in held["content"]["text"]
        blocks = loaded["_meta"]["acp_bridge"]["held"]
        assert [prompt[0]["text"] for prompt in blocks] == ["three", "four"]
        # New prompts run, what is left over doesn't.
        assert await stopped(client, client.send_prompt("five")) == "end_turn"
    assert prompts(tmp_path / "trace") == ["say something", "run it"]
    assert prompts(tmp_path / "after") == ["five"]


def said(client: RecordingClient) -> tuple[list[Message], dict[str, Message]]:
    """What was said in a session, and the last of each kind of update that tells its state."""
    updates = shown(client)
    state = {each["sessionUpdate"]: each for each in updates if each["sessionUpdate"] in STATE}
    return [each for each in updates if each["sessionUpdate"] not in STATE], state


def prompts(trace: Path) -> list[str]:
    """What an agent was given."""
    sent = read_trace(trace).between("Proxy(0)", "Agent")
    asked = [each["params"] for each in sent if each.get("method") == "session/prompt"]
    return [params["prompt"][0]["text"] for params in asked]


async def left_over_session(world: World, *words: str) -> str:
    """A session with left-over prompts."""
    async with world.bridge(capabilities=TELL_ACCEPTED, exits=-9) as client:
        await leave_waiting(world, client, *words)
        session = client.session_id
        await end(client, "SIGKILL")
    return session


async def queue(client: RecordingClient, words: str = "") -> str:
    seen = client.mark()
    assert await client.prompt(f"/queue {words}".strip()) == {"stopReason": "end_turn"}
    return client.text(since=seen)


@pytest.mark.hazard("R12.3", "Q5.2", "Q7")
async def test_left_over_prompts_are_listed_dropped_and_run_on_the_users_word(world: World) -> None:
    world.repeats = True  # the same text in two prompts
    session = await left_over_session(world, "one", "two", "three", "four")
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd)
        told = await queue(client)
        assert "Nothing is waiting.\n\nLeft over since a restart:\n\n- 3: say one; gate h" in told
        assert "Dropped prompt 4." in await queue(client, "drop 4")
        assert "Nothing is changed: no prompt 9 waits" in await queue(client, "drop 9")
        assert "Usage" in await queue(client, "nonsense")
        seen = client.mark()
        carrier = client.send_prompt("/queue run")
        following = client.send_prompt("say after")
        for number, word in enumerate(("one", "three", "four"), 1):
            await world.gates.reached("h", number)
            # The carrier stays open, and each prompt is shown as its turn begins.
            assert client.recording.answers(carrier) == []
            await client.until_text(word, since=seen)
            assert client.texts(since=seen)[-1] == word
            users = [
                u["content"]["text"]
                for u in client.updates(since=seen)
                if u["sessionUpdate"] == "user_message_chunk"
            ]
            assert users[-1] == f"say {word}; gate h"
            world.gates.open("h")
        assert await stopped(client, carrier) == "end_turn"
        assert await stopped(client, following) == "end_turn"
        assert "Nothing is left over" in await queue(client, "run")
        assert "Nothing is left over" in await queue(client, "drop")
    # In a third bridge nothing of it is left over any more.
    async with world.inside(session=False) as client:
        loaded = await client.load_session(session, world.cwd)
        assert "held" not in loaded["_meta"]["acp_bridge"]
        said = [u["content"]["text"] for u in shown(client) if "content" in u]
        assert [text for text in said if text in ("one", "two", "three", "four")] == [
            "one",
            "three",
            "four",
        ]


@pytest.mark.hazard("R12.4", "C3")
async def test_stop_reaches_the_left_over_prompts_that_run_and_the_rest_is_left_over_again(
    world: World,
) -> None:
    session = await left_over_session(world, "one", "two", "three")
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd)
        carrier = client.send_prompt("/queue run")
        await world.gates.reached("h")
        client.cancel()
        assert await stopped(client, carrier) == "cancelled"
        assert await client.prompt("say after") == {"stopReason": "end_turn"}
        told = await queue(client)
        assert "- 4: say two; gate h\n- 5: say three; gate h" in told
        assert "say one" not in told
    assert "say two; gate h" not in world.log.prompts()


@pytest.mark.hazard("R12", "K1")
async def test_of_left_over_prompts_those_that_a_kill_cut_off_are_interrupted_the_rest_stay(
    world: World,
) -> None:
    session = await left_over_session(world, "one", "two")
    async with world.bridge(session=False, exits=-9) as client:
        await client.load_session(session, world.cwd)
        client.send_prompt("/queue run")
        await world.gates.reached("h")
        await end(client, "SIGKILL")
    async with world.inside(session=False) as client:
        loaded = await client.load_session(session, world.cwd)
        held: list[Any] = loaded["_meta"]["acp_bridge"]["held"]
        assert [prompt[0]["text"] for prompt in held] == ["say two; gate h"]
        assert client.text().count("Interrupted") == 2
        assert "Dropped 1." in await queue(client, "drop")
    assert world.log.prompts().count("say one; gate h") == 1


async def test_a_resume_tells_of_left_over_prompts_though_it_replays_nothing(world: World) -> None:
    session = await left_over_session(world, "one")
    async with world.inside(session=False) as client:
        about = {"sessionId": session, "cwd": str(world.cwd)}
        resumed = await client.request("session/resume", about)
        client.session_id = session
        assert len(resumed["_meta"]["acp_bridge"]["held"]) == 1
        assert len(client.texts()) == 1
        assert "1 prompt was waiting" in client.text()
        assert "Dropped prompt 3." in await queue(client, "drop 3")
