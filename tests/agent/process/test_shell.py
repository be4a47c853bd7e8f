"""The shell tool: bounded, and its whole process group dead on every way out."""

import os
from pathlib import Path

import anyio
import pytest

from agent.tools import ToolContext, ToolError, ToolResult
from agent.tools import shell as shell_tool
from agent.tools.shell import Shell, ShellArgs
from tests.agent.support import Fifo, MemoryClient
from tests.support.processes import MARK, all_gone, marked

pytestmark = pytest.mark.process

#: a child, and a grandchild that outlives it; both mark the moment at which they run
TREE = "(sleep 600 & echo up; wait) & sleep 600 & echo up; wait"


async def shell(cwd: Path, command: str, seconds: float = 60) -> ToolResult:
    with anyio.fail_after(10):
        args = ShellArgs(command=command, timeout=seconds)
        return await Shell().run(args, ToolContext(cwd, MemoryClient()))


async def test_output_of_both_kinds_and_the_exit_code_are_given(tmp_path: Path) -> None:
    result = await shell(tmp_path, "pwd; echo problem >&2; exit 3")
    assert result.text == f"{tmp_path}\nproblem\n[exit code 3]"
    assert result.raw == {"exitCode": 3, "output": f"{tmp_path}\nproblem\n"}
    assert (await shell(tmp_path, "printf done")).text == "done"
    assert (await shell(tmp_path, "exit 1")).text == "[exit code 1]"


async def test_a_command_gets_no_input(tmp_path: Path) -> None:
    assert (await shell(tmp_path, "cat; echo end")).text == "end\n"


async def test_output_is_bounded_to_its_beginning_and_its_end(tmp_path: Path) -> None:
    result = await shell(tmp_path, "seq 1 200000")
    assert len(result.text) < 70_000
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("\n199999\n200000\n")
    assert "bytes left out]" in result.text


async def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="could not be started"):
        await shell(tmp_path / "none", "true")


@pytest.mark.hazard("C10", "P1")
async def test_cancelled_the_whole_group_is_dead_when_it_returns(
    cwd: Path, running: Fifo, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, mark)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell, cwd, f"exec >running; {TREE}")
            await running.lines(2)
            assert marked(mark)
            tasks.cancel_scope.cancel()
    await all_gone(mark)


@pytest.mark.hazard("C10")
async def test_a_killed_group_is_waited_for_until_the_last_of_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell_tool, "_REAP", 5)
    lifeline, held = os.pipe()  # the test holds it, as a process does that is slow to die
    process = await anyio.open_process(["true"], start_new_session=True)
    ended = anyio.Event()

    async def end() -> None:
        await shell_tool._end_group(process, lifeline)
        ended.set()

    with anyio.fail_after(10):
        await process.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            await anyio.wait_all_tasks_blocked()
            assert not ended.is_set()
            os.close(held)
    assert ended.is_set()


@pytest.mark.hazard("P1")
async def test_past_its_time_the_whole_group_is_killed(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, mark)
    result = await shell(tmp_path, TREE, seconds=0.2)
    assert result.text.endswith("[killed after 0.2 s]")
    assert result.raw["exitCode"] is None
    await all_gone(mark)


@pytest.mark.hazard("C10")
async def test_what_a_command_left_behind_does_not_hold_it_up_and_is_killed(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, mark)
    assert (await shell(tmp_path, "sleep 600 & echo started")).text == "started\n"
    await all_gone(mark)
