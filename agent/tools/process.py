"""Runs a command as a process of the agent's own, behind a guard.

Invariants
- When `run_process` returns or is cancelled, every process that the command has started is dead,
  also one with a session of its own (invariants C10, P1).
- Memory is bounded, whatever the command prints.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import anyio
from msgspec import Struct

from acp_bridge.core.wire.stdio import Reader
from agent.guarded_process import GuardedProcess
from agent.secrets import Secrets
from agent.tools import Show, ToolError
from agent.tools.bounded_output import Bounded
from agent.tools.cards import code

#: seconds to read output that is still in the pipe after the command's end
_DRAIN = 0.5
#: seconds in which a killed tree must be dead
_REAP = 1.0
#: seconds between updates of a running command's output: at first, and at most
_LOOK, _LONGEST_LOOK = 0.3, 2.0
#: bytes of a running command's output on its card
_SHOWN = 2048


class Ended(Struct, frozen=True):
    """The end of a command; if neither code nor signal is set, the client did not tell them."""

    output: str
    truncated: bool
    exit_code: int | None = None
    #: the name of the signal, such as "SIGSEGV"
    signal: str | None = None
    timed_out: bool = False
    #: the id of the client's terminal in which it ran
    terminal_id: str | None = None


class Command(Struct, frozen=True):
    #: the text that /bin/sh -c runs
    text: str
    cwd: Path
    environment: Mapping[str, str]
    #: seconds
    timeout: float
    #: bytes of output to keep
    limit: int
    #: masks secrets where the output is cut
    secrets: Secrets


async def run_process(command: Command, show: Show) -> Ended:
    """Runs the command to its end or its timeout. Raises ToolError if it can't be started."""
    output = Bounded(command.limit // 2, command.secrets)
    process, stdout = await _start(command)
    try:
        with anyio.move_on_after(command.timeout):
            await _run_to_end(process, stdout, output, show)
        code = process.returncode
    finally:
        try:
            await process.kill(_REAP)
        finally:
            stdout.close()
    return _ended(code, output)


async def _start(command: Command) -> tuple[GuardedProcess, Reader]:
    """Starts the command; returns its process and the read end of its output. Raises ToolError."""
    readable, writable = os.pipe()
    try:
        process = await GuardedProcess.start(
            ["/bin/sh", "-c", command.text],
            cwd=command.cwd,
            env=command.environment,
            stdin=subprocess.DEVNULL,
            stdout=writable,
            stderr=writable,
        )
    except BaseException as error:
        os.close(readable)
        if isinstance(error, OSError):
            problem = f"The command could not be started: {error.strerror}"
            raise ToolError(problem) from error
        if isinstance(error, ValueError):
            problem = "The command holds a character that no command can have."
            raise ToolError(problem) from error
        raise
    finally:
        os.close(writable)
    return process, Reader(readable)


async def _run_to_end(process: GuardedProcess, stdout: Reader, output: Bounded, show: Show) -> None:
    """Collects output until the command has ended; its children may keep the pipe open for ever."""
    async with anyio.create_task_group() as tasks:
        read_all = anyio.Event()
        tasks.start_soon(_collect, stdout, output, read_all)
        tasks.start_soon(_show_as_it_comes, output, show)
        await process.wait()
        with anyio.move_on_after(_DRAIN):
            await read_all.wait()
        tasks.cancel_scope.cancel()


async def _collect(stdout: Reader, output: Bounded, read_all: anyio.Event) -> None:
    while data := await stdout.read():
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
