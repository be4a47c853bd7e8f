"""A turn begins at the agent, and is cancelled there."""

from pathlib import Path

import pytest

from acp_bridge.core.agents.activity import Activity, Piece
from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.journal import PromptState
from acp_bridge.core.journal.errors import DiskTrouble
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.effects import Refused
from acp_bridge.core.protocol import (
    CREATE_TERMINAL,
    REQUEST_PERMISSION,
    SESSION_CANCEL,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    SPARES,
    own_meta,
    user_chunk,
)
from acp_bridge.core.updates import notices
from tests.core.session.journals import failing, recorded, recorded_texts
from tests.core.session.living import CANCELLED, DONE, does_not_exist, first, living
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import BUSY, UNKNOWN, PlayedAgent
from tests.core.session.turned_clock import TurnedClock
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")

BLOCKS: list[Json] = [{"type": "text", "text": "mend"}, {"type": "image", "data": "x"}]
META: Json = {"acp_bridge": {"delivery": "queue"}, "theirs": 1}
#: what is declared for a client of version 2.
SAYS_STATES: Json = {"_meta": {"acp_bridge": {"said": True}}}


@pytest.mark.hazard("T3", "P13", "T2", "Q6")
async def test_when_the_agent_gets_the_prompt_as_it_came_the_turn_and_its_words_are_recorded(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, other, known = await here.agent(), ClientEnd(), list[list[PromptState]]()
        here.session.transcript.attach(other.client)
        agent.on_sent = lambda: known.append(here.states())
        request = here.request(SESSION_PROMPT, prompt=BLOCKS, _meta=META)
        here.session.on_prompt(request, request.params)
        turn = await agent.asked(SESSION_PROMPT)
        assert known == [[PromptState.SENT]]
        # Its own id of the session, and nothing that is said to the bridge.
        assert turn["params"] == {"sessionId": "0", "prompt": BLOCKS, "_meta": {"theirs": 1}}
        words = [user_chunk(block) for block in BLOCKS]
        assert [params["update"] for params in await recorded(here.journal)] == words
        # The client that sent the prompt shows its words by itself.
        assert here.updates() == []
        shown = [message["params"]["update"] for message in other.sent.take()]
        name = shown[0]["messageId"]
        assert shown == [{**each, "messageId": name} for each in words]


async def test_the_words_of_a_prompt_that_is_refused_are_recorded_once_also_if_they_were_shown(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        here.prompt("shown")
        await until(lambda: len(here.journal.prompts(PromptState.WAITING)) == 1)
        (key,) = here.session.now.waiting
        here.session.prompts.get(key).shown = True  # it was to join the turn
        here.session._turn.say_not_run(key, Refused("no"))
        assert "shown" not in await recorded_texts(here.journal)


async def test_what_is_shown_from_then_on_is_recorded_in_the_turn(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        agent.update(sessionUpdate="plan", n=0)
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.update(sessionUpdate="plan", n=1)
        (row,) = here.journal.prompts()
        of_turn = [p["update"] async for page in here.journal.replay(turn=row.seq) for p in page]
        assert of_turn[1:] == [{"sessionUpdate": "plan", "n": 1}]
        agent.answer(turn, DONE)


@pytest.mark.hazard("Q9.1")
async def test_an_error_of_the_agent_is_the_answer_and_a_second_answer_is_none(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id, following = await here.agent(), here.prompt("one"), here.prompt("two")
        asked = await agent.asked(SESSION_PROMPT)
        agent.answer(asked, BUSY)
        agent.answer(asked, DONE)
        assert await here.answered(request_id) == BUSY.to_wire()
        agent.answer(await agent.asked(SESSION_PROMPT), {"stopReason": "refusal"})
        assert await here.answered(following) == {"stopReason": "refusal"}
        assert [message["id"] for message in here.got if "method" not in message] == [
            request_id,
            following,
        ]


@pytest.mark.hazard("P13.2")
async def test_what_the_agent_asks_for_a_prompt_names_it_as_the_client_does(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.asks("_x/y")  # the prompt is the agent's third request, and the client's second
        request_id = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.asks("_x/z", {"sessionId": "0", "requestId": turn["id"]})
        assert here.got[-1]["params"] == {"sessionId": "s", "requestId": request_id}


@pytest.mark.hazard("Q8")
async def test_a_journal_that_can_not_note_the_turn_keeps_no_prompt_from_the_agent(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        with failing(here.journal, "UPDATE ON prompts"):
            await here.turn(await here.agent())


@pytest.mark.hazard("Q5.2", "Q13.10", "Q8")
async def test_a_prompt_that_would_be_offered_again_after_a_kill_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, seq: int, went: object) -> None:
        raise OSError(30, "read-only")

    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        with monkeypatch.context() as patch, failing(here.journal, "UPDATE ON prompts"):
            patch.setattr("acp_bridge.core.journal.left_queue.add", refuse)
            error = await here.answered(here.prompt())
        assert "journal" in error["message"]
        assert agent.params(SESSION_PROMPT) == []
        await here.turn(agent, "next")


async def test_the_answer_says_why_a_turn_can_not_be_noted_if_the_user_has_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskTrouble("the disk of /w is full")

    async with living(tmp_path, first=first()) as here:
        await here.agent()
        monkeypatch.setattr(here.journal, "start_turn", full)
        assert "the disk of /w is full" in (await here.answered(here.prompt()))["message"]


def loads(agent: PlayedAgent) -> None:
    """Let an agent take the session by a load, whose replay it has not said yet."""
    agent.initialized["agentCapabilities"] = {"loadSession": True}
    agent.reply(SESSION_LOAD, {})


@pytest.mark.hazard("R11")
async def test_the_prompt_itself_may_stand_at_the_end_of_a_late_replay(tmp_path: Path) -> None:
    async with living(tmp_path, loads, first=first()) as here:
        dying = await here.agent()
        await here.turn(dying, "before")
        dying.dies()
        request_id = here.prompt("mend")
        agent = await here.agent(2)
        turn = await agent.asked(SESSION_PROMPT)
        for text in ("before", "mend", "mend"):
            agent.update(**user_chunk({"type": "text", "text": text}))
        agent.answer(turn, DONE)
        assert await here.answered(request_id) == DONE
        assert here.texts() == ["mend"]  # the last one is said, and not repeated


def loads_in_parts(agent: PlayedAgent) -> None:
    agent.initialized["agentCapabilities"] = {"loadSession": True}


@pytest.mark.hazard("R11.1")
async def test_the_rest_of_a_replay_whose_load_was_answered_in_the_middle_is_not_said_again(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, loads_in_parts, first=first()) as here:
        dying = await here.agent()
        request_id = here.prompt("before")
        turn = await dying.asked(SESSION_PROMPT)
        dying.says_text("an answer ")
        dying.answer(turn, DONE)
        await here.answered(request_id)
        dying.dies()
        request_id = here.prompt("mend")
        agent = await here.agent(2)
        load = await agent.asked("session/load")
        agent.update(**user_chunk({"type": "text", "text": "before"}))
        agent.answer(load, {})
        turn = await agent.asked(SESSION_PROMPT)
        agent.says_text("an answer")
        agent.says_text("a new one", "n")
        agent.answer(turn, DONE)
        assert await here.answered(request_id) == DONE
        assert here.texts() == ["an answer", "a new one"]


def knows_nothing(agent: PlayedAgent) -> None:
    agent.reply(SESSION_NEW, {"sessionId": "young"})


def forgets(agent: PlayedAgent) -> None:
    agent.reply(SESSION_RESUME, UNKNOWN)
    agent.reply(SESSION_NEW, {"sessionId": "younger"})


@pytest.mark.hazard("R15.3")
async def test_the_transcript_goes_before_the_words_of_one_prompt_and_that_is_said(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, knows_nothing, first=first()) as here:
        await here.turn(await here.agent(), "before")
        assert await here.answered(here.prompt("/queue memory restore")) == DONE
        for text in ("now", "then"):
            request_id = here.prompt(text)
            agent = await here.agent(2)
            turn = await agent.asked(SESSION_PROMPT)
            *carried, words = turn["params"]["prompt"]
            assert words == {"type": "text", "text": text}
            if text == "now":
                (transcript,) = carried
                assert transcript["type"] == "text"
                assert "User: before" in transcript["text"]
                assert here.texts()[-1] == notices.memory_sent(len(transcript["text"]))
            agent.answer(turn, DONE)
            assert await here.answered(request_id) == DONE
        assert carried == []


@pytest.mark.hazard("R15.3")
async def test_the_transcript_goes_again_if_its_turn_was_killed_and_that_session_is_lost_too(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, knows_nothing, forgets, first=first()) as here:
        await here.turn(await here.agent(), "before")
        assert await here.answered(here.prompt("/queue memory restore")) == DONE
        for number in (2, 3):
            here.prompt("now")
            agent = await here.agent(number)
            turn = await agent.asked(SESSION_PROMPT)
            assert "User: before" in turn["params"]["prompt"][0]["text"]
            agent.dies()


@pytest.mark.hazard("R3")
async def test_of_a_prompt_that_no_process_comes_for_the_others_are_told_if_its_client_is_gone(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_not_exist) as here:
        gone = ClientEnd()
        request = gone.asks(SESSION_PROMPT, {"sessionId": "s", "prompt": BLOCKS[:1]})
        here.session.on_prompt(request, request.params)
        gone.client.gone = True
        why = "the agent could not be started: command not found: x"
        await until(lambda: here.texts()[1:])
        assert here.texts() == ["mend", notices.prompt_not_run(why)]
        assert [text.strip() for text in await recorded_texts(here.journal)] == here.texts()


@pytest.mark.hazard("C15.1")
async def test_a_cancel_reaches_the_agent_and_ends_what_it_asks_of_the_user(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        for number, method in enumerate((REQUEST_PERMISSION, CREATE_TERMINAL), 1):
            agent.asks(method, {"sessionId": "0", "command": "x"}, number)
        permission, terminal = here.got[-2:]
        before = len(agent.sent.messages)
        here.session.feed(ev.Cancel())
        told, answered = agent.sent.messages[before:]
        assert told == {"jsonrpc": "2.0", "method": SESSION_CANCEL, "params": {"sessionId": "0"}}
        assert (answered["id"], answered["result"]) == (1, {"outcome": {"outcome": "cancelled"}})
        (back,) = [m for m in here.got if m.get("method") == "$/cancel_request"]
        assert back["params"] == {"requestId": permission["id"]}
        here.client.answers(terminal["id"], {})  # what is no question still waits
        await until(lambda: agent.sent.messages[-1].get("id") == 2)
        agent.answer(turn, CANCELLED)
        assert await here.answered(request_id) == CANCELLED


# --- what goes on in the background ---------------------------------------------------------------


class Lists(PlayedAgent):
    """One of version 2, which has a tool call in the background."""

    activity = Activity(runs=False, background=(Piece("tool_call", "t", "make", True, ("t",)),))


def shows_card(agent: PlayedAgent, card: str) -> None:
    agent.update(sessionUpdate="tool_call", toolCallId=card, title=card, status="pending")


def ends(updates: list[Json]) -> Json:
    """Return the ends of cards in these updates."""
    kind = "tool_call_update"
    return {each["toolCallId"]: each["status"] for each in updates if each["sessionUpdate"] == kind}


@pytest.mark.hazard("C16")
@pytest.mark.parametrize(
    ("abilities", "agent", "spares"),
    [
        (SAYS_STATES, Lists, {"_meta": {"acp_bridge": {"sparesBackground": True}}}),
        (SAYS_STATES, PlayedAgent, {}),
        ({}, Lists, {}),
    ],
)
async def test_a_stop_leaves_what_is_in_the_background_if_client_and_agent_speak_version_2(
    tmp_path: Path, abilities: Json, agent: type[PlayedAgent], spares: Json
) -> None:
    async with living(tmp_path, first=agent("resume")) as here:
        here.client.client.abilities = ClientAbilities(abilities)
        here.prompt()
        played = await here.agent()
        turn = await played.asked(SESSION_PROMPT)
        here.session.audience.cancel(here.client.client)
        assert played.params(SESSION_CANCEL) == [{"sessionId": "0", **spares}]
        played.answer(turn, CANCELLED)


@pytest.mark.hazard("C16")
@pytest.mark.parametrize("works", [False, True])
@pytest.mark.parametrize("way", ["cancel", "cancel_request"])
@pytest.mark.parametrize(("abilities", "failed"), [(SAYS_STATES, {"u"}), ({}, {"t", "u"})])
async def test_the_cards_that_a_stop_ends_are_all_but_those_that_it_leaves_in_the_background(
    tmp_path: Path, works: bool, way: str, abilities: Json, failed: set[str]
) -> None:
    async with living(tmp_path, first=Lists("resume"), stop_delay=0) as here:
        agent, client = await here.agent(), here.client.client
        client.abilities = ClientAbilities(abilities)
        if works:
            await here.turn(agent)
            agent.says_text("by itself")
            asked = here.prompt("/queue wait")
        else:
            asked = here.prompt()
            turn = await agent.asked(SESSION_PROMPT)
        shows_card(agent, "t")
        shows_card(agent, "u")
        if way == "cancel":
            here.session.audience.cancel(client)
        else:
            here.session.cancel_request(client, asked)
        await until(lambda: SESSION_CANCEL in agent.heard)
        (told,) = agent.params(SESSION_CANCEL)
        assert own_meta(told) == ({SPARES: True} if abilities else {})
        if not works:
            agent.answer(turn, CANCELLED)
            assert await here.answered(asked) == CANCELLED
        assert ends(here.updates()) == dict.fromkeys(failed, "failed")


@pytest.mark.hazard("C16")
@pytest.mark.parametrize("way", ["/queue stop", "cancel_turn", "cancel_request"])
async def test_a_stop_by_another_way_spares_nothing_for_an_earlier_stop_that_did(
    tmp_path: Path, way: str
) -> None:
    async with living(tmp_path, first=Lists("resume")) as here:
        agent, client = await here.agent(), here.client.client
        client.abilities = ClientAbilities(SAYS_STATES)
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        here.session.audience.cancel(client)
        agent.answer(turn, CANCELLED)
        client.abilities = ClientAbilities({})
        stopped = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        if way == "/queue stop":
            here.prompt(way)
        elif way == "cancel_turn":
            here.session.audience.cancel_turn({"sessionId": "s"})
        else:
            here.session.cancel_request(client, stopped)
        assert agent.params(SESSION_CANCEL)[1] == {"sessionId": "0"}
        agent.answer(turn, CANCELLED)
        assert await here.answered(stopped) == CANCELLED


@pytest.mark.hazard("C25.10")
@pytest.mark.parametrize("way", ["/queue stop", "cancel_turn", "cancel_request"])
async def test_a_stop_of_work_without_a_prompt_spares_nothing_for_an_earlier_stop_that_did(
    tmp_path: Path, way: str
) -> None:
    async with living(tmp_path, first=Lists("resume")) as here:
        agent, client = await here.agent(), here.client.client
        client.abilities = ClientAbilities(SAYS_STATES)
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        here.session.audience.cancel(client)
        agent.answer(turn, CANCELLED)
        await here.turn(agent)
        client.abilities = ClientAbilities({})
        agent.says_text("by itself")
        waits = here.prompt("/queue wait")
        if way == "/queue stop":
            here.prompt(way)
        elif way == "cancel_turn":
            here.session.audience.cancel_turn({"sessionId": "s"})
        else:
            here.session.cancel_request(client, waits)
        assert agent.params(SESSION_CANCEL)[1] == {"sessionId": "0"}


@pytest.mark.hazard("C16")
async def test_what_goes_on_has_failed_when_its_process_is_killed_unlike_what_a_turn_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TurnedClock(monkeypatch)
    async with living(tmp_path, first=Lists("resume"), drain_timeout=4) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        shows_card(agent, "t")
        shows_card(agent, "left")
        agent.answer(turn, DONE)
        assert await here.answered(request_id) == DONE
        stopped = here.prompt()
        await agent.asked(SESSION_PROMPT)
        here.session.audience.cancel(here.client.client)
        await clock.passes(4)
        assert await here.answered(stopped) == CANCELLED
        assert ends(here.updates()) == {"t": "failed", "left": "completed"}
        assert notices.ended_in_background(["make"]) in here.texts()


@pytest.mark.hazard("C16")
async def test_a_card_that_is_of_a_question_alone_ends_with_the_process_and_is_in_no_replay(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.asks(REQUEST_PERMISSION, {"sessionId": "0", "toolCall": {"toolCallId": "asked"}})
        agent.answer(turn, DONE)
        assert await here.answered(request_id) == DONE
        agent.dies()
        assert ends(here.updates()) == {"asked": "completed"}
        assert ends([params["update"] for params in await recorded(here.journal)]) == {}


# --- words that are to join it --------------------------------------------------------------------

STEERS: Json = {"acp_bridge": {"delivery": "steer"}}
