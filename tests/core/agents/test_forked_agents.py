"""Agents that a parent has forked: what they hold, how they end, and what the parent's end does."""

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from acp_bridge.core.agents.deadline import Deadline, now
from acp_bridge.core.agents.origin import is_from_agent
from acp_bridge.core.agents.orphans import ORPHANS
from acp_bridge.core.agents.parent import AgentParent, can_fork
from acp_bridge.core.agents.process import AgentProcess, Exit, StartFailed
from acp_bridge.core.runtime import waits
from tests.core.agents.guard_support import open_files, parent_of, read_line, session_of, zombies
from tests.core.agents.parent_support import (
    AGENT,
    BUILT_IN_AGENT,
    BUILT_IN_PARENT,
    SLOW,
    Family,
    answers,
    family,
    first_start,
    forked,
    new_parent,
    parent_code,
    shared,
    waiting_guard,
)
from tests.support.processes import command_line, gone, marked

pytestmark = pytest.mark.process

#: agents that say two random numbers and wait for the end of stdin
RANDOM = """
import random
parent.load = lambda *_: setattr(parent, "own", random.Random())
def run(*_, **__):
    print(random.random(), parent.own.random(), random.getstate()[1][:2], file=out, flush=True)
    sys.stdin.read()
out = open(1, "w", closefd=False)
parent.agent_process.run = run
"""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Family]:
    """The built-in agent's parent, for tests that leave it alone: to load takes it seconds."""
    async with family(tmp_path_factory.mktemp("family"), BUILT_IN_PARENT) as world:
        yield world


def proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def signals_of(pid: int) -> list[str]:
    """The masks of blocked, ignored and caught signals."""
    return [
        line
        for line in proc(pid, "status").splitlines()
        if line.startswith(("SigBlk", "SigIgn", "SigCgt"))
    ]


# F1: what a forked process holds


@pytest.mark.hazard("F1.1", "F1.3")
async def test_a_forked_agent_and_its_guard_hold_nothing_but_their_own(
    world: Family, on_disk: Path
) -> None:
    with (on_disk / "lock").open("w") as lock:
        one = await forked(world, lock_fd=lock.fileno())
        two = await forked(world)
        guards = parent_of(one.pid), parent_of(two.pid)
        assert str(on_disk / "lock") in shared(guards[0])
        known = {world.parent.pid, *guards, one.pid, two.pid}
        held = {pid: shared(pid) for pid in known if pid}
        assert sorted(fd for fd in open_files(one.pid) if fd < 3) == [0, 1, 2]
        for pid, names in held.items():
            for other, others in held.items():
                assert pid == other or not names & others, command_line(pid)
        assert str(on_disk / "lock") not in held[one.pid] | held[guards[1]]


@pytest.mark.hazard("F1")
async def test_a_guard_that_waits_for_an_agent_holds_one_socket(tmp_path: Path) -> None:
    async with family(tmp_path) as world:
        process = await forked(world)
        parent, guard = await world.until_ready(), parent_of(process.pid)
        waiting = await waiting_guard(parent, guard)
        held = shared(waiting)
        assert not held & (shared(parent) | shared(guard) | shared(process.pid))


@pytest.mark.hazard("F1.2")
async def test_a_forked_agent_and_its_guard_have_sessions_of_their_own(world: Family) -> None:
    process = await forked(world)
    guard = parent_of(process.pid)
    assert session_of(process.pid) == process.pid
    assert session_of(guard) == guard
    assert session_of(await world.until_ready()) != session_of(os.getpid())


@pytest.mark.hazard("F1.2")
async def test_a_forked_agent_handles_signals_as_one_that_was_executed(world: Family) -> None:
    process = await forked(world)
    executed = await AgentProcess.start(world.tasks, BUILT_IN_AGENT)
    assert await answers(executed)
    assert signals_of(process.pid) == signals_of(executed.pid)
    pair = parent_of(process.pid), parent_of(executed.pid)
    assert signals_of(pair[0])[:2] == signals_of(pair[1])[:2]


@pytest.mark.hazard("F1.2")
async def test_no_forked_agent_has_the_random_state_of_another(tmp_path: Path) -> None:
    async with family(tmp_path, parent_code(RANDOM)) as world:
        await world.until_ready()
        said = [(await read_line(await world.agent())).split(maxsplit=2) for _ in range(2)]
        for one, two in zip(*said, strict=True):
            assert one != two


