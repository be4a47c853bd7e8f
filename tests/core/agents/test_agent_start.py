"""AgentProcess: what can go wrong at the start, and what is left then."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.guard_reports import GuardReports
from acp_bridge.core.agents.parent import ParentProcess
from acp_bridge.core.agents.process import AgentProcess, StartFailed
from acp_bridge.core.runtime import waits
from tests.core.agents.guard_support import (
    failure_of,
    open_files,
    python,
    read_line,
    started,
    zombies,
)

pytestmark = pytest.mark.process


async def test_a_command_that_does_not_exist_fails_for_good_and_is_named() -> None:
    failure = await failure_of(["no-such-agent", "--acp"])
    assert failure.permanent
    assert str(failure) == "command not found: no-such-agent"


@pytest.mark.parametrize("name", ["a_file", "a_folder", "script_of_nothing"])
async def test_a_command_that_is_not_executable_fails_for_good(name: str, tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("#!/bin/sh\n")
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "script_of_nothing").write_text("")
    (tmp_path / "script_of_nothing").chmod(0o700)
    failure = await failure_of([str(tmp_path / name)])
    assert failure.permanent
    assert str(failure).startswith("command is not executable: ")


@pytest.mark.parametrize("command", [["cat", "a\0b"], ["\0"]])
async def test_a_command_that_cannot_be_one_fails_for_good(command: list[str]) -> None:
    assert (await failure_of(command)).permanent


async def test_a_command_is_looked_up_in_the_path_and_the_folder_of_the_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    agent = tmp_path / "bin" / "agent"
    agent.symlink_to("/bin/pwd")
    async with started(["agent"], env={"PATH": f"/nowhere:{agent.parent}"}) as (process, _):
        await process.wait_exit()
    monkeypatch.chdir(agent.parent)
    async with started(["./agent"]) as (process, _):
        assert await read_line(process) == str(agent.parent)


async def test_an_agent_whose_folder_was_removed_starts_where_the_bridge_is(tmp_path: Path) -> None:
    async with started(["/bin/pwd"], folder=str(tmp_path)) as (process, _):
        assert await read_line(process) == str(tmp_path)
    async with started(["/bin/pwd"], folder=str(tmp_path / "gone")) as (process, _):
        assert await read_line(process) == os.getcwd()


@pytest.mark.parametrize("folder", ["there", "gone"])
async def test_what_agents_are_forked_from_starts_in_its_folder_while_that_is_there(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "there").mkdir()
    place = tmp_path / "place"
    writes = python(f"import os; open({str(place)!r}, 'w').write(os.getcwd())")
    process = ParentProcess(writes, str(tmp_path / folder))
    try:
        process.start()
        with anyio.fail_after(5):
            await process.ended()
    finally:
        process.end()
    assert place.read_text() == (str(tmp_path / "there") if folder == "there" else os.getcwd())


async def test_a_guard_that_says_nothing_is_given_up_and_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "COMMAND_LINE", python("import signal; signal.pause()"))
    monkeypatch.setattr(waits, "SPAWN", 0.1)
    failure = await failure_of(["cat"])
    assert not failure.permanent
    assert zombies() == []


@pytest.mark.hazard("P1")
async def test_a_guard_that_is_stopped_before_it_tells_of_the_start_is_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stops = "import os, signal, sys; os.kill(os.getpid(), signal.SIGSTOP); "
    monkeypatch.setattr(
        guard,
        "COMMAND_LINE",
        (*python(stops + "os.execv(sys.argv[1], sys.argv[1:])"), *guard.COMMAND_LINE),
    )
    async with started(["cat"]) as (process, _):
        assert process.pid > 0


async def test_a_guard_that_breaks_fails_the_start_and_what_it_said_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "COMMAND_LINE", python("import no_such_module"))
    lines: list[str] = []
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(5), pytest.raises(StartFailed) as caught:
            await AgentProcess.start(tasks, ["cat"], on_stderr=lines.append)
    assert not caught.value.permanent
    assert lines[-1] == "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.hazard("P1")
async def test_a_start_that_is_cancelled_before_the_guard_is_up_never_starts_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, trace = str(tmp_path / "gate"), tmp_path / "trace"
    os.mkfifo(gate)
    late_guard = ("sh", "-c", f'read line < {gate}; exec "$@"', "sh", *guard.COMMAND_LINE)
    monkeypatch.setattr(guard, "COMMAND_LINE", late_guard)
    first, spawned = GuardReports.first, anyio.Event()

    async def after_spawn(self: GuardReports, send: Callable[[int], object]) -> list[str] | None:
        spawned.set()
        return await first(self, send)

    monkeypatch.setattr(GuardReports, "first", after_spawn)
    before = open_files(os.getpid())
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(cancel_at_gate, scope, gate, spawned)
            with scope:
                await AgentProcess.start(tasks, ["touch", str(trace)])
    assert scope.cancelled_caught
    assert not trace.exists()
    assert open_files(os.getpid()) == before
    assert zombies() == []


async def cancel_at_gate(scope: anyio.CancelScope, gate: str, spawned: anyio.Event) -> None:
    """Cancel when the guard waits at the gate and the start for the guard, then open the gate.

    The thread that spawns the guard can't be cancelled: before it has ended nobody hears of it.
    """
    await spawned.wait()
    while True:
        try:
            fd = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:  # nobody there yet
            await anyio.lowlevel.checkpoint()
    scope.cancel()
    await anyio.lowlevel.checkpoint()
    os.write(fd, b"\n")
    os.close(fd)


async def test_a_start_in_a_cancelled_scope_leaves_nothing() -> None:
    before = open_files(os.getpid())
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await AgentProcess.start(tasks, ["cat"])
    assert scope.cancelled_caught
    assert open_files(os.getpid()) == before
