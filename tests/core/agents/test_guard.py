"""The guard: what it starts, what it kills, and when."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.lease import Busy, acquire
from acp_bridge.core.agents.process import AgentProcess, Exit
from acp_bridge.core.runtime import waits
from tests.core.agents.guard_support import (
    FOLDER,
    HANGING_GUARD,
    exists,
    failure_of,
    marked_env,
    open_files,
    parent_of,
    read_all,
    read_line,
    session_of,
    stand_in,
    started,
)
from tests.support.processes import MARK, all_gone, gone, kill_marked, marked
from tests.support.waiting import until

pytestmark = pytest.mark.process

#: blocked, ignored, caught; as /proc names them
SIGNAL_SETS = [b"SigBlk:", b"SigIgn:", b"SigCgt:"]
TREES = ["deaf", "child", "daemon", "crowd"]


@asynccontextmanager
async def killable_bridge(
    lock: Path, name: str, *deadline: float
) -> AsyncIterator[tuple[int, int, str]]:
    """A bridge in a process of its own with an agent: (its pid, the guard's, the mark).

    The guard has a deadline so many seconds ahead, if one is given.
    """
    mark, env = marked_env({**os.environ, "PYTHONPATH": str(FOLDER.parents[2])})
    words = str(lock), name, *map(str, deadline)
    command = [sys.executable, str(FOLDER / "guard_bridge.py"), *words]
    try:
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as bridge:  # noqa: ASYNC220
            assert bridge.stdout is not None
            with anyio.fail_after(10):
                await anyio.wait_readable(bridge.stdout)
            guard = int(bridge.stdout.readline())
            try:
                yield bridge.pid, guard, mark
            finally:
                bridge.kill()
    finally:
        kill_marked(mark)


@pytest.mark.hazard("C8.1", "P1")
@pytest.mark.parametrize("name", TREES)
async def test_nothing_of_the_tree_is_alive_once_the_kill_is_reported(name: str) -> None:
    async with started(stand_in(name)) as (process, mark):
        await read_line(process)
        assert await process.kill()
        assert marked(mark) == []


@pytest.mark.hazard("P1")
async def test_a_descendant_that_forks_and_ends_again_and_again_is_caught() -> None:
    async with started(stand_in("relay")) as (process, mark):
        await read_line(process)
        assert await process.kill()
        assert marked(mark) == []


@pytest.mark.hazard("P1", "P3")
async def test_an_agent_that_ends_by_itself_is_reported_and_takes_its_tree_along() -> None:
    async with started(stand_in("daemon_then_exit")) as (process, mark):
        await read_line(process)
        os.close(process.take_pipes()[0])
        with anyio.fail_after(5):
            assert await process.wait_exit() == Exit(3, None)
            await process.wait_dead()
        assert marked(mark) == []


@pytest.mark.hazard("P1")
async def test_a_stopped_agent_is_killed() -> None:
    async with started(stand_in("child")) as (process, mark):
        await read_line(process)
        os.killpg(process.pid, signal.SIGSTOP)
        assert await process.kill()
        assert marked(mark) == []


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("helped", [False, True])
async def test_a_guard_that_was_stopped_is_continued_and_one_that_hangs_is_helped(
    name: str, helped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "GUARD", 0 if helped else 1000)
    monkeypatch.setattr(guard, "COMMAND_LINE", HANGING_GUARD if helped else guard.COMMAND_LINE)
    async with started(stand_in(name)) as (process, mark):
        await read_line(process)
        os.kill(parent_of(process.pid), signal.SIGSTOP)
        assert await process.kill()
        assert marked(mark) == []


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("given_up_after", [0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.5])
async def test_a_guard_that_hangs_when_it_has_just_started_its_agent_leaves_nothing(
    given_up_after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "SPAWN", given_up_after)
    says_nothing = HANGING_GUARD[4].replace("Guard.watch", "Guard.say").replace("self:", "*_:")
    command_line = (*HANGING_GUARD[:4], says_nothing, HANGING_GUARD[5])
    monkeypatch.setattr(guard, "COMMAND_LINE", command_line)
    mark, env = marked_env()
    monkeypatch.setenv(MARK, env[MARK])
    error = await failure_of(stand_in("daemon"))
    assert "did not start in time" in str(error)
    assert marked(mark) == []


@pytest.mark.hazard("P1.3", "P1.4")
@pytest.mark.parametrize("name", TREES)
async def test_sigkill_of_the_bridge_ends_the_tree(name: str, tmp_path: Path) -> None:
    async with killable_bridge(tmp_path / "lock", name) as (bridge, _, mark):
        os.kill(bridge, signal.SIGKILL)
        await all_gone(mark)


@pytest.mark.hazard("P12.2", "P12.3", "K3.2")
async def test_after_sigkill_of_the_bridge_the_lock_is_held_until_the_tree_is_dead(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "lock"
    async with killable_bridge(lock, "crowd") as (bridge, _, mark):
        os.kill(bridge, signal.SIGKILL)
        with lock.open() as file:
            await until(lambda: _locked(file.fileno()))
            assert marked(mark) == []


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.mark.hazard("P12.3")
@pytest.mark.parametrize("passed", ["at the start", "later"])
async def test_the_guard_holds_the_lock_when_the_bridge_has_let_go(
    passed: str, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    fd = await acquire(lock, 0)
    async with started(["cat"], lock_fd=fd if passed == "at the start" else None) as (process, _):
        if passed == "later":
            process.hold_lock(fd)
        os.close(fd)
        with pytest.raises(Busy):
            await acquire(lock, 0)
        assert await process.kill()
        os.close(await acquire(lock, 0))


async def is_free(lock: Path) -> bool:
    try:
        os.close(await acquire(lock, 0))
    except Busy:
        return False
    return True


@pytest.mark.hazard("P12.3")
@pytest.mark.parametrize("stopped", [False, True])
async def test_a_lock_that_is_returned_is_free_while_the_agent_lives_and_the_others_are_held(
    stopped: bool, tmp_path: Path
) -> None:
    left, stays = tmp_path / "left", tmp_path / "stays"
    of_left, of_stays = await acquire(left, 0), await acquire(stays, 0)
    async with started(["cat"], lock_fd=of_left) as (process, _):
        process.hold_lock(of_stays)
        process.hold_lock(of_left)  # it was given before: both are let go of
        os.close(of_stays)
        if stopped:
            os.kill(parent_of(process.pid), signal.SIGSTOP)
        assert await process.return_lock(of_left)
        assert not await is_free(left), "the bridge has it still"
        os.close(of_left)
        assert await is_free(left)
        assert not await is_free(stays)
        await echo(process)  # the agent lives
        assert await process.kill()
        assert await is_free(stays)


@pytest.mark.hazard("P12.3")
async def test_a_lock_that_comes_back_to_a_process_is_held_again(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    fd = await acquire(lock, 0)
    async with started(["cat"], lock_fd=fd) as (process, _):
        assert await process.return_lock(fd)
        process.hold_lock(fd)
        await process.return_lock(await acquire(tmp_path / "another", 0))  # all before was read
        os.close(fd)
        assert not await is_free(lock)


@pytest.mark.hazard("P12.3")
@pytest.mark.parametrize("killed", ["before", "meanwhile"])
async def test_a_guard_that_is_dead_has_let_go_of_a_lock_and_nobody_waits_for_it(
    killed: str, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    fd = await acquire(lock, 0)
    async with started(stand_in("deaf"), lock_fd=fd) as (process, mark):
        await read_line(process)
        guard = parent_of(process.pid)
        os.kill(guard, signal.SIGSTOP)
        if killed == "before":
            os.kill(guard, signal.SIGKILL)
            assert await process.wait_dead()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.return_lock, fd)
            await anyio.lowlevel.checkpoint()
            os.kill(guard, signal.SIGKILL) if killed == "meanwhile" else None
        with anyio.fail_after(5):
            assert await process.wait_dead()
        os.close(fd)
        assert await is_free(lock)
        assert marked(mark) == []


async def test_a_guard_that_hangs_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "COMMAND_LINE", HANGING_GUARD)
    fd = await acquire(tmp_path / "lock", 0)
    async with started(["cat"], lock_fd=fd) as (process, _):
        monkeypatch.setattr(waits, "GUARD", 0)
        assert not await process.return_lock(fd)
        os.close(fd)


@pytest.mark.hazard("P1", "P3")
async def test_sigkill_of_the_guard_ends_the_agent_and_its_group() -> None:
    async with started(stand_in("child")) as (process, mark):
        await read_line(process)
        os.kill(parent_of(process.pid), signal.SIGKILL)
        with anyio.fail_after(5):
            assert await process.wait_exit() == Exit(None, signal.SIGKILL)
            await process.wait_dead()
        assert marked(mark) == []


@pytest.mark.hazard("P1")
async def test_sigkill_of_the_guard_ends_the_agent_though_the_bridge_does_nothing(
    tmp_path: Path,
) -> None:
    async with killable_bridge(tmp_path / "lock", "deaf") as (bridge, guard, mark):
        [agent] = set(marked(mark)) - {bridge, guard}
        os.kill(bridge, signal.SIGSTOP)
        os.kill(guard, signal.SIGKILL)
        await gone(agent)


@pytest.mark.hazard("P1.4")
async def test_sigterm_of_the_guard_ends_the_tree() -> None:
    async with started(stand_in("daemon")) as (process, mark):
        await read_line(process)
        os.kill(parent_of(process.pid), signal.SIGTERM)
        with anyio.fail_after(5):
            await process.wait_dead()
        assert marked(mark) == []


async def test_a_terminals_signals_do_not_reach_the_agent_nor_end_the_guard() -> None:
    async with started(stand_in("short_lived_orphan")) as (process, mark):
        orphan = int(await read_line(process))
        guard = parent_of(process.pid)
        assert session_of(process.pid) == process.pid
        assert session_of(guard) == guard
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(guard, number)
        await end_orphan(process, orphan)  # the guard has run on, past the signals
        assert process.pid in marked(mark)
        assert parent_of(process.pid) == guard


async def test_an_orphan_that_ends_while_the_agent_lives_leaves_no_zombie() -> None:
    async with started(stand_in("short_lived_orphan")) as (process, mark):
        orphan = int(await read_line(process))
        assert parent_of(orphan) == parent_of(process.pid)
        await end_orphan(process, orphan)
        assert process.pid in marked(mark)


async def end_orphan(process: AgentProcess, orphan: int) -> None:
    """Let the orphan end, and wait until the guard, its parent, has collected it."""
    os.write(process.stdin_fd, b"\n")
    await until(lambda: not exists(orphan))


async def test_the_agent_inherits_its_standard_streams_and_nothing_else(tmp_path: Path) -> None:
    fd = await acquire(tmp_path / "lock", 0)
    async with started(["cat"]), started(["cat"], lock_fd=fd) as (process, _):
        await echo(process)
        assert sorted(open_files(process.pid)) == [0, 1, 2]
    os.close(fd)


async def test_the_guard_keeps_no_end_of_the_agents_pipes_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with started(["cat"]) as (process, _):
        await echo(process)
        guard = parent_of(process.pid)
        streams = set(open_files(process.pid).values())
        assert len(streams) == 3
        assert streams.isdisjoint(open_files(guard).values())
        assert os.readlink(f"/proc/{guard}/cwd") == "/"


async def echo(process: AgentProcess) -> None:
    """Send a line to `cat` and back, so that it has started and has closed what that took."""
    os.write(process.stdin_fd, b"echo\n")
    assert await read_line(process) == "echo"


async def test_the_end_of_stdout_is_seen_while_agent_and_guard_live() -> None:
    async with started(stand_in("closes_stdout")) as (process, mark):
        assert await read_all(process.stdout_fd) == b"ready\n"
        assert process.pid in marked(mark)


async def test_the_agent_starts_with_every_signal_as_the_system_has_it() -> None:
    async with started(["cat", "/proc/self/status"]) as (process, _):
        fields = [line.split() for line in (await read_all(process.stdout_fd)).splitlines()]
    # Up to 31: 32 and 33 are the C library's own, and may be ignored since long before us.
    sets = {words[0]: int(words[1], 16) for words in fields if words[0] in SIGNAL_SETS}
    signals = {name: mask & 0x7FFFFFFF for name, mask in sets.items()}
    assert signals == dict.fromkeys(SIGNAL_SETS, 0)


@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": ""}, {"LC_ALL": "C"}])
async def test_the_agent_gets_the_environment_unchanged(locale: dict[str, str]) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": "/x", "ODD": "\udcff\n", "EMPTY": "", **locale}
    async with started(["env", "-0"], env=env) as (process, mark):
        shown = await read_all(process.stdout_fd)
    entries = {os.fsencode(f"{name}={value}") for name, value in env.items()}
    assert set(shown.split(b"\0")) - {b""} == {*entries, f"FIXTURE_MARK={mark}".encode()}


@pytest.mark.hazard("P14.1")
async def test_nothing_of_the_users_is_imported_by_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from the working directory, nor by PYTHON... variables."""
    trace = tmp_path / "imported"
    code = f"open({str(trace)!r}, 'a').write(__name__)"
    modules = ["socket", "_socket", "os", "select", "signal", "guard", "warnings", "ctypes"]
    for name in [*modules, "sitecustomize", "usercustomize", "_ctypes", "encodings"]:
        (tmp_path / f"{name}.py").write_text(code)
    env = {"PATH": os.environ["PATH"], "PYTHONHOME": "/nowhere", "PYTHONSTARTUP": "os.py"}
    env |= {"PYTHONPATH": str(tmp_path), "PYTHONUSERBASE": str(tmp_path), "PYTHONINSPECT": "1"}
    monkeypatch.chdir(tmp_path)
    async with started(["pwd"], env=env) as (process, _):
        assert await read_line(process) == str(tmp_path)
        assert await process.kill()
    assert not trace.exists()


#: drops the rights of root, such as to look into every process, and becomes the command
AS_A_USER = """
import ctypes, os, sys
for capability in range(64):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.executable, [sys.executable, "-I", *sys.argv[1:]])
"""
PRIVATE = f"""
import os, subprocess, sys
sys.path.append({str(FOLDER.parents[2])!r})
from acp_bridge.core.agents import guard
guard.keep_private()
look = "cat /proc/$PPID/environ; cat /proc/$PPID/maps >/dev/null && echo readable; env"
done = subprocess.run(look, shell=True, capture_output=True, text=True)
print(done.stdout.replace("\\0", "\\n").replace(sys.argv[1], "the key"))
"""


@pytest.mark.hazard("K5", "K7.6")
@pytest.mark.parametrize("debuggable", [False, True])
def test_a_private_process_shows_neither_keys_nor_memory_and_loses_nothing(
    debuggable: bool,
) -> None:
    key = "sk-0123456789"
    env = {"A_TOKEN": key, "PATH": os.environ["PATH"]}
    env |= {"ACP_BRIDGE_DEBUGGABLE": "1"} if debuggable else {}
    command = [sys.executable, "-I", "-c", AS_A_USER, "-c", PRIVATE, key]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.count("A_TOKEN=the key") == (2 if debuggable else 1), done
    assert ("readable" in done.stdout) == debuggable


@pytest.mark.hazard("K5", "K7")
def test_a_private_process_shows_root_its_variables_without_their_keys() -> None:
    code = PRIVATE.replace("cat /proc/$PPID/maps >/dev/null && echo readable; env", "true")
    env = {"A_TOKEN": "sk-0123456789", "MARK": "here", "A_TOKEN_2": "sk-9876543210"}
    env["PATH"] = os.environ["PATH"]
    command = [sys.executable, "-I", "-c", code, "sk-"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=True)
    assert "the key" not in done.stdout
    if os.geteuid() == 0:
        assert "MARK=here" in done.stdout
