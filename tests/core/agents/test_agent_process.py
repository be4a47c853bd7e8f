"""AgentProcess: the pipes, stderr, the orderly end and the others."""

import ctypes
import hashlib
import os
import signal
from unittest.mock import patch

import anyio
import pytest

from acp_bridge.core.agents.process import AgentProcess, Exit
from acp_bridge.core.runtime import waits
from tests.core.agents.guard_support import (
    failure_of,
    marked_env,
    open_files,
    parent_of,
    python,
    read_all,
    read_line,
    stand_in,
    started,
    zombies,
)
from tests.support.processes import kill_marked, marked

pytestmark = pytest.mark.process


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


# The pipes


async def test_ten_megabytes_pass_untouched() -> None:
    content = hashlib.shake_128(b"seed").digest(10 * 1024 * 1024)

    async def write(fd: int) -> None:
        view = memoryview(content)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                await anyio.wait_writable(fd)
        os.close(fd)

    async with started(["cat"]) as (process, _), anyio.create_task_group() as tasks:
        stdin, stdout = process.take_pipes()
        tasks.start_soon(write, stdin)
        assert hashlib.sha256(await read_all(stdout)).digest() == hashlib.sha256(content).digest()
        os.close(stdout)


async def test_the_bridges_ends_neither_block_nor_are_inherited() -> None:
    async with started(["cat"]) as (process, _):
        for fd in (process.stdin_fd, process.stdout_fd):
            assert not os.get_blocking(fd)
            assert not os.get_inheritable(fd)


@pytest.mark.hazard("P6")
async def test_the_end_of_one_agents_stdin_is_seen_though_others_were_started_after() -> None:
    async with started(["cat"]) as (first, _), started(["cat"]) as (_, second_mark):
        with anyio.fail_after(5):
            await first.close(60)
        assert await first.wait_exit() == Exit(0, None)
        assert marked(second_mark) != []


async def test_what_was_written_before_the_kill_can_be_read_after_it() -> None:
    async with started(stand_in("deaf")) as (process, _):
        with anyio.fail_after(5):
            await anyio.wait_readable(process.stdout_fd)
        assert await process.kill()
        assert await read_all(process.stdout_fd) == b"ready\n"


# stderr


async def stderr_of(command: list[str]) -> list[str]:
    lines: list[str] = []
    async with started(command, on_stderr=lines.append) as (process, _):
        await process.wait_exit()
    return lines


async def test_stderr_comes_by_lines_the_last_one_too() -> None:
    script = r"printf 'one\r\n\ntwo \377\nthree' >&2"
    assert await stderr_of(shell(script)) == ["one", "", "two \ufffd", "three"]


async def test_a_long_line_of_stderr_is_cut_and_the_next_one_is_whole() -> None:
    code = "import os; os.write(2, b'a' * 300_000 + b'\\n' + b'b' * 8192 + b'\\nc\\n')"
    assert await stderr_of(python(code)) == ["a" * 8192, "b" * 8192, "c"]


async def test_an_agent_that_floods_stderr_is_not_held_up_by_a_bridge_that_does_not_look() -> None:
    code = (
        "import os\nfor _ in range(100): os.write(2, b'x' * 99_999 + b'\\n')\nos.write(1, b'.\\n')"
    )
    async with started(python(code)) as (process, _):
        assert await read_line(process) == "."


async def test_a_stderr_that_outlives_the_tree_does_not_hold_up_the_end() -> None:
    """The agent gave it to a process outside of its tree, here to the test."""
    async with started(stand_in("deaf")) as (process, _):
        await read_line(process)
        kept = os.open(f"/proc/{process.pid}/fd/2", os.O_WRONLY)
        with anyio.fail_after(5):
            await process.close(0)
        os.close(kept)


# The end


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Exit(3, None), "exit code 3"),
        (Exit(None, signal.SIGKILL), "signal SIGKILL"),
        (Exit(None, 40), "signal 40"),
    ],
)
def test_an_exit_is_described_in_words(outcome: Exit, words: str) -> None:
    assert outcome.describe() == words


@pytest.mark.hazard("P3")
@pytest.mark.parametrize(
    ("name", "outcome"),
    [("exits_3", Exit(3, None)), ("terminates_itself", Exit(None, signal.SIGTERM))],
)
async def test_the_agents_own_end_is_reported(name: str, outcome: Exit) -> None:
    async with started(stand_in(name)) as (process, mark):
        with anyio.fail_after(5):
            assert await process.wait_exit() == outcome
            await process.wait_dead()
        assert marked(mark) == []


