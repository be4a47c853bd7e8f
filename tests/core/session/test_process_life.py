"""The processes of one session: where they come from, and how they end."""

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.protocol import SESSION_CLOSE, SESSION_DELETE, SESSION_PROMPT, SESSION_RESUME
from acp_bridge.core.runtime import waits
from tests.core.session.living import DONE, Living, Prepare, fails_to_start, first, living, resumes
from tests.core.session.played_agent import BUSY, KILLED, PlayedAgent
from tests.core.session.waiting import quiet

pytestmark = pytest.mark.usefixtures("no_errors")

LONG = 3600.0


async def turn_of(here: Living, number: int) -> None:
    """Run a prompt to its end, at the process with this number."""
    request_id = here.prompt()
    agent = await here.agent(number)
    agent.answer(await agent.asked(SESSION_PROMPT), DONE)
    assert await here.answered(request_id) == DONE
    assert here.session.link is agent


async def pooled(here: Living) -> PlayedAgent:
    """Return a process of the pool, which runs and has no session."""
    agent = PlayedAgent("resume", parked=True)
    await agent.start(here.context.tasks)
    agent.reply(SESSION_RESUME, {})
    here.context.agents.append(agent)
    return agent


# --- where they come from -------------------------------------------------------------------------


@pytest.mark.hazard("P12.3")
async def test_the_process_that_waits_for_a_session_is_taken_first_and_holds_the_lock(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        here.pool.ready = agent = await pooled(here)
        await here.turn(agent)
        assert here.session.link is agent
        assert (agent.lock, len(here.context.agents)) == (here.lease, 1)
        agent.dies()
        await turn_of(here, 2)


async def test_the_process_in_which_the_session_was_opened_is_taken_before_any_other(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        agent, here.pool.ready = await pooled(here), await pooled(here)
        here.session.offer(agent)
        await here.turn(agent)
        assert here.session.link is agent
        assert agent.lock == here.lease
        assert here.pool.ready is not None


@pytest.mark.hazard("P12")
async def test_a_process_that_ended_with_the_session_is_dead_and_costs_no_try_of_the_next(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, fails_to_start, fails_to_start, resumes) as here:
        agent = await pooled(here)
        here.session.offer(agent)
        agent.exits()
        await turn_of(here, 4)
        assert agent.dead.is_set()


@pytest.mark.hazard("P12")
async def test_a_process_that_is_being_started_for_nobody_is_waited_for_and_taken(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as here:
        here.pool.warming = anyio.Event()
        here.session.wake()
        await quiet()
        request_id = here.prompt()
        here.pool.warm = agent = await pooled(here)
        here.pool.warming.set()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(request_id) == DONE
        assert here.session.link is agent
        assert (agent.lock, agent.epoch) == (here.lease, 1)
        assert here.context.agents[0].heard == []  # the one that it was waited for instead


async def test_if_such_a_process_does_not_come_another_one_is_started(tmp_path: Path) -> None:
    async with living(tmp_path) as here:
        here.pool.warming = anyio.Event()
        here.pool.warming.set()
        await turn_of(here, 1)


async def test_a_session_that_waits_for_such_a_process_can_be_closed(tmp_path: Path) -> None:
    async with living(tmp_path) as here:
        here.pool.warming = anyio.Event()
        here.session.wake()
        await quiet()
        here.session.close()
        await here.session.closed.wait()
        assert [agent.heard for agent in here.context.agents] == [[]]


@pytest.mark.hazard("P3")
async def test_a_process_that_ended_while_it_waited_is_no_process(tmp_path: Path) -> None:
    async with living(tmp_path) as here:
        here.pool.ready = agent = await pooled(here)
        agent.dies(Exit(1, None))
        await turn_of(here, 2)


def refuses_to_begin(agent: PlayedAgent) -> None:
    agent.reply("initialize", BUSY)


def dies_at_once(agent: PlayedAgent) -> None:
    agent.ready, agent.connection.initialized = False, {}
    agent.on_sent = lambda: agent.dies(Exit(2, None))


def finds_no_descriptor(agent: PlayedAgent) -> None:
    agent.unspawnable = OSError(24, "too many files", "/secret")


@pytest.mark.hazard("P6", "Q9")
@pytest.mark.parametrize(
    ("fails", "why"),
    [
        (refuses_to_begin, "agent answered initialize with an error: busy"),
        (dies_at_once, "agent ended before it answered initialize (exit code 2)"),
        (finds_no_descriptor, "the agent could not be made ready: the system refused"),
    ],
)
async def test_a_process_that_does_not_come_to_begin_is_killed_and_said_not_to_be_ready(
    tmp_path: Path, fails: Prepare, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with living(tmp_path, fails, fails, fails, resumes) as here:
        error = await here.answered(here.prompt())
        assert error["message"] == why
        logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert bool(logged) is (fails is finds_no_descriptor)
        caplog.clear()
        await turn_of(here, 4)
        assert all(agent.gone or not agent.started for agent in here.context.agents[:3])


# --- how they end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [{}, BUSY])
async def test_an_agent_that_can_is_asked_to_close_its_session_and_then_ends_by_itself(
    tmp_path: Path, result: Any
) -> None:
    async with living(tmp_path, first=first("close")) as here:
        agent = await here.agent()
        agent.reply(SESSION_CLOSE, result)
        here.session.close()
        await here.session.closed.wait()
        assert agent.params(SESSION_CLOSE) == [{"sessionId": "0"}]
        assert agent.connection.exit == Exit(0, None)


async def test_what_an_agent_is_asked_behind_the_close_takes_nothing_of_its_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "AGENT_PATIENCE", LONG)
    async with living(tmp_path, first=first("close"), close_grace=1.0) as here:
        agent = await here.agent()
        agent.reply(SESSION_CLOSE, {})
        agent.reply(SESSION_DELETE, {})

        async def deletes() -> None:
            await agent.ask(SESSION_DELETE, {"sessionId": "0"})

        agent.requests.last = deletes
        here.session.close()
        await here.session.closed.wait()
        assert agent.heard[-2:] == [SESSION_CLOSE, SESSION_DELETE]
        assert agent.connection.exit == Exit(0, None)


async def test_an_agent_that_can_not_close_sessions_just_ends(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        here.session.close()
        await here.session.closed.wait()
        agent = await here.agent()
        assert (agent.heard, agent.connection.exit) == (["initialize"], Exit(0, None))


@pytest.mark.hazard("P2")
@pytest.mark.parametrize(("grace", "how"), [(0.0, KILLED), (LONG, Exit(0, None))])
async def test_an_agent_that_does_not_answer_the_close_may_end_by_itself_in_the_grace(
    tmp_path: Path, grace: float, how: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "CLOSE_ANSWER", 0.01)
    async with living(tmp_path, first=first("close"), close_grace=grace) as here:
        here.session.close()
        await here.session.closed.wait()
        agent = await here.agent()
        assert agent.heard[-2:] == [SESSION_CLOSE, "$/cancel_request"]
        assert agent.connection.exit == how


@pytest.mark.hazard("P1")
async def test_an_agent_that_does_not_end_by_itself_is_killed(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        agent.stays = True
        here.session.close()
        await here.session.closed.wait()
        assert agent.connection.exit == KILLED


async def test_an_agent_that_dies_of_the_close_is_dead(tmp_path: Path) -> None:
    async with living(tmp_path, first=first("close")) as here:
        agent = await here.agent()
        here.session.close()
        await agent.asked(SESSION_CLOSE)
        agent.dies(Exit(9, None))
        await here.session.closed.wait()
