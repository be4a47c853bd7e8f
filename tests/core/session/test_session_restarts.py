"""A session whose agent is not ready, dies or is replaced: who waits, and who is told what."""

from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Passing
from acp_bridge.core.protocol import (
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    SET_MODE,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.settings import ReloadAfterCancel
from acp_bridge.core.updates import notices
from tests.core.session.journals import failing, recorded_texts
from tests.core.session.living import (
    CANCELLED,
    DONE,
    Prepare,
    does_not_exist,
    fails_to_start,
    first,
    living,
    never_starts,
    resumes,
    wants_a_login,
)
from tests.core.session.played_agent import AUTH_REQUIRED, BUSY, UNKNOWN, PlayedAgent
from tests.core.session.waiting import quiet, until

pytestmark = pytest.mark.usefixtures("no_errors")


def refuses(agent: PlayedAgent) -> None:
    agent.reply(SESSION_RESUME, BUSY)
    agent.reply(SESSION_NEW, BUSY)


def forgets(agent: PlayedAgent) -> None:
    agent.reply(SESSION_RESUME, UNKNOWN)
    agent.reply(SESSION_NEW, {"sessionId": "young"})


# --- requests for the agent -----------------------------------------------------------------------


@pytest.mark.hazard("R9.3")
async def test_a_setting_of_a_session_that_has_no_process_starts_one_and_precedes_the_prompt(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        setting, prompt = here.asks(SET_MODE, modeId="edit"), here.prompt()
        agent = await here.agent()
        asked = await agent.asked(SET_MODE)
        await quiet()
        assert SESSION_PROMPT not in agent.heard
        agent.answer(asked, {"_x": 1})
        assert await here.answered(setting) == {"_x": 1}
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE
        assert agent.heard[1:] == [SESSION_RESUME, SET_MODE, SESSION_PROMPT]


async def test_a_request_that_the_agent_has_is_cancelled_there(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.asks("_x/slow")
        asked = await agent.asked("_x/slow")
        assert here.session.cancel_request(here.client.client, request_id)
        assert agent.params("$/cancel_request") == [{"requestId": asked["id"]}]
        agent.answer(asked, BUSY)
        assert await here.answered(request_id) == BUSY.to_wire()
        assert not here.session.cancel_request(here.client.client, request_id)


# --- an agent that dies, and restarts -------------------------------------------------------------


@pytest.mark.hazard("P3.1", "Q5.2", "C16.2")
async def test_an_agent_that_dies_in_a_turn_fails_it_and_another_takes_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        agent.update(sessionUpdate="tool_call", toolCallId="c", title="a", status="pending")
        agent.exits(Exit(3, None))
        assert here.answers() == {}  # a child of it may be alive
        agent.dies()
        error = here.answers()[request_id]
        assert "the agent ended during the turn (exit code 3)" in error["message"]
        assert here.updates()[-1]["status"] == "failed"
        following = await here.agent(2)
        agent.answer(turn, DONE)  # too late
        await here.turn(following, "two")
        assert following.heard == ["initialize", SESSION_RESUME, SESSION_PROMPT]
        assert here.outcomes()[0][1] is None


@pytest.mark.hazard("Q9.2")
@pytest.mark.parametrize(
    ("fails", "starts", "why"),
    [
        (fails_to_start, 3, "the agent could not be started: cannot be started now: x"),
        (does_not_exist, 1, "the agent could not be started: command not found: x"),
        (refuses, 3, "the agent could not be made ready: the agent would not open a session: busy"),
    ],
)
async def test_when_no_agent_can_be_made_ready_all_that_wait_are_told_why_and_the_next_tries_again(
    tmp_path: Path, fails: Prepare, starts: int, why: str
) -> None:
    async with living(tmp_path, *[fails] * starts, resumes) as here:
        ids = [here.prompt("one"), here.prompt("two"), here.asks("_x/y")]
        for request_id in ids[:2]:
            error = await here.answered(request_id)
            assert error["message"] == why
        assert "the agent is not running" in (await here.answered(ids[2]))["message"]
        assert len(here.context.agents) == starts
        assert here.texts() == []  # the answers have said it
        request_id = here.prompt("three")
        agent = await here.agent(starts + 1)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE


async def test_a_prompt_that_waits_long_for_a_start_is_told_that_the_agent_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "SLOW_START", 0.01)
    async with living(tmp_path, never_starts, resumes) as here:
        request_id = here.prompt("one")
        await until(here.texts)
        (said,) = here.texts()
        assert said.strip().endswith("is starting.")
        assert await recorded_texts(here.journal) == []
        here.context.agents[0].dies()
        agent = await here.agent(2)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE


@pytest.mark.hazard("C21.2")
async def test_a_restart_that_takes_too_long_is_given_up_with_an_answer(tmp_path: Path) -> None:
    async with living(tmp_path, never_starts, resumes, restart_timeout=0.0) as here:
        error = await here.answered(here.prompt())
        assert error["message"] == "the agent could not be made ready in time"
        await until(lambda: here.context.agents[0].dead.is_set())


@pytest.mark.hazard("R3")
async def test_a_restart_that_fails_while_nobody_waits_is_said_once_in_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_not_exist, does_not_exist, resumes) as here:
        here.session.wake()
        await until(here.texts)
        assert here.texts() == [notices.NOT_READY]
        assert await recorded_texts(here.journal) == []
        here.session.wake()
        await quiet()
        await here.answered(here.prompt())
        assert here.texts() == [notices.NOT_READY]
        assert len(here.context.agents) == 2


@pytest.mark.hazard("R3")
async def test_an_answer_about_something_else_does_not_say_that_the_restart_failed(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, fails_to_start, fails_to_start, never_starts) as here:
        here.session.wake()
        agent = await here.agent(3)
        last_try = await agent.asked("initialize")
        with failing(here.journal, "INSERT ON prompts"):
            assert "journal" in (await here.answered(here.prompt()))["message"]
        agent.answer(last_try, BUSY)
        await until(here.texts)
        assert here.texts() == [notices.NOT_READY]


@pytest.mark.hazard("R3")
async def test_each_restart_that_fails_unseen_is_said_though_the_one_before_was_told(
    tmp_path: Path,
) -> None:
    gate = anyio.Event()

    def fails_late(agent: PlayedAgent) -> None:
        does_not_exist(agent)
        agent.gate = gate

    async with living(tmp_path, does_not_exist, fails_late) as here:
        assert "not found" in (await here.answered(here.prompt()))["message"]
        request_id = here.prompt()
        await here.agent(2)
        here.session.feed(ev.Cancel())
        assert await here.answered(request_id) == CANCELLED
        gate.set()
        await until(lambda: here.session.now.permits.requests is Passing.REFUSED)
        assert here.texts() == []  # the client has not spoken since `cancelled`
        here.session.transcript.end_quiet(here.client.client)
        assert here.texts() == [notices.NOT_READY]


@pytest.mark.hazard("R3")
async def test_an_answer_about_something_else_does_not_have_a_failure_said_once_more(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, does_not_exist) as here:
        assert "not found" in (await here.answered(here.prompt()))["message"]
        here.session.feed(ev.HoldQueue())
        request_id = here.prompt()
        here.session.feed(ev.Cancel())
        assert await here.answered(request_id) == CANCELLED
        here.session.transcript.end_quiet(here.client.client)
        assert notices.NOT_READY not in here.texts()


@pytest.mark.hazard("R10")
async def test_a_session_that_the_agent_forgot_goes_on_under_its_new_id(tmp_path: Path) -> None:
    async with living(tmp_path, forgets) as here:
        request_id = here.prompt()
        agent = await here.agent()
        turn = await agent.asked(SESSION_PROMPT)
        assert turn["params"]["sessionId"] == "young"
        agent.says_text("hello")
        agent.answer(turn, DONE)
        await here.answered(request_id)
        assert here.texts() == ["hello"]
        assert here.journal.info.agent_session_id == "young"
        known = await here.context.journal.known_agent_ids(here.context.identity)
        assert "young" in known


# --- a login --------------------------------------------------------------------------------------


async def test_a_process_that_wants_a_login_waits_for_it_and_the_next_prompt_asks_it_again(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, wants_a_login) as here:
        assert await here.answered(here.prompt()) == AUTH_REQUIRED.to_wire()
        agent = await here.agent()
        assert agent.requests.login_wanted is not None
        assert here.session.link is None
        assert "not running" in (await here.answered(here.asks("_x/y")))["message"]
        resumes(agent)
        await here.turn(agent, "next")
        assert agent.requests.login_wanted is None
        assert here.session.link is agent
        assert len(here.context.agents) == 1
        assert here.texts() == []


# --- settings of the bridge -----------------------------------------------------------------------


async def test_an_agent_is_replaced_after_every_cancel_if_the_user_chose_that(
    tmp_path: Path,
) -> None:
    always = ReloadAfterCancel.ALWAYS
    async with living(tmp_path, first=first(), reload_after_cancel=always) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        assert await here.answered(request_id) == CANCELLED
        assert agent.dead.is_set()
        await here.turn(await here.agent(2))
