"""Runs a command as a process of the agent's own, in a process group of its own.

Every process that the command starts inherits one end of a pipe, the lifeline; the other end tells
when the last of them is gone.

Invariants
- When `run_process` returns or is cancelled, the whole group is dead and its leader reaped, with
  what the command left in the background (invariants C10, P1). A process that has left the group is
  ended by the bridge's guard.
- Memory is bounded, whatever the command prints.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process

from agent.tools import Show, ToolError
from agent.tools.bounded_output import Bounded
from agent.tools.cards import code

#: seconds for output that is still in the pipe once the command has ended
_DRAIN = 0.5
#: seconds for a killed group to be gone; a process that has left it may hold the lifeline longer
_REAP = 0.5
#: seconds between two looks at a running command's output: at first, and at most
_LOOK, _LONGEST_LOOK = 0.3, 2.0
#: bytes of a running command's output that are shown
_SHOWN = 2048


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command; if neither code nor signal is set, the client does not know them."""

    output: str
    truncated: bool
    exit_code: int | None = None
    #: the name of the signal, such as "SIGSEGV"
    signal: str | None = None
    timed_out: bool = False
    #: the id of the client's terminal that shows it
    terminal_id: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    #: the text that /bin/sh -c runs
    text: str
    cwd: Path
    environment: Mapping[str, str]
    #: seconds
    timeout: float
    #: bytes of output to keep
    limit: int


async def run_process(command: Command, show: Show) -> Ended:
    """Runs the command to its end or its timeout. Raises ToolError if it can't be started."""
    output = Bounded(command.limit // 2)
    lifeline, held = os.pipe()
    try:
        process = await _start(command, held)
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(held)
    try:
        with anyio.move_on_after(command.timeout):
            await _run_to_end(process, output, show)
        code = process.returncode
    finally:
        await _end_group(process, lifeline)
    return _ended(code, output)


async def _start(command: Command, lifeline: int) -> Process:
    # Shielded, because asyncio would kill only the shell if it were cancelled halfway.
    try:
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                ["/bin/sh", "-c", command.text],
                cwd=command.cwd,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lifeline],
            )
    except OSError as error:
        raise ToolError(f"The command could not be started: {error.strerror}") from error
    except ValueError as error:  # a NUL character
        raise ToolError("The command holds a character that no command can have.") from error
    return process


async def _run_to_end(process: Process, output: Bounded, show: Show) -> None:
    """Collects output until the command has ended; its children may hold the pipe for ever."""
    assert process.stdout is not None
    async with anyio.create_task_group() as tasks:
        read_all = anyio.Event()
        tasks.start_soon(_collect, process.stdout, output, read_all)
        tasks.start_soon(_show_as_it_comes, output, show)
        await process.wait()
        with anyio.move_on_after(_DRAIN):
            await read_all.wait()
        tasks.cancel_scope.cancel()


async def _collect(stream: ByteReceiveStream, output: Bounded, read_all: anyio.Event) -> None:
    async for data in stream:
        output.add(data)
    read_all.set()


async def _show_as_it_comes(output: Bounded, show: Show) -> None:
    shown, pause = 0, _LOOK
    while True:
        await anyio.sleep(pause)
        if output.size == shown:
            continue
        shown = output.size
        await show(code(output.end(_SHOWN)))
        pause = min(pause * 1.5, _LONGEST_LOOK)


async def _end_group(process: Process, lifeline: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty
        os.killpg(process.pid, signal.SIGKILL)
    try:
        with anyio.move_on_after(_REAP, shield=True):
            await process.aclose()
            await anyio.wait_readable(lifeline)
    finally:
        os.close(lifeline)


def _ended(code: int | None, output: Bounded) -> Ended:
    text, truncated = output.text(), output.truncated
    if code is None:
        return Ended(text, truncated, signal="SIGKILL", timed_out=True)
    if code < 0:
        return Ended(text, truncated, signal=_signal_name(-code))
    return Ended(text, truncated, exit_code=code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
