"""A process is brought up to where the one before it was, or the user is told why not."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.history import History
from acp_bridge.core.journal import Journal, JournalError, SessionJournal
from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    OPTIONS_UPDATE,
    SESSION_CANCEL,
    SESSION_LOAD,
    SESSION_PROMPT,
    SESSION_RESUME,
    SET_CONFIG_OPTION,
    SET_MODE,
    text_chunk,
    user_chunk,
)
from acp_bridge.core.updates import agent_trouble, notices
from acp_bridge.core.wire.jsonrpc import encode
from tests.core.session.journals import failing
from tests.core.session.living import CANCELLED, DONE, Living, Prepare, does_nothing, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import BUSY, UNKNOWN, PlayedAgent, refusal
from tests.core.session.waiting import quiet, until

pytestmark = pytest.mark.usefixtures("no_errors")

MODES: Json = {"currentModeId": "plan", "availableModes": [{"id": "plan"}, {"id": "edit"}]}
NOT_READY = "the agent could not be made ready: "


def takes(result: Json, **replies: Any) -> Prepare:
    """Let an agent take the session with this result, and answer these requests at once."""

    def prepare(agent: PlayedAgent) -> None:
        agent.reply(SESSION_RESUME, result)
        for method, answer in replies.items():
            agent.reply({"mode": SET_MODE, "option": SET_CONFIG_OPTION}.get(method, method), answer)

    return prepare


def loads(answer: Any) -> Prepare:
    """Let an agent that can only load the session answer so."""

    def prepare(agent: PlayedAgent) -> None:
        agent.initialized["agentCapabilities"] = {"loadSession": True}
        agent.reply(SESSION_LOAD, answer)

    return prepare


async def chose(here: Living, method: str, **params: Any) -> None:
    """Let the client choose a setting, which the first process takes."""
    request_id, agent = here.asks(method, **params), await here.agent()
    agent.answer(await agent.asked(method), {})
    assert await here.answered(request_id) == {}


async def restarted(here: Living) -> PlayedAgent:
    """Let the first process die, and return the next one, which has the session."""
    (await here.agent()).dies()
    here.session.wake()
    agent = await here.agent(2)
    await until(lambda: here.session.link is agent)
    return agent


async def refused(here: Living) -> str:
    """Send a prompt that no process comes for; returns why."""
    error = await here.answered(here.prompt())
    assert error["message"].startswith(NOT_READY)
    return str(error["message"]).removeprefix(NOT_READY)


# --- the session is the process's again -----------------------------------------------------------


@pytest.mark.hazard("R9.1", "C9.2")
async def test_the_session_comes_first_then_its_settings_then_what_waited(tmp_path: Path) -> None:
    async with living(tmp_path, does_nothing, first=first()) as here:
        await chose(here, SET_MODE, modeId="edit")
        (await here.agent()).dies()
        request_id = here.asks("_x/y", n=1)
        agent = await here.agent(2)
        agent.answer(await agent.asked(SESSION_RESUME), {"modes": MODES})
        agent.answer(await agent.asked(SET_MODE), {})
        agent.answer(await agent.asked("_x/y"), {"answer": 1})
        assert await here.answered(request_id) == {"answer": 1}
        assert agent.heard == ["initialize", SESSION_RESUME, SET_MODE, "_x/y"]
        assert agent.params(SET_MODE) == [{"sessionId": "0", "modeId": "edit"}]


@pytest.mark.hazard("R9")
async def test_a_setting_that_waits_takes_the_place_of_the_one_that_was_chosen_before(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, takes({"modes": MODES}, mode={}), first=first()) as here:
        await chose(here, SET_MODE, modeId="plan")
        (await here.agent()).dies()
        assert await here.answered(here.asks(SET_MODE, modeId="edit")) == {}
        agent = await here.agent(2)
        assert [each["modeId"] for each in agent.params(SET_MODE)] == ["edit"]


@pytest.mark.hazard("R9.2")
async def test_a_setting_that_the_agent_refuses_keeps_the_session_from_being_ready(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, takes({}, mode=BUSY), first=first()) as here:
        await chose(here, SET_MODE, modeId="edit")
        (await here.agent()).dies()
        here.asks("_x/y")
        assert await refused(here) == "the agent would not set 'edit' again: busy"
        assert not any("_x/y" in agent.heard for agent in here.context.agents)


@pytest.mark.hazard("R8", "R9")
async def test_what_takes_the_place_of_a_setting_that_was_given_up_is_said_once(
    tmp_path: Path,
) -> None:
    def told(value: str) -> Json:
        return {"configOptions": [{"id": "model", "type": "select", "currentValue": value}]}

    ways = [takes({}, option=BUSY)] * 3 + [takes(told("usual"), option={})]
    async with living(tmp_path, *ways, first=first()) as here:
        here.session.user_settings.note_result({"modes": MODES, **told("gone")})
        await chose(here, SET_CONFIG_OPTION, configId="model", value="gone")
        (await here.agent()).dies()
        assert await refused(here) == "the agent would not set 'model' to 'gone' again: busy"
        # What the client sets instead, or another choice of it, gives it up.
        await here.answered(here.asks(SET_CONFIG_OPTION, configId="model", value="other"))
        for number in (5, 6):
            here.prompt()
            agent = await here.agent(number)
            agent.answer(await agent.asked(SESSION_PROMPT), DONE)
            await until(lambda: here.session.now.at_rest)
            agent.dies()
        said = [text for text in here.texts() if "model" in text]
        assert said == [notices.given_up("model", "gone", "usual")]
        assert "'usual'" in said[0]


MODE_TOLD: Json = {"sessionUpdate": "current_mode_update", "currentModeId": "edit"}
LOW: list[Json] = [{"id": "effort", "type": "select", "currentValue": "low"}]
HIGH: list[Json] = [{**LOW[0], "currentValue": "high"}]


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"modes": MODES, "configOptions": LOW}, []),
        ({"modes": {**MODES, "currentModeId": "edit"}}, [MODE_TOLD]),
        ({"configOptions": HIGH}, [{"sessionUpdate": OPTIONS_UPDATE, "configOptions": HIGH}]),
    ],
)
async def test_only_what_differs_from_what_the_clients_know_of_the_settings_is_shown(
    tmp_path: Path, result: Json, shown: list[Json]
) -> None:
    async with living(tmp_path, takes(result), first=first()) as here:
        here.session.user_settings.note_result({"modes": MODES, "configOptions": LOW})
        await here.turn(await restarted(here))
        assert here.updates() == shown


async def test_a_mode_that_is_set_in_a_restart_is_told_by_the_answer_alone(tmp_path: Path) -> None:
    async with living(tmp_path, takes({"modes": MODES}, mode={}), first=first()) as here:
        here.session.user_settings.note_result({"modes": MODES})
        await chose(here, SET_MODE, modeId="plan")
        (await here.agent()).dies()
        assert await here.answered(here.asks(SET_MODE, modeId="edit")) == {}
        await here.turn(await here.agent(2))
        assert here.updates() == []
        assert here.session.user_settings.shown["modes"]["currentModeId"] == "edit"


@pytest.mark.hazard("R13.2")
@pytest.mark.parametrize("begins_with", ["edit", "plan"])
async def test_a_mode_that_the_agent_announced_is_set_again_unless_the_process_begins_with_it(
    tmp_path: Path, begins_with: str
) -> None:
    modes = {**MODES, "currentModeId": begins_with}
    async with living(tmp_path, takes({"modes": modes}, mode={}), first=first()) as here:
        here.session.user_settings.note_result({"modes": MODES})
        (await here.agent()).update(sessionUpdate="current_mode_update", currentModeId="edit")
        agent = await restarted(here)
        assert (SET_MODE in agent.heard) is (begins_with == "plan")


@pytest.mark.hazard("P13")
async def test_the_ids_of_the_process_before_mean_nothing_to_the_next(tmp_path: Path) -> None:
    async with living(tmp_path, takes({}), first=first()) as here:
        call: Json = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "a"}
        (await here.agent()).update(**call)
        agent = await restarted(here)
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        agent.update(**call)
        opened = [u["toolCallId"] for u in here.updates() if u["sessionUpdate"] == "tool_call"]
        assert opened == ["1", "1~2"]


@pytest.mark.hazard("C16")
async def test_a_card_that_a_later_process_leaves_open_outside_of_a_turn_ends_with_it(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, takes({}), first=first()) as here:
        agent = await restarted(here)
        await here.turn(agent)
        agent.update(sessionUpdate="tool_call", toolCallId="c", title="a", status="pending")
        agent.dies()
        assert here.updates()[-1]["status"] == "failed"


# --- a replay that may come late ------------------------------------------------------------------


def said(text: str) -> Json:
    return user_chunk({"type": "text", "text": text})


async def repeats(here: Living, agent: PlayedAgent, text: str) -> bool:
    """Return True if it is not shown that the agent says these words in its first turn."""
    request_id, before = here.prompt("next"), len(here.texts())
    turn = await agent.asked(SESSION_PROMPT)
    agent.update(**said(text))
    agent.answer(turn, DONE)
    assert await here.answered(request_id) == DONE
    return text not in here.texts()[before:]


@pytest.mark.hazard("R11")
@pytest.mark.parametrize("text", ["mend", "other"])
@pytest.mark.parametrize("by_load", [True, False])
async def test_after_a_load_and_no_resume_what_is_recorded_may_be_repeated_late(
    tmp_path: Path, text: str, by_load: bool
) -> None:
    async with living(tmp_path, loads({}) if by_load else takes({}), first=first()) as here:
        await here.turn(await here.agent())
        assert await repeats(here, await restarted(here), text) is (by_load and text == "mend")
        # What was loaded and is not repeated may be forgotten.
        assert (notices.MEMORY_DOUBTFUL in here.texts()) is (by_load and text == "other")


@pytest.mark.hazard("R11")
async def test_that_the_agent_may_have_forgotten_is_said_once_until_it_has_remembered(
    tmp_path: Path,
) -> None:
    def said_so(here: Living) -> int:
        return here.texts().count(notices.MEMORY_DOUBTFUL)

    async with living(tmp_path, loads({}), first=first()) as here:
        await here.turn(await here.agent())
        for number, (text, said) in enumerate(
            (("one", 1), ("two", 1), ("mend", 1), ("four", 2)), 2
        ):
            (await here.agent(number - 1)).dies()
            here.session.wake()
            agent = await here.agent(number)
            await until(lambda agent=agent: here.session.link is agent)  # type: ignore[misc]
            assert await repeats(here, agent, text) is (text == "mend")
            assert said_so(here) == said


REFUSAL: Json = {"stopReason": "refusal"}


@pytest.mark.hazard("R11")
@pytest.mark.parametrize(
    ("answers", "words", "doubted"),
    [
        ([REFUSAL], "", [True]),
        ([REFUSAL], " \n", [True]),
        ([UNKNOWN], "", [True]),
        ([refusal(-32603, "Internal error", details="Session abc not found")], "", [True]),
        ([refusal(-32602, "Unknown session: abc")], "", [True]),
        ([REFUSAL, REFUSAL], "", [True, True]),
        ([CANCELLED, REFUSAL], "", [False, True]),
        ([refusal(-32603, "busy"), REFUSAL], "", [False, True]),
        ([REFUSAL], "I won't", [False]),
        ([DONE, REFUSAL], "sure", [False, False]),
    ],
)
async def test_an_agent_that_says_it_has_resumed_and_then_refuses_without_a_word_is_told_of_once(
    tmp_path: Path, answers: list[Any], words: str, doubted: list[bool]
) -> None:
    async with living(tmp_path, first=first()) as here:
        await here.turn(await here.agent())
        agent = await restarted(here)
        agent.mute = True
        for answer, expected in zip(answers, doubted, strict=True):
            asked = here.prompt("next")
            turn = await agent.asked(SESSION_PROMPT)
            if words:
                agent.update(**text_chunk(AGENT_MESSAGE, words, f"m{len(here.got)}"))
            agent.answer(turn, answer)
            await here.answered(asked)
            assert here.texts().count(agent_trouble.RESUME_DOUBTFUL) == expected
            assert len(doubted) > 1 or agent_trouble.no_word("") not in here.texts()


@pytest.mark.hazard("R11")
async def test_an_agent_that_has_loaded_and_repeated_a_session_is_not_doubted_when_it_refuses(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, loads({}), first=first()) as here:
        await here.turn(await here.agent())
        agent = await restarted(here)
        assert await repeats(here, agent, "mend")
        agent.mute = True
        asked = here.prompt("next")
        agent.answer(await agent.asked(SESSION_PROMPT), REFUSAL)
        await here.answered(asked)
        assert agent_trouble.RESUME_DOUBTFUL not in here.texts()


async def failing_turn(here: Living, agent: PlayedAgent, answer: Any) -> None:
    asked = here.prompt("next")
    agent.answer(await agent.asked(SESSION_PROMPT), answer)
    await here.answered(asked)


async def cancelled_turn(here: Living, agent: PlayedAgent) -> None:
    asked = here.prompt("stopped")
    turn = await agent.asked(SESSION_PROMPT)
    here.session.audience.cancel(here.client.client)
    assert agent.heard[-1] == SESSION_CANCEL
    agent.answer(turn, CANCELLED)
    assert await here.answered(asked) == CANCELLED


BROKEN = refusal(-32603, "Internal error")


async def test_an_agent_that_fails_twice_in_a_row_after_a_stop_is_replaced_once(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await here.turn(agent)
        await cancelled_turn(here, agent)
        await failing_turn(here, agent, BROKEN)
        assert agent_trouble.BROKEN_BY_CANCEL not in here.texts()
        await failing_turn(here, agent, BROKEN)
        assert here.texts().count(agent_trouble.BROKEN_BY_CANCEL) == 1
        second = await here.agent(2)
        await until(lambda: here.session.link is second)
        for _ in range(3):
            await failing_turn(here, second, BROKEN)
        assert len(here.context.agents) == 2
        assert here.texts().count(agent_trouble.BROKEN_BY_CANCEL) == 1


@pytest.mark.parametrize(
    ("stopped", "answers"),
    [
        (False, [BROKEN, BROKEN, BROKEN]),
        (True, [BROKEN, DONE, BROKEN, BROKEN]),
        (True, [refusal(-32602, "no"), BROKEN, BROKEN]),
        (True, [BROKEN]),
    ],
)
async def test_an_agent_that_fails_otherwise_keeps_its_process(
    tmp_path: Path, stopped: bool, answers: list[Any]
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        if stopped:
            await cancelled_turn(here, agent)
        for answer in answers:
            await failing_turn(here, agent, answer)
        assert len(here.context.agents) == 1
        assert agent_trouble.BROKEN_BY_CANCEL not in here.texts()


@pytest.mark.hazard("R11", "T2")
async def test_a_mode_is_not_shown_when_a_load_repeats_it_and_is_when_a_turn_does(
    tmp_path: Path,
) -> None:
    mode: Json = {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
    async with living(tmp_path, loads({}), first=first()) as here:
        here.session.user_settings.note_result({"modes": MODES})
        await here.turn(await here.agent())
        agent = await restarted(here)
        agent.update(**mode)
        assert here.updates() == []
        request_id = here.prompt("next")
        turn = await agent.asked(SESSION_PROMPT)
        agent.update(**mode)
        agent.answer(turn, DONE)
        assert await here.answered(request_id) == DONE
        assert mode in here.updates()


@pytest.mark.hazard("R11", "R6")
async def test_what_a_clients_load_has_just_read_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path, loads({}), capabilities={"loadSession": True}) as here:
        here.journal.record(0, encode({"update": said("first")}))
        await here.session.replay.load(here.request(SESSION_LOAD), History.FULL)
        with monkeypatch.context() as patch:
            patch.delattr(SessionJournal, "replay")
            here.session.wake()
            agent = await here.agent()
            await until(lambda: here.session.link is agent)
        assert await repeats(here, agent, "first")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.hazard("R3")
async def test_while_nobody_waits_it_is_said_why_the_agent_does_not_load_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, loads(UNKNOWN), first=first()) as here:
        await here.turn(await here.agent())
        (await here.agent()).dies()
        here.session.wake()
        await until(here.texts)
        why = f"the agent would not load the session: {UNKNOWN.message}"
        assert here.texts() == [notices.not_ready(why)]


@pytest.mark.hazard("R3")
async def test_while_nobody_waits_it_is_said_that_no_process_can_follow_a_first_one_that_lives_on(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), kill_timeout=0.0) as here:
        agent = await here.agent()
        agent.immortal = True
        agent.exits()
        await until(here.texts)
        assert here.texts() == [notices.NOT_READY]


@pytest.mark.hazard("R3")
async def test_a_session_that_was_the_agents_before_it_was_ours_had_turns_of_its_own(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, loads(UNKNOWN)) as here:
        here.journal.change_info(agent_session_id="s")
        assert "would not load the session" in await refused(here)
        assert (await here.agent()).heard == ["initialize", SESSION_LOAD]


# --- the journal fails ----------------------------------------------------------------------------


@pytest.mark.hazard("P6")
@pytest.mark.parametrize(
    ("part", "method"),
    [(SessionJournal, "turns_finished"), (SessionJournal, "replay"), (Journal, "note_agent")],
)
async def test_a_journal_that_fails_is_a_refusal_without_its_text(
    tmp_path: Path,
    part: Any,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*args: object) -> Any:
        raise JournalError("/secret/path")

    async with living(tmp_path, loads({})) as here:
        with monkeypatch.context() as patch:
            patch.setattr(part, method, fails)
            why = await refused(here)
        assert "could not be opened (the log has more under id " in why
        assert "secret" not in why
        assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3  # tries
        caplog.clear()


@pytest.mark.hazard("K1")
async def test_settings_that_can_not_be_written_are_in_force_all_the_same(tmp_path: Path) -> None:
    async with living(tmp_path, takes({"modes": MODES}, mode={})) as here:
        with failing(here.journal, "INSERT ON settings"):
            assert await here.answered(here.asks(SET_MODE, modeId="edit")) == {}
        await here.turn(await here.agent())
        assert here.session.user_settings.shown["modes"]["currentModeId"] == "edit"


# --- a process that dies --------------------------------------------------------------------------


@pytest.mark.hazard("R11")
@pytest.mark.parametrize("at", ["replay", "note_agent"])
async def test_a_process_that_dies_unasked_in_the_middle_changes_nothing_for_the_next(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, waits = anyio.Event(), anyio.Event()
    note_agent = Journal.note_agent

    async def slow_replay(journal: SessionJournal) -> AsyncIterator[list[Json]]:
        waits.set()
        await going_on.wait()
        yield [{"update": said("mend")}]

    async def slow_note(journal: Journal, *args: Any) -> None:
        if not waits.is_set():
            waits.set()
            await going_on.wait()
        await note_agent(journal, *args)

    dies = loads({"modes": MODES})
    async with living(tmp_path, dies, takes({}), first=first()) as here:
        await here.turn(await here.agent())
        here.session.user_settings.note_result({"modes": {**MODES, "currentModeId": "edit"}})
        with monkeypatch.context() as patch:
            if at == "replay":
                patch.setattr(SessionJournal, at, slow_replay)
            else:
                patch.setattr(Journal, at, slow_note)
            (await here.agent()).dies()
            here.session.wake()
            await waits.wait()
            (await here.agent(2)).dies()
            following = await here.agent(3)
            await until(lambda: here.session.link is following)
            going_on.set()
            await quiet()
        assert here.session.link is following
        assert here.session.user_settings.shown["modes"]["currentModeId"] == "edit"
        assert not await repeats(here, following, "mend")
        assert [u for u in here.updates() if u["sessionUpdate"] == "current_mode_update"] == []


@pytest.mark.hazard("R15.9")
async def test_a_second_stop_begins_the_count_of_failures_again(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await here.turn(agent)
        await cancelled_turn(here, agent)
        await failing_turn(here, agent, BROKEN)
        await cancelled_turn(here, agent)
        await failing_turn(here, agent, BROKEN)
        assert agent_trouble.BROKEN_BY_CANCEL not in here.texts()
        await failing_turn(here, agent, BROKEN)
        assert here.texts().count(agent_trouble.BROKEN_BY_CANCEL) == 1
