"""A session as a whole: prompts from reading to answer, cancels, agents that die, restarts."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_bridge import notices
from acp_bridge.agents.outcome import Exit, StartFailed
from acp_bridge.journal import PromptState
from acp_bridge.machine import events as ev
from acp_bridge.protocol import (
    ACCEPTED,
    CREATE_TERMINAL,
    RELEASE_TERMINAL,
    SESSION_CANCEL,
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    SET_MODE,
)
from acp_bridge.settings import Delivery
from tests.session.journals import break_sync, failing, recorded_texts
from tests.session.living import Living, living, resumes
from tests.session.memory import ClientEnd
from tests.session.played_agent import AUTH_REQUIRED, BUSY, UNKNOWN, PlayedAgent
from tests.session.waiting import quiet, until

DONE = {"stopReason": "end_turn"}
CANCELLED = {"stopReason": "cancelled"}


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Nothing fails unnoticed: a test that expects errors clears the log."""
    yield caplog
    assert [r for r in caplog.get_records("call") if r.levelno >= logging.ERROR] == []


def first() -> PlayedAgent:
    """Return the process in which the session was made."""
    return PlayedAgent("resume")


def fails_to_start(agent: PlayedAgent) -> None:
    agent.unspawnable = StartFailed("cannot be started now: x", permanent=False)


def does_not_exist(agent: PlayedAgent) -> None:
    agent.unspawnable = StartFailed("command not found: x", permanent=True)


def never_starts(agent: PlayedAgent) -> None:
    agent.ready = False


def refuses(agent: PlayedAgent) -> None:
    agent.reply(SESSION_RESUME, BUSY)
    agent.reply(SESSION_NEW, BUSY)


def wants_a_login(agent: PlayedAgent) -> None:
    agent.reply(SESSION_RESUME, AUTH_REQUIRED)


def forgets(agent: PlayedAgent) -> None:
    agent.reply(SESSION_RESUME, UNKNOWN)
    agent.reply(SESSION_NEW, {"sessionId": "young"})


async def one_turn(here: Living, agent: PlayedAgent, text: str = "mend") -> None:
    """Run a prompt to its end."""
    request_id = here.prompt(text)
    agent.answer(await agent.asked(SESSION_PROMPT), DONE)
    assert await here.answered(request_id) == DONE


# --- prompts --------------------------------------------------------------------------------------


