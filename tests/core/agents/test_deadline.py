"""The deadline at which a guard kills its tree by itself."""

import os
import signal
import socket
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.deadline import Deadline, now
from acp_bridge.core.agents.process import AgentProcess, Exit
from tests.core.agents.guard_support import (
    failure_of,
    open_files,
    parent_of,
    read_line,
    stand_in,
    started,
)
from tests.core.agents.test_guard import TREES, killable_bridge
from tests.support.processes import gone, marked
from tests.support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.hazard("P1")]

#: seconds from now that a deadline may be ahead, if the test is to see it pass
SOON = 0.2
#: that nothing waits for
LATER = 1000.0
KILLED = Exit(None, signal.SIGKILL)


async def dead(process: AgentProcess) -> Exit:
    """Wait until the tree is dead by its guard alone; returns the main process' end."""
    with anyio.fail_after(10):
        assert await process.wait_dead()
    return await process.wait_exit()


async def heard(process: AgentProcess) -> None:
    """Wait until the guard has read all that it was sent: SIGTERM for the agent came behind it."""
    process._tree.terminate()
    assert await read_line(process) == "SIGTERM"


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("ahead", [-LATER, SOON], ids=["it has passed", "it passes"])
async def test_at_the_deadline_the_whole_tree_dies(name: str, ahead: float) -> None:
    deadline = Deadline()
    async with started(stand_in(name), deadline=deadline) as (process, mark):
        await read_line(process)
        deadline.set(now() + ahead)
        assert await dead(process) == KILLED
        assert marked(mark) == []


@pytest.mark.parametrize("ahead", [LATER, None], ids=["a later one", "none"])
async def test_the_last_deadline_counts(ahead: float | None) -> None:
    deadline = Deadline()
    async with started(stand_in("ends_with_its_stdin"), deadline=deadline) as (process, _):
        await read_line(process)
        its_guard = parent_of(process.pid)
        os.kill(its_guard, signal.SIGSTOP)  # so that it reads both at once
        deadline.set(now() - 1)
        deadline.set(None if ahead is None else now() + ahead)
        await heard(process)
        os.close(process.take_pipes()[0])
        assert await dead(process) == Exit(3, None)


async def test_a_guard_that_was_stopped_beyond_the_deadline_reads_nothing_more() -> None:
    deadline = Deadline()
    async with started(stand_in("ends_with_its_stdin"), deadline=deadline) as (process, mark):
        await read_line(process)
        its_guard, at = parent_of(process.pid), now() + SOON
        deadline.set(at)
        await heard(process)
        os.kill(its_guard, signal.SIGSTOP)
        await until(lambda: now() > at)
        deadline.set(now() + LATER)  # too late
        os.kill(its_guard, signal.SIGCONT)
        assert await dead(process) == KILLED
        assert marked(mark) == []


async def test_a_frozen_bridge_is_not_needed(tmp_path: Path) -> None:
    async with killable_bridge(tmp_path / "lock", "crowd", SOON) as (bridge, _, mark):
        os.kill(bridge, signal.SIGSTOP)
        for pid in set(marked(mark)) - {bridge}:
            await gone(pid)
        assert marked(mark) == [bridge]


async def test_an_agent_that_is_started_after_the_deadline_never_runs(tmp_path: Path) -> None:
    deadline, trace = Deadline(), tmp_path / "trace"
    deadline.set(now() - 1)
    assert await failure_of(["touch", str(trace)], deadline=deadline)
    assert not trace.exists()


async def test_without_a_deadline_a_guard_has_no_timer_and_with_one_it_counts_sleep() -> None:
    deadline = Deadline()
    async with started(stand_in("ends_with_its_stdin"), deadline=deadline) as (process, _):
        await read_line(process)
        its_guard = parent_of(process.pid)
        assert timers(its_guard) == []
        deadline.set(now() + LATER)
        deadline.set(now() + LATER)
        await heard(process)
        [timer] = timers(its_guard)
        assert "clockid: 7\n" in timer  # CLOCK_BOOTTIME
        assert sorted(open_files(process.pid)) == [0, 1, 2]


def timers(pid: int) -> list[str]:
    """What the system says of the timers of a process."""
    found = [number for number, what in open_files(pid).items() if "timerfd" in what]
    return [Path(f"/proc/{pid}/fdinfo/{number}").read_text() for number in found]


async def test_guards_that_read_nothing_or_are_gone_hold_up_nobody() -> None:
    deadline = Deadline()
    async with (
        started(stand_in("deaf"), deadline=deadline) as (stopped, mark),
        started(stand_in("deaf"), deadline=deadline) as (ended, _),
    ):
        for process in (stopped, ended):
            await read_line(process)
        os.kill(parent_of(stopped.pid), signal.SIGSTOP)
        assert await ended.kill()
        for _ in range(2000):  # more than its socket holds
            deadline.set(now() + LATER)
        deadline.set(now() - 1)
        assert await stopped.kill()
        assert marked(mark) == []


async def test_one_that_has_ended_is_given_nothing_more() -> None:
    deadline = Deadline()
    async with started(["cat"], deadline=deadline):
        assert len(deadline._guards) == 1
    assert "not found" in str(await failure_of(["no-such-command"], deadline=deadline))
    assert len(deadline._guards) == 0


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_deadline_that_comes_in_pieces_is_read_as_one(cut: int) -> None:
    ours, its = socket.socketpair()
    with ours, its:
        its.setblocking(False)
        it = guard.Guard(its, -1)
        message = guard.LINGER + b"d1234\n" + guard.TERM + b"d77\n" + guard.LINGER
        for piece in (message[:cut], message[cut:]):
            ours.send(piece)
            assert not it.told_to_stop()
        assert (it.deadline, it.begun) == (77, b"")
        ours.send(b"d\n")
        assert not it.told_to_stop()
        assert it.deadline is None
        os.close(it.timer)


def test_where_there_is_no_timer_a_guard_looks_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "LINUX", False)
    monkeypatch.setattr(guard, "now", lambda: 5_000_000_000)
    ours, its = socket.socketpair()
    with ours, its:
        it = guard.Guard(its, -1)
        assert it.patience() is None
        for line, patience in ((b"d5003000000\n", 4), (b"d9000000000\n", 1000), (b"d1\n", 0)):
            it.take_deadline(line)
            assert it.patience() == patience
        assert it.is_overdue()