@pytest.mark.hazard("K7.2")
async def test_a_forked_agent_shows_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACP_BRIDGE_DEBUGGABLE", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-0123456789")
    async with family(tmp_path) as world:
        process = await forked(world)
        for pid in (process.pid, parent_of(process.pid), await world.until_ready()):
            assert "sk-made-up" not in proc(pid, "environ")


async def test_a_forked_agent_has_the_limit_of_open_files_that_it_is_given(world: Family) -> None:
    process = await forked(world, most_files=123)
    assert "Max open files            123 " in proc(process.pid, "limits")


@pytest.mark.hazard("V6.3")
async def test_a_forked_agent_its_guard_and_their_parent_are_known_for_good(world: Family) -> None:
    """Whoever gets into one of them, while it starts say, can join no bridge."""
    process = await forked(world)
    guard = parent_of(process.pid)
    assert [is_from_agent(pid) for pid in (process.pid, guard, parent_of(guard))] == [True] * 3


@pytest.mark.hazard("V6.3")
async def test_where_there_is_no_mark_a_forked_agent_is_known_by_the_parent_of_its_guard(
    world: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below the parent of an acp-bridge without a mark."""
    process = await forked(world)
    monkeypatch.setattr(resource, "prlimit", lambda *_: (resource.RLIM_INFINITY,) * 2)
    assert is_from_agent(process.pid)


# ends, as those of other agents


@pytest.mark.hazard("F1", "P1.4", "P12")
async def test_a_killed_guard_is_noticed_and_its_lock_is_free(
    world: Family, tmp_path: Path
) -> None:
    with (tmp_path / "lock").open("w") as lock:
        process = await forked(world, lock_fd=lock.fileno())
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.close()
        os.kill(parent_of(process.pid), signal.SIGKILL)
        with anyio.fail_after(5):
            assert await process.wait_exit() == Exit(None, signal.SIGKILL)
            assert await process.wait_dead()
        with (tmp_path / "lock").open("w") as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.hazard("F3.2")
async def test_a_kill_reaches_one_forked_tree_and_no_other(world: Family) -> None:
    one, two = await forked(world), await forked(world)
    guard = parent_of(one.pid)
    assert await one.kill()
    for pid in (one.pid, guard):
        await gone(pid)
    assert await answers(two)
    assert await answers(await world.agent())


@pytest.mark.hazard("F3", "P1.4")
async def test_a_forked_guard_that_was_stopped_kills_its_tree(world: Family) -> None:
    process = await forked(world)
    os.kill(parent_of(process.pid), signal.SIGSTOP)
    with anyio.fail_after(5):
        assert await process.kill()


@pytest.mark.hazard("F3", "P1")
async def test_the_guard_of_a_forked_agent_kills_its_tree_at_the_deadline(world: Family) -> None:
    deadline, parent = Deadline(), await world.until_ready()
    deadline.set(now() + 1000)
    process = await AgentProcess.start(world.tasks, AGENT, world.parent, deadline=deadline)
    assert parent_of(parent_of(process.pid)) == parent
    assert await answers(process)
    deadline.set(now() - 1)
    with anyio.fail_after(5):
        assert await process.wait_dead()
    assert await answers(await world.agent())


async def test_an_agent_that_ends_by_itself_is_reported_with_its_code(world: Family) -> None:
    process = await forked(world)
    with anyio.fail_after(SLOW):
        await process.close(10)
    assert await process.wait_exit() == Exit(0, None)


# F2: the parent's death


@pytest.mark.hazard("F2.1", "F2.4")
async def test_the_parents_death_ends_no_agent_and_another_parent_comes(tmp_path: Path) -> None:
    async with family(tmp_path) as world:
        process = await forked(world)
        first = await world.until_ready()
        os.kill(first, signal.SIGKILL)
        await gone(first)
        assert await answers(process)
        assert await answers(await world.agent())  # while there is no other parent
        assert await world.until_ready() != first
        assert await answers(await forked(world))
        guard = parent_of(process.pid)
        assert await process.kill()
        await gone(guard)
    with anyio.fail_after(SLOW):
        while zombies():  # a thread collects a guard whose owner waits no more
            await anyio.lowlevel.checkpoint()


@pytest.mark.hazard("F2")
async def test_a_waiting_guard_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    async with family(tmp_path) as world:
        parent = await world.until_ready()
        waited = await waiting_guard(parent)
        os.kill(waited, signal.SIGKILL)
        await gone(waited)
        another = await waiting_guard(parent)
        assert parent_of((await forked(world)).pid) == another
        assert await world.until_ready() == parent


@pytest.mark.hazard("F2")
async def test_a_waiting_guard_ends_with_the_parent_even_if_it_was_stopped(tmp_path: Path) -> None:
    async with family(tmp_path) as world:
        parent = await world.until_ready()
        waited = await waiting_guard(parent)
        os.kill(waited, signal.SIGSTOP)
        os.kill(parent, signal.SIGKILL)
        await gone(waited)


@pytest.mark.hazard("F2.1", "P1")
async def test_what_waited_at_a_parent_that_has_ended_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, none_left = [1, 2], anyio.Event()

    def kill() -> bool:
        if left:
            left.pop()
            return True
        anyio.from_thread.run_sync(none_left.set)
        return False

    monkeypatch.setattr(ORPHANS, "kill", kill)
    async with new_parent(tmp_path, ["true"]) as world:
        with anyio.fail_after(SLOW):
            await first_start(world.parent)
            await none_left.wait()


@pytest.mark.hazard("F2.4")
async def test_a_parent_that_hangs_is_killed_and_the_agent_executed(tmp_path: Path) -> None:
    async with family(tmp_path) as world:
        first = await world.until_ready()
        os.kill(first, signal.SIGSTOP)
        with anyio.fail_after(SLOW):
            process = await world.agent()
        assert await answers(process)
        await gone(first)
        assert len([pid for pid in marked(world.mark) if pid == parent_of(process.pid)]) == 1


@pytest.mark.hazard("F2.4")
async def test_nobody_waits_for_a_parent_that_loads(tmp_path: Path) -> None:
    never = parent_code("import time; parent.load = lambda *_: time.sleep(1000)")
    async with family(tmp_path, never) as world:
        with anyio.fail_after(SLOW):
            assert await answers(await world.agent())
        assert not world.parent.ready


@pytest.mark.hazard("F2.2")
@pytest.mark.parametrize("hangs_in", ["load_agent", "load"])
async def test_the_first_start_and_a_restart_wait_for_no_parent_that_hangs(
    hangs_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PARENT_HANGS", 0.05)
    monkeypatch.setattr(waits, "PARENT_PAUSE", 1000)
    stops = f"""
parent.load_agent = lambda *_: ["a model"]
parent.{hangs_in} = lambda *_: os.kill(os.getpid(), {signal.SIGSTOP:d})
"""
    async with family(tmp_path, parent_code(stops)) as world:
        with anyio.fail_after(SLOW):
            process = await AgentProcess.start(world.tasks, AGENT, world.parent, patient=True)
            assert await answers(process)
        assert not world.parent.ready
        assert not process.light


@pytest.mark.hazard("F2", "F4.1")
async def test_the_first_agent_is_light_and_those_after_it_have_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = parent_code("""
import signal
parent.load_agent = lambda *_: ["a model"]
parent.load = lambda *_: signal.sigwait([signal.SIGUSR1])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
""")
    monkeypatch.setattr(waits, "PARENT_HANGS", SLOW)
    async with new_parent(tmp_path, loads) as world:
        with anyio.fail_after(SLOW):
            first = await world.agent()
            assert first.light
            assert parent_of(parent_of(first.pid)) == world.parent.pid
            assert await answers(first)
            executed = await world.agent()
            assert not executed.light
            assert parent_of(parent_of(executed.pid)) == os.getpid()
        assert world.parent.pid is not None
        async with anyio.create_task_group() as tasks:
            restarted: list[AgentProcess] = []

            async def restart() -> None:
                restarted.append(
                    await AgentProcess.start(world.tasks, AGENT, world.parent, patient=True)
                )

            tasks.start_soon(restart)
            await anyio.wait_all_tasks_blocked()
            os.kill(world.parent.pid, signal.SIGUSR1)
        assert not restarted[0].light
        assert parent_of(parent_of(restarted[0].pid)) == world.parent.pid
        assert await answers(restarted[0])
        assert await answers(first)


@pytest.mark.hazard("F2")
async def test_a_parent_that_dies_as_it_forks_costs_nothing(tmp_path: Path) -> None:
    dies = parent_code("parent.Parent._fork = lambda *_: os._exit(1)")
    async with family(tmp_path, dies) as world:
        await world.until_ready()
        with anyio.fail_after(SLOW):
            assert await answers(await world.agent())


@pytest.mark.hazard("F2.4")
async def test_a_parent_that_can_not_fork_is_kept_and_the_agent_executed(tmp_path: Path) -> None:
    refuses = parent_code(
        "def refuse(*_): raise OSError\nparent.os.fork, fork = refuse, parent.os.fork"
    )
    async with family(tmp_path, refuses) as world:
        first = await world.until_ready()
        with anyio.fail_after(SLOW):
            assert await answers(await world.agent())
        assert world.parent.pid == first


async def test_a_parent_with_a_thread_forks_nothing_and_is_not_tried_again(tmp_path: Path) -> None:
    thread = "import threading, time; sleep = threading.Thread(target=time.sleep, args=(1000,))\n"
    async with anyio.create_task_group() as tasks:
        command = parent_code(
            f"{thread}sleep.daemon = True; parent.load = lambda *_: sleep.start()"
        )
        parent = AgentParent(command)
        tasks.start_soon(first_start, parent)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(SLOW):
            await parent.run()
        assert not parent.ready
        assert await answers(await AgentProcess.start(tasks, AGENT, parent))
        tasks.cancel_scope.cancel()


async def test_a_parent_that_never_gets_ready_is_tried_three_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(waits, "PARENT_PAUSE", 0)
    trace = tmp_path / "trace"
    parent = AgentParent(["sh", "-c", f"echo >>{trace}"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first_start, parent)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(SLOW):
            await parent.run()
    assert trace.read_text() == "\n" * 3


def test_only_linux_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_fork()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not can_fork()


# P1: the end of the bridge


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("begun", ["serves", "loads"])
async def test_the_parent_ends_with_the_bridge(begun: str, tmp_path: Path) -> None:
    serve = "parent.Parent.serve"
    what = f"{serve} = lambda p, said, was={serve}: (os.write(1, b'.'), was(p, said))"
    if begun == "loads":
        what = "import time; parent.load = lambda *_: (os.write(1, b'.'), time.sleep(1000))"
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    readable, writable = os.pipe()
    command = [*parent_code(what), str(other.fileno())]
    process = start(command, other.fileno(), writable)
    os.close(writable)
    other.close()
    with anyio.fail_after(SLOW):
        await anyio.wait_readable(readable)
    os.close(readable)
    assert process.poll() is None
    ours.close()
    try:
        await gone(process.pid)
    finally:
        process.kill()
        process.wait()


def start(command: list[str], channel: int, stdout: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, pass_fds=[channel], stdout=stdout)


@pytest.mark.hazard("F1", "P1")
async def test_a_parent_that_is_stopped_once_it_has_forked_hides_no_agents_end(
    tmp_path: Path,
) -> None:
    stops = parent_code(f"""
send = parent.socket.send_fds
def send_and_stop(channel, data, fds):
    send(channel, data, fds)
    if data[0].isdigit():  # the guard's pid, for the bridge
        os.kill(os.getpid(), {signal.SIGSTOP:d})
parent.socket.send_fds = send_and_stop
""")
    async with family(tmp_path, stops) as world:
        process = await forked(world)
        assert await process.kill()


@pytest.mark.hazard("P1")
async def test_what_is_stopped_as_it_leaves_its_guard_is_dead_when_the_start_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "SPAWN", 0.5)
    stops = parent_code(f"""
parent.guard.leave_guard = lambda *_: os.kill(os.getpid(), {signal.SIGSTOP:d})
""")
    async with family(tmp_path, stops) as world:
        parent = await world.until_ready()
        with anyio.fail_after(waits.KILL), pytest.raises(StartFailed, match="in time"):
            await world.agent()
        left = {pid: parent_of(pid) for pid in marked(world.mark) if pid != parent}
        assert set(left.values()) <= {parent}  # a guard that waits