@pytest.mark.hazard("Q1", "K1", "T2")
async def test_a_prompt_goes_to_disk_then_to_an_agent_that_has_the_session_and_its_answer_back(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        request_id = here.prompt("mend")
        agent = await here.agent()
        turn = await agent.asked(SESSION_PROMPT)
        assert agent.heard == ["initialize", SESSION_RESUME, SESSION_PROMPT]
        assert turn["params"]["sessionId"] == "0"
        assert here.states() == [PromptState.SENT]
        agent.says_text("mended")
        agent.answer(turn, {**DONE, "_x": 1})
        assert await here.answered(request_id) == {**DONE, "_x": 1}
        assert [m.get("method") for m in here.got] == [ACCEPTED, "session/update", None]
        assert here.texts() == ["mended"]
        assert here.outcomes() == [({**DONE, "_x": 1}, {**DONE, "_x": 1})]
        assert await recorded_texts(here.journal) == ["mend", "mended"]
        assert (here.journal.info.title, agent.lock) == ("mend", here.lease)


@pytest.mark.hazard("Q2", "Q3")
async def test_prompts_run_one_at_a_time_in_the_order_of_reading(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        ids = [here.prompt(text) for text in ("one", "two", "three")]
        for number, request_id in enumerate(ids, 1):
            turn = await agent.asked(SESSION_PROMPT)
            await quiet()
            assert len(agent.params(SESSION_PROMPT)) == number
            assert list(here.answers()) == ids[: number - 1]
            agent.answer(turn, {**DONE, "n": number})
            assert (await here.answered(request_id))["n"] == number
        sent = [params["prompt"][0]["text"] for params in agent.params(SESSION_PROMPT)]
        assert sent == ["one", "two", "three"]
        assert here.states() == [PromptState.DONE] * 3


@pytest.mark.hazard("K1", "Q9")
@pytest.mark.parametrize("at", ["accept", "sync"])
async def test_a_prompt_that_the_journal_does_not_take_is_answered_and_never_sent(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        if at == "sync":
            break_sync(monkeypatch)
            request_id = here.prompt()
        else:
            with failing(here.journal, "INSERT ON prompts"):
                request_id = here.prompt()
        error = await here.answered(request_id)
        assert error["message"] == "the prompt could not be written to the journal: not taken"
        assert agent.heard == ["initialize"]
        assert ACCEPTED not in [message.get("method") for message in here.got]


@pytest.mark.hazard("P3")
async def test_an_agent_that_ends_while_it_is_idle_is_started_again_for_the_next_prompt(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        (await here.agent()).dies(Exit(0, None))
        await quiet()
        assert len(here.context.agents) == 1
        request_id = here.prompt()
        agent = await here.agent(2)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE
        assert here.texts() == []


@pytest.mark.parametrize(
    ("setting", "asked", "interrupts"),
    [
        (Delivery.QUEUE, None, False),
        (Delivery.QUEUE, "interrupt", True),
        (Delivery.INTERRUPT, None, True),
        (Delivery.INTERRUPT, "queue", False),
        (Delivery.INTERRUPT, 5, False),
    ],
)
async def test_a_prompt_takes_the_place_of_the_running_one_only_if_that_is_asked_for(
    tmp_path: Path, setting: Delivery, asked: object, interrupts: bool
) -> None:
    async with living(tmp_path, first=first(), delivery=setting) as here:
        agent, before = await here.agent(), here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        meta = {"_meta": {"acp_bridge": {"delivery": asked}}} if asked else {}
        after = here.prompt("two", **meta)
        await until(lambda: here.states() == [PromptState.SENT, PromptState.WAITING])
        await until(lambda: sum(m.get("method") == ACCEPTED for m in here.got) == 2)
        await quiet()
        assert (SESSION_CANCEL in agent.heard) is interrupts
        agent.answer(turn, DONE)
        assert await here.answered(before) == (CANCELLED if interrupts else DONE)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(after) == DONE


async def test_the_queue_command_is_answered_by_the_bridge_unless_the_agent_has_its_own(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        assert await here.answered(here.prompt("/queue")) == DONE
        assert here.texts() == ["Nothing is waiting."]
        assert agent.heard == ["initialize"]
        commands = [{"name": "queue", "description": "mine"}]
        agent.update(sessionUpdate="available_commands_update", availableCommands=commands)
        await one_turn(here, agent, "/queue")


# --- cancel ---------------------------------------------------------------------------------------


@pytest.mark.hazard("C5", "C10", "C13", "C9")
async def test_a_cancelled_prompt_is_answered_when_the_agent_has_ended_its_turn(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.update(sessionUpdate="tool_call", toolCallId="t", title="a", status="pending")
        here.session.feed(ev.Cancel())
        here.session.feed(ev.Cancel())
        assert agent.params(SESSION_CANCEL) == [{"sessionId": "0"}]
        assert here.answers() == {}
        agent.answer(turn, DONE)
        assert await here.answered(request_id) == CANCELLED
        assert here.outcomes() == [(CANCELLED, DONE)]
        (_, closed) = here.updates()
        assert (closed["toolCallId"], closed["status"]) == ("t", "failed")
        await one_turn(here, agent, "next")  # in the same process


@pytest.mark.hazard("C20", "C3")
async def test_a_cancel_that_comes_before_the_prompt_is_on_disk_keeps_it_from_the_agent(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        request_id = here.prompt()
        here.session.feed(ev.Cancel())
        assert here.answers() == {request_id: CANCELLED}
        await quiet()
        agent = await here.agent()
        await one_turn(here, agent, "next")
        assert [each["prompt"][0]["text"] for each in agent.params(SESSION_PROMPT)] == ["next"]


@pytest.mark.hazard("C8", "C9", "C10", "P12")
async def test_an_agent_that_ignores_the_cancel_is_killed_and_the_next_prompt_gets_another(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), drain_timeout=0.0) as here:
        deaf, request_id = await here.agent(), here.prompt()
        await deaf.asked(SESSION_PROMPT)
        made = deaf.asks(CREATE_TERMINAL, {"sessionId": "0", "command": "x"})
        assert made.method == CREATE_TERMINAL
        here.client.answers(here.got[-1]["id"], {"terminalId": "t"})
        deaf.update(sessionUpdate="tool_call", toolCallId="c", title="a", status="pending")
        following = here.prompt("next")
        given: list[bool] = []
        here.session.feed(ev.Cancel())
        agent = await here.agent(2)
        agent.on_sent = lambda: given.append(deaf.dead.is_set())
        assert await here.answered(request_id) == CANCELLED
        assert deaf.dead.is_set()
        what = [m.get("method") or m.get("id") for m in here.got]
        end = what.index(RELEASE_TERMINAL)
        assert what[end : end + 3] == [RELEASE_TERMINAL, "session/update", request_id]
        assert here.updates()[-1]["status"] == "failed"
        turn = await agent.asked(SESSION_PROMPT)
        assert [m for m in agent.heard if m != "initialize"] == [SESSION_RESUME, SESSION_PROMPT]
        assert all(given[agent.heard.index(SESSION_RESUME) - 1 :])
        agent.answer(turn, DONE)
        assert await here.answered(following) == DONE


@pytest.mark.hazard("C21", "Q9", "P12")
async def test_a_tree_that_will_not_die_keeps_nobody_waiting_and_no_other_gets_the_session(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first(), drain_timeout=0.0, kill_timeout=0.0) as here:
        deaf, request_id = await here.agent(), here.prompt()
        deaf.immortal = True
        await deaf.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        assert await here.answered(request_id) == CANCELLED
        error = await here.answered(here.prompt("next"))
        assert "could not be made ready" in error["message"]
        assert not any(SESSION_RESUME in agent.heard for agent in here.context.agents)
        deaf.immortal = False
        deaf.dies()
        request_id = here.prompt("after")
        await until(lambda: any(SESSION_PROMPT in a.heard for a in here.context.agents[1:]))
        agent = here.context.agents[-1]
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE


@pytest.mark.hazard("C6", "C12")
async def test_an_agent_that_goes_on_after_it_was_cancelled_is_replaced_before_the_next_prompt(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, request_id = await here.agent(), here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        agent.says_text("half")
        here.session.feed(ev.Cancel())
        agent.answer(turn, CANCELLED)
        assert await here.answered(request_id) == CANCELLED
        agent.says_text("leaked")
        await one_turn(here, await here.agent(2), "next")
        assert agent.dead.is_set()
        assert here.texts() == ["half"]


@pytest.mark.hazard("C1", "Q5")
async def test_a_request_to_cancel_means_that_client_s_prompt_and_no_other(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent, one, two = await here.agent(), here.prompt("one"), here.prompt("two")
        turn = await agent.asked(SESSION_PROMPT)
        for client, request_id in ((ClientEnd().client, two), (here.client.client, 99)):
            assert not here.session.cancel_request(client, request_id)
        assert here.session.cancel_request(here.client.client, two)
        assert here.answers() == {two: CANCELLED}
        assert SESSION_CANCEL not in agent.heard
        assert here.session.cancel_request(here.client.client, one)
        assert agent.heard[-1] == SESSION_CANCEL
        agent.answer(turn, CANCELLED)
        assert await here.answered(one) == CANCELLED
        assert not here.session.cancel_request(here.client.client, one)
        assert len(agent.params(SESSION_PROMPT)) == 1


# --- requests for the agent -----------------------------------------------------------------------


@pytest.mark.hazard("R9")
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


@pytest.mark.hazard("P3", "Q5", "C16")
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
        await one_turn(here, following, "two")
        assert following.heard == ["initialize", SESSION_RESUME, SESSION_PROMPT]
        assert here.outcomes()[0][1] is None


@pytest.mark.hazard("Q9")
@pytest.mark.parametrize(
    ("fails", "starts", "why"),
    [
        (fails_to_start, 3, "cannot be started now: x"),
        (does_not_exist, 1, "command not found: x"),
        (refuses, 3, "the agent would not open a session: busy"),
    ],
)
async def test_when_no_agent_can_be_made_ready_all_that_wait_are_told_why_and_the_next_tries_again(
    tmp_path: Path, fails: object, starts: int, why: str
) -> None:
    assert callable(fails)
    async with living(tmp_path, *[fails] * starts, resumes) as here:
        ids = [here.prompt("one"), here.prompt("two"), here.asks("_x/y")]
        for request_id in ids[:2]:
            error = await here.answered(request_id)
            assert error["message"] == f"the agent could not be made ready: {why}"
        assert "the agent is not running" in (await here.answered(ids[2]))["message"]
        assert len(here.context.agents) == starts
        assert here.texts() == []  # the answers have said it
        request_id = here.prompt("three")
        agent = await here.agent(starts + 1)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE


@pytest.mark.hazard("C21")
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
        assert here.texts() == [notices.FORGOT_YOUNG, "hello"]
        assert here.journal.info.agent_session_id == "young"
        known = await here.context.journal.known_agent_ids("a")
        assert known == {"young": "s"}


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
        await one_turn(here, agent, "next")
        assert agent.requests.login_wanted is None
        assert here.session.link is agent
        assert len(here.context.agents) == 1
        assert here.texts() == []
