"""The processes of one session are started, closed and killed; each time an event says the end."""

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from acp_bridge.agents.link import Link, Owner
from acp_bridge.agents.outcome import Exit, StartFailed
from acp_bridge.machine import events as ev
from acp_bridge.protocol import SESSION_CLOSE
from acp_bridge.runtime import waits
from acp_bridge.session.process.agent_processes import AgentProcesses
from tests.agents.scripted_process import Listener
from tests.session.played_agent import BUSY, KILLED, PlayedAgent
from tests.session.played_core import PlayedCore
from tests.session.waiting import quiet, until

LEASE = 42
LONG = 3600.0


class Told(Listener):
    """The owner: feeds the end of a process as `FromAgent` does."""

    def __init__(self, feed: Callable[[ev.Event], None]) -> None:
        super().__init__()
        self._feed = feed

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        self._feed(ev.AgentExited(link.epoch, exit_))

    def on_dead(self, link: Link) -> None:
        self._feed(ev.TreeDead(link.epoch))


class Stage(PlayedCore):
    """A session's processes, and the source that they come from."""

    def __init__(self, tasks: TaskGroup) -> None:
        super().__init__(tasks)
        self.tasks = tasks
        self.owner = Told(self.feed)
        self.warm: Link | None = None
        #: set when the process that is being started for nobody yet, `warm`, is there.
        self.warming: anyio.Event | None = None
        self.processes = AgentProcesses(self, self, LEASE, self)
        self.processes.owner = self.owner
        #: what the next links are, in order.
        self.agents: list[PlayedAgent] = []
        self.made: list[tuple[Owner, str]] = []

    def new_link(self, owner: Owner, name: str) -> Link:
        self.made.append((owner, name))
        agent = self.agents.pop(0)
        agent.owner = owner
        return agent

    def take_ready(self) -> Link | None:
        warm, self.warm = self.warm, None
        return warm

    async def take_warming(self) -> Link | None:
        if self.warming is None:
            return None
        await self.warming.wait()
        warm, self.warm = self.warm, None
        return warm

    def comes(self, *capabilities: str) -> PlayedAgent:
        """Return an agent that the next start gets."""
        self.agents.append(PlayedAgent(*capabilities))
        return self.agents[-1]

    async def runs(self, epoch: int, *capabilities: str) -> PlayedAgent:
        """Return a process that was started as this epoch."""
        agent = self.comes(*capabilities)
        await self.processes.start(epoch, "agent")
        assert self.fed == [ev.Started(epoch)]
        self.fed.clear()
        return agent

    async def both(self, *works: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run these side by side."""
        async with anyio.create_task_group() as tasks:
            for work in works:
                tasks.start_soon(work)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            yield Stage(tasks)


# --- start ----------------------------------------------------------------------------------------


@pytest.mark.hazard("P12")
async def test_a_process_is_started_with_the_lock_and_known_by_its_epoch(stage: Stage) -> None:
    agent = stage.comes()
    await stage.processes.start(4, "abc#4")
    assert stage.fed == [ev.Started(4)]
    assert stage.made == [(stage.owner, "abc#4")]
    assert (agent.epoch, agent.lock) == (4, LEASE)
    assert stage.processes.link(4) is stage.processes.get(4) is agent
    assert agent.heard == ["initialize"]


async def test_it_is_known_while_it_starts(stage: Stage) -> None:
    agent = stage.comes()
    agent.ready = False
    stage.spawn(stage.processes.start, 1, "agent")
    asked = await agent.asked("initialize")
    assert stage.processes.get(1) is agent
    assert stage.fed == []
    agent.answer(asked, {})
    await until(lambda: stage.fed)
    assert stage.fed == [ev.Started(1)]


@pytest.mark.hazard("P12")
async def test_the_process_that_waits_for_a_session_is_taken_first(stage: Stage) -> None:
    agent = PlayedAgent(parked=True)
    stage.warm = agent
    await stage.processes.start(2, "agent")
    assert stage.fed == [ev.Started(2)]
    assert stage.made == []
    assert (agent.epoch, agent.lock, agent.owner) == (2, LEASE, stage.owner)
    assert stage.processes.link(2) is agent
    stage.comes()
    await stage.processes.start(3, "agent")
    assert len(stage.made) == 1


@pytest.mark.hazard("P12")
async def test_a_process_that_is_being_started_for_nobody_is_waited_for_and_taken(
    stage: Stage,
) -> None:
    agent, own = PlayedAgent(parked=True), stage.comes()
    stage.warm, stage.warming = None, anyio.Event()
    stage.spawn(stage.processes.start, 2, "agent")
    await quiet()
    assert stage.fed == []
    stage.warm = agent
    stage.warming.set()
    await until(lambda: stage.fed)
    assert stage.fed == [ev.Started(2)]
    assert (agent.epoch, agent.lock, agent.owner) == (2, LEASE, stage.owner)
    assert stage.processes.link(2) is agent
    assert own.heard == []


async def test_a_start_that_waits_for_such_a_process_can_be_killed(stage: Stage) -> None:
    own = stage.comes()
    stage.warming = anyio.Event()
    stage.spawn(stage.processes.start, 2, "agent")
    await quiet()
    await stage.processes.kill(2)
    assert stage.fed == [ev.TreeDead(2)]
    assert own.heard == []


async def test_if_such_a_process_does_not_come_another_one_is_started(stage: Stage) -> None:
    own = stage.comes()
    stage.warming = anyio.Event()
    stage.warming.set()
    await stage.processes.start(2, "agent")
    assert stage.fed == [ev.Started(2)]
    assert stage.processes.link(2) is own


async def test_the_process_that_made_the_session_is_the_first_epoch(stage: Stage) -> None:
    agent = PlayedAgent()
    stage.processes.add(agent, 1)
    assert (agent.epoch, stage.processes.link(1)) == (1, agent)
    await stage.processes.kill(1)  # it has started long ago: nothing is waited for
    assert stage.fed == [ev.TreeDead(1)]


@pytest.mark.hazard("P3")
async def test_a_process_that_ended_while_it_waited_is_said_to_have_ended(stage: Stage) -> None:
    agent = PlayedAgent(parked=True)
    await agent.start(stage.tasks)
    agent.dies(Exit(1, None))
    stage.warm = agent
    await stage.processes.start(2, "agent")
    assert stage.fed[:2] == [ev.AgentExited(2, Exit(1, None)), ev.TreeDead(2)]


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (
            StartFailed("command not found: x", permanent=True),
            ev.StartFailed(1, True, "command not found: x"),
        ),
        (
            StartFailed("cannot be started now: x", permanent=False),
            ev.StartFailed(1, False, "cannot be started now: x"),
        ),
        (OSError(24, "too many files", "/secret"), ev.StartFailed(1, False, "the system refused")),
    ],
)
@pytest.mark.hazard("P6")
async def test_a_process_that_can_not_be_spawned_is_a_start_that_failed(
    stage: Stage, error: Exception, event: ev.Event, caplog: pytest.LogCaptureFixture
) -> None:
    agent = stage.comes()
    agent.unspawnable = error
    await stage.processes.start(1, "agent")
    assert stage.fed == [event]
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert bool(logged) is isinstance(error, OSError)


async def test_a_process_that_refuses_initialize_is_killed_and_its_start_has_failed(
    stage: Stage,
) -> None:
    agent = stage.comes()
    agent.reply("initialize", BUSY)
    await stage.processes.start(1, "agent")
    assert stage.fed == [
        ev.AgentExited(1, KILLED),
        ev.TreeDead(1),
        ev.StartFailed(1, False, "busy"),
    ]


async def test_a_process_that_dies_before_it_answers_initialize_has_not_started(
    stage: Stage,
) -> None:
    agent = stage.comes()
    agent.ready = False
    stage.spawn(stage.processes.start, 1, "agent")
    await agent.asked("initialize")
    agent.dies(Exit(2, None))
    await until(lambda: len(stage.fed) == 3)
    how = "the agent's process has ended (exit code 2)"
    assert stage.fed == [
        ev.AgentExited(1, Exit(2, None)),
        ev.TreeDead(1),
        ev.StartFailed(1, False, how),
    ]


# --- kill -----------------------------------------------------------------------------------------


@pytest.mark.hazard("C8")
async def test_a_process_is_killed_and_its_death_is_told_once(stage: Stage) -> None:
    agent = await stage.runs(1)
    await stage.both(lambda: stage.processes.kill(1), lambda: stage.processes.kill(1))
    assert stage.fed == [ev.AgentExited(1, KILLED), ev.TreeDead(1)]
    assert agent.dead.is_set()


async def test_nothing_is_said_of_a_tree_that_outlives_the_kill(stage: Stage) -> None:
    agent = await stage.runs(1)
    agent.immortal = True
    await stage.processes.kill(1)
    assert stage.fed == []
    agent.dies()
    assert stage.fed == [ev.AgentExited(1, KILLED), ev.TreeDead(1)]


async def test_a_start_that_is_killed_while_the_process_is_spawned_is_dead_when_that_is_over(
    stage: Stage,
) -> None:
    agent = stage.comes()
    agent.gate = anyio.Event()
    stage.spawn(stage.processes.start, 1, "agent")
    stage.spawn(stage.processes.kill, 1)
    await quiet()
    assert stage.fed == []
    agent.gate.set()
    await until(lambda: stage.fed)
    assert stage.fed == [ev.TreeDead(1)]
    assert not agent.started


async def test_a_start_that_is_killed_while_the_process_is_initialized_is_told_by_its_death(
    stage: Stage,
) -> None:
    agent = stage.comes()
    agent.ready = False
    stage.spawn(stage.processes.start, 1, "agent")
    asked = await agent.asked("initialize")
    await stage.processes.kill(1)
    agent.answer(asked, {})  # too late
    await anyio.lowlevel.checkpoint()
    assert stage.fed == [ev.AgentExited(1, KILLED), ev.TreeDead(1)]


async def test_a_start_that_has_failed_by_itself_when_it_is_killed_is_dead(stage: Stage) -> None:
    agent = stage.comes()
    agent.unspawnable = StartFailed("no", permanent=False)
    await stage.processes.start(1, "agent")
    await stage.processes.kill(1)
    assert stage.fed == [ev.StartFailed(1, False, "no"), ev.TreeDead(1)]


async def test_an_epoch_that_was_released_is_known_no_more_and_killed_no_more(
    stage: Stage,
) -> None:
    agent = await stage.runs(1)
    assert stage.processes.forget(1) is agent
    assert stage.processes.forget(1) is None
    assert stage.processes.get(1) is None
    with pytest.raises(KeyError):
        stage.processes.link(1)
    await stage.processes.kill(1)
    assert stage.fed == []
    assert not agent.gone


# --- close ----------------------------------------------------------------------------------------

ENDED = [ev.AgentExited(1, Exit(0, None)), ev.TreeDead(1)]


@pytest.mark.parametrize("result", [{}, BUSY])
async def test_an_agent_that_can_is_asked_to_close_its_session_and_then_ends_by_itself(
    stage: Stage, result: Any
) -> None:
    agent = await stage.runs(1, "close")
    agent.agent_session_id = "0"
    agent.reply(SESSION_CLOSE, result)
    await stage.processes.close(1, LONG)
    assert agent.params(SESSION_CLOSE) == [{"sessionId": "0"}]
    assert stage.fed == ENDED


async def test_an_agent_that_can_not_close_sessions_just_ends(stage: Stage) -> None:
    agent = await stage.runs(1)
    await stage.processes.close(1, LONG)
    assert agent.heard == ["initialize"]
    assert stage.fed == ENDED


@pytest.mark.hazard("P2")
async def test_an_agent_that_does_not_answer_the_close_is_killed_after_the_grace(
    stage: Stage,
) -> None:
    agent = await stage.runs(1, "close")
    await stage.processes.close(1, 0)
    assert agent.heard[-2:] == [SESSION_CLOSE, "$/cancel_request"]
    assert stage.fed == [ev.AgentExited(1, KILLED), ev.TreeDead(1)]


@pytest.mark.hazard("P2")
async def test_an_agent_that_does_not_answer_the_close_may_end_by_itself_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "CLOSE_ANSWER", 0.01)
    await stage.runs(1, "close")
    await stage.processes.close(1, LONG)
    assert stage.fed == ENDED


@pytest.mark.hazard("P1")
async def test_an_agent_that_does_not_end_by_itself_is_killed(stage: Stage) -> None:
    agent = await stage.runs(1)
    agent.stays = True
    await stage.processes.close(1, LONG)
    assert stage.fed == [ev.AgentExited(1, KILLED), ev.TreeDead(1)]


async def test_an_agent_that_dies_of_the_close_is_dead(stage: Stage) -> None:
    agent = await stage.runs(1, "close")
    stage.spawn(stage.processes.close, 1, LONG)
    await agent.asked(SESSION_CLOSE)
    agent.dies(Exit(9, None))
    await anyio.lowlevel.checkpoint()
    assert stage.fed == [ev.AgentExited(1, Exit(9, None)), ev.TreeDead(1)]


async def test_an_agent_that_was_dead_and_released_before_it_could_be_closed_is_let_be(
    stage: Stage,
) -> None:
    agent = await stage.runs(1, "close")
    agent.dies()
    stage.processes.forget(1)
    await stage.processes.close(1, LONG)
    assert agent.heard == ["initialize"]


# --- the end of the bridge ------------------------------------------------------------------------


async def test_a_start_whose_task_is_cancelled_holds_up_no_kill(
    stage: Stage,
) -> None:
    agent = stage.comes()
    agent.ready = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.processes.start, 1, "agent")
        await agent.asked("initialize")
        tasks.cancel_scope.cancel()
    assert stage.fed == [ev.AgentExited(1, KILLED), ev.TreeDead(1)]
    await stage.processes.kill(1)
    assert len(stage.fed) == 2