@pytest.mark.hazard("P1.3", "P2.3")
async def test_close_lets_an_agent_end_in_order() -> None:
    async with started(shell("cat; exit 4")) as (process, mark):
        with anyio.fail_after(5):
            await process.close(60)
        assert await process.wait_exit() == Exit(4, None)
        assert marked(mark) == []


@pytest.mark.hazard("P2.4")
@pytest.mark.parametrize("is_stopped", [False, True])
async def test_close_has_an_agent_that_does_not_heed_its_stdin_tidy_up(
    is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "EOF_GRACE", 0.01)
    async with started(stand_in("tidies_up")) as (process, mark):
        await read_line(process)
        stdout = process.take_pipes()[1]
        if is_stopped:
            os.kill(parent_of(process.pid), signal.SIGSTOP)
        with anyio.fail_after(5):
            await process.close(60)
        assert await process.wait_exit() == Exit(3, None)
        assert await read_all(stdout) == b"tidy\n"
        assert marked(mark) == []
        os.close(stdout)


@pytest.mark.hazard("P2.4")
async def test_an_agent_that_heeds_its_stdin_gets_no_signal() -> None:
    async with started(stand_in("ends_with_its_stdin")) as (process, _):
        await read_line(process)
        stdin, stdout = process.take_pipes()
        os.close(stdin)
        with anyio.fail_after(5):
            await process.close(60)
        assert await process.wait_exit() == Exit(3, None)
        assert await read_all(stdout) == b""
        os.close(stdout)


@pytest.mark.hazard("P1", "P2.4")
async def test_close_kills_an_agent_that_does_not_end_within_the_grace() -> None:
    async with started(stand_in("deaf")) as (process, mark):
        await read_line(process)
        with anyio.fail_after(5):
            await process.close(0.01)
        assert await process.wait_exit() == Exit(None, signal.SIGKILL)
        assert marked(mark) == []


@pytest.mark.hazard("P1")
async def test_close_that_is_cancelled_kills_at_once_and_closes_all() -> None:
    async with started(stand_in("deaf")) as (process, mark):
        await read_line(process)
        with anyio.move_on_after(0.01):
            await process.close(60)
        assert marked(mark) == []
        assert (process.stdin_fd, process.stdout_fd) == (-1, -1)


@pytest.mark.hazard("P1")
async def test_the_tree_dies_with_the_task_group_it_was_started_in() -> None:
    mark, env = marked_env()
    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                with patch.dict(os.environ, env):
                    process = await AgentProcess.start(tasks, stand_in("daemon"))
                await read_line(process)
                tasks.cancel_scope.cancel()
        assert marked(mark) == []
        await process.wait_exit()
    finally:
        kill_marked(mark)


async def test_a_kill_is_finished_though_its_caller_is_cancelled() -> None:
    async with started(stand_in("crowd")) as (process, mark):
        await read_line(process)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await process.kill()
        assert marked(mark) == []


async def test_kill_may_be_asked_for_by_many_and_at_any_time() -> None:
    async with started(stand_in("daemon")) as (process, _):
        await read_line(process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.kill)
            tasks.start_soon(process.kill)
            tasks.start_soon(process.close, 0)
        assert await process.kill()
        await process.close(0)
        process.hold_lock(0)


def copied(pid: int, fd: int) -> int:
    """A copy of another process's descriptor: pidfd_getfd, which Python does not name."""
    pidfd = os.pidfd_open(pid)
    try:
        copy: int = ctypes.CDLL(None).syscall(438, pidfd, fd, 0)
    finally:
        os.close(pidfd)
    assert copy >= 0
    return copy


async def test_a_reader_is_told_when_the_pipe_is_closed_under_it() -> None:
    async with started(stand_in("deaf")) as (process, _):
        await read_line(process)
        other_end = copied(process.pid, 1)  # so it does not just end

        async def read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await anyio.wait_readable(process.stdout_fd)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            await process.close(0)
        os.close(other_end)


@pytest.mark.hazard("P1")
async def test_ten_agents_later_no_descriptor_and_no_zombie_is_left() -> None:
    async def one(number: int) -> None:
        async with started(stand_in("daemon") if number % 4 == 0 else ["cat"]) as (process, _):
            if number % 2:
                await process.kill()
        await failure_of(["no-such-agent"])

    await one(0)
    before = open_files(os.getpid())
    for number in range(10):
        await one(number)
    assert open_files(os.getpid()) == before
    assert zombies() == []
