"""The shell tool's own processes: bounded, and the whole group dead on every way out."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest

from agent.guarded_process import GuardedProcess
from agent.secrets import child_environment
from agent.tools import ToolContext, ToolError, ToolResult
from agent.tools import process as own_process
from agent.tools.shell import LIMIT, Shell, ShellArgs
from tests.agent.support import Fifo, MemoryClient
from tests.support.processes import MARK, all_gone, marked

pytestmark = pytest.mark.process

#: a child, and a grandchild that outlives it; both tell the moment at which they run
TREE = "(sleep 600 & echo up; wait) & sleep 600 & echo up; wait"


class Shown:
    """A `Show` callback that keeps what it is given."""

    def __init__(self) -> None:
        self.content: list[Sequence[dict[str, Any]]] = []
        self.came = anyio.Event()

    async def __call__(self, content: Sequence[dict[str, Any]]) -> None:
        self.content.append(content)
        self.came.set()

    @property
    def texts(self) -> list[str]:
        return [item["content"]["text"] for content in self.content for item in content]


async def shell(
    cwd: Path,
    command: str,
    variables: Mapping[str, str] = MappingProxyType({}),
    seconds: float = 60,
    shown: Shown | None = None,
) -> ToolResult:
    environment = {"PATH": os.environ["PATH"], **variables}
    with anyio.fail_after(10):
        args = ShellArgs(command=command, timeout=seconds)
        context = ToolContext(cwd, MemoryClient(), environment=environment)
        action = await Shell().prepare(args, context)
        return await action.run(shown or Shown())


async def test_output_of_both_kinds_and_the_exit_code_are_given(tmp_path: Path) -> None:
    result = await shell(tmp_path, "pwd; echo problem >&2; exit 3")
    output = f"{tmp_path}\nproblem\n"
    assert result.text == f"{output}[exit code 3]"
    assert result.raw == {"exitCode": 3, "output": output, "truncated": False}
    assert result.content is not None
    assert result.content[0]["content"]["text"] == f"```\n{result.text}\n```"
    assert (await shell(tmp_path, "printf done")).text == "done"
    assert (await shell(tmp_path, "true")).content == ()
    assert (await shell(tmp_path, "exit 1")).text == "[exit code 1]"


async def test_the_signal_that_ended_a_command_is_named(tmp_path: Path) -> None:
    result = await shell(tmp_path, "echo before; kill -SEGV $$")
    assert result.text == "before\n[ended by SIGSEGV]"
    assert (result.raw["exitCode"], result.raw["signal"]) == (None, "SIGSEGV")


async def test_nothing_runs_before_the_action_does(tmp_path: Path) -> None:
    args = ShellArgs(command="touch made")
    action = await Shell().prepare(args, ToolContext(tmp_path, MemoryClient()))
    assert action.grant.key == ("shell", "touch made")
    assert not (tmp_path / "made").exists()


async def test_a_command_gets_no_input(tmp_path: Path) -> None:
    assert (await shell(tmp_path, "cat; echo end")).text == "end\n"


async def test_a_command_sees_the_context_s_environment_and_no_key_of_a_model(
    tmp_path: Path,
) -> None:
    user = {"OPENAI_API_KEY": "sk-12345678", "STRIPE_API_KEY": "pk-12345678", "EDITOR": "vi"}
    told = (await shell(tmp_path, "env", child_environment(user))).text
    assert "STRIPE_API_KEY=pk-12345678\n" in told
    assert "EDITOR=vi\n" in told
    assert "OPENAI" not in told
    assert "HOME=" not in told  # not this process's own


async def test_output_is_bounded_to_its_beginning_and_its_end_and_says_so(tmp_path: Path) -> None:
    result = await shell(tmp_path, "seq 1 200000")
    assert len(result.text) < LIMIT + 100
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("\n199999\n200000\n")
    assert "bytes left out; 32768 can be shown]" in result.text
    assert result.raw["truncated"] is True


async def test_what_a_running_command_prints_is_shown_now_and_then(
    tmp_path: Path, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_process, "_LOOK", 0.001)
    shown = Shown()
    os.mkfifo(cwd / "gate")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell, cwd, "echo one; read _ <gate; echo two", {}, 60, shown)
            await shown.came.wait()
            assert "one\n" in shown.texts[0]
            (cwd / "gate").write_text("go\n")


async def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="could not be started"):
        await shell(tmp_path / "none", "true")


async def test_a_command_that_can_t_be_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="a character that no command can have"):
        await shell(tmp_path, "echo \0")


@pytest.mark.hazard("C10.3", "P1")
async def test_cancelled_the_whole_group_is_dead_when_it_returns(
    cwd: Path, running: Fifo, mark: str
) -> None:
    async def run() -> None:
        await shell(cwd, f"exec >running; {TREE}", {MARK: mark})

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await running.lines(2)
            assert marked(mark)
            tasks.cancel_scope.cancel()
        assert not marked(mark)


#: a process with a session and a parent of its own, which tells when it runs and then goes on
ESCAPED = "setsid sh -c 'echo up; exec sleep 600' </dev/null 2>/dev/null"


@pytest.mark.hazard("C10.3", "P1.2")
@pytest.mark.parametrize("way", ["ends", "times out", "cancelled"])
async def test_a_process_that_left_the_command_s_group_is_dead_when_the_call_has_ended(
    cwd: Path, running: Fifo, mark: str, way: str
) -> None:
    rest = {"ends": "read _ <gate", "times out": "sleep 600", "cancelled": "sleep 600"}[way]
    command = f"({ESCAPED} >running &) ; ({ESCAPED} >running &) ; {rest}"
    os.mkfifo(cwd / "gate")
    seconds = 1 if way == "times out" else 60

    async def run() -> None:
        await shell(cwd, command, {MARK: mark}, seconds)
        assert not marked(mark)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await running.lines(2)
            assert marked(mark)
            match way:
                case "ends":
                    (cwd / "gate").write_text("go\n")
                case "cancelled":
                    tasks.cancel_scope.cancel()
        assert not marked(mark)


@pytest.mark.hazard("C10", "P1")
async def test_a_command_that_kills_its_guard_ends_with_its_group(
    cwd: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_process, "_LOOK", 0.001)
    shown = Shown()
    os.mkfifo(cwd / "gate")
    command = "sleep 600 & echo up; read _ <gate; kill -9 $PPID; sleep 600"

    async def run() -> None:
        result = await shell(cwd, command, {MARK: mark}, 60, shown)
        assert result.text == "up\n[ended by SIGKILL]"

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await shown.came.wait()
            (cwd / "gate").write_text("go\n")
    await all_gone(mark)


async def test_a_command_that_kills_its_guard_at_once_has_been_started_and_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = GuardedProcess._spawn

    def killed(process: GuardedProcess, *args: Any) -> None:
        spawn(process, *args)
        assert process._guard is not None
        process._guard.send_signal(signal.SIGKILL)

    monkeypatch.setattr(GuardedProcess, "_spawn", killed)
    assert (await shell(tmp_path, "sleep 600")).text == "[ended by SIGKILL]"


@pytest.mark.hazard("C10", "P1")
async def test_a_command_that_stops_its_guard_is_killed_when_its_time_is_over(
    tmp_path: Path, mark: str
) -> None:
    command = "setsid sleep 600 & echo up; kill -STOP $PPID; sleep 600"
    result = await shell(tmp_path, command, {MARK: mark}, 0.5)
    assert result.text == "up\n[killed after 0.5 s]"
    await all_gone(mark)


async def test_a_guard_that_is_stopped_before_it_tells_of_the_start_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = GuardedProcess._spawn

    def stopped(process: GuardedProcess, *args: Any) -> None:
        spawn(process, *args)
        assert process._guard is not None
        process._guard.send_signal(signal.SIGSTOP)

    monkeypatch.setattr(GuardedProcess, "_spawn", stopped)
    assert (await shell(tmp_path, "echo up")).text == "up\n"


@pytest.mark.hazard("P1")
async def test_past_its_time_the_whole_group_is_killed(tmp_path: Path, mark: str) -> None:
    result = await shell(tmp_path, TREE, {MARK: mark}, 0.2)
    assert result.text.endswith("[killed after 0.2 s]")
    assert (result.raw["exitCode"], result.raw["signal"]) == (None, "SIGKILL")
    await all_gone(mark)


@pytest.mark.hazard("C10")
async def test_what_a_command_left_behind_does_not_hold_it_up_and_is_killed(
    tmp_path: Path, mark: str
) -> None:
    result = await shell(tmp_path, "sleep 600 & echo started", {MARK: mark})
    assert result.text == "started\n"
    await all_gone(mark)
