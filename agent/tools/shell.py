"""Runs a command in the session's folder, in a process group of its own.

Invariants
- When `run` returns or is cancelled, the whole group is dead and its leader reaped (HAZARDS C10,
  P1). What left the group is for the bridge's guard.
- How that is known: every process that the command starts inherits the end of a pipe, the
  lifeline. The other end tells when the last of them is gone.
- Memory is bounded, whatever the command prints.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import deque
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from pydantic import BaseModel, Field

from agent.tools import ToolContext, ToolError, ToolResult

#: bytes kept of the output's beginning, and as many of its end
_KEEP = 32 * 1024
#: seconds for output that is still in the pipe once the command has ended
_DRAIN = 0.5
#: seconds for a killed group to be gone; what left the group may hold the lifeline longer
_REAP = 0.5


class ShellArgs(BaseModel):
    command: str = Field(description="What /bin/sh -c is to run.")
    timeout: float = Field(120, gt=0, le=600, description="Seconds after which it is killed.")


class Shell:
    name = "shell"
    description = "Run a shell command in the session's folder and read what it prints."
    kind = "execute"
    Args = ShellArgs
    needs_permission = True

    def title(self, args: ShellArgs) -> str:
        return f"`{args.command}`"

    def locations(self, args: ShellArgs, cwd: Path) -> list[dict[str, Any]]:
        return []

    async def run(self, args: ShellArgs, context: ToolContext) -> ToolResult:
        output = _Bounded()
        lifeline, held = os.pipe()
        try:
            process = await _start(args.command, context.cwd, held)
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(held)
        try:
            with anyio.move_on_after(args.timeout):
                await _run_to_end(process, output)
            exit_code = process.returncode
        finally:
            await _end_group(process, lifeline)
        return _result(exit_code, output.text(), args.timeout)


async def _start(command: str, cwd: Path, lifeline: int) -> Process:
    # Shielded: cancelled in the middle, asyncio would kill the shell and none of its children.
    try:
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                ["/bin/sh", "-c", command],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lifeline],
            )
    except OSError as error:
        raise ToolError(f"The command could not be started: {error.strerror}") from error
    return process


async def _run_to_end(process: Process, output: _Bounded) -> None:
    """Until the command itself has ended: one that it left behind may hold the pipe for ever."""
    assert process.stdout is not None
    async with anyio.create_task_group() as tasks:
        read_all = anyio.Event()
        tasks.start_soon(_collect, process.stdout, output, read_all)
        await process.wait()
        with anyio.move_on_after(_DRAIN):
            await read_all.wait()
        tasks.cancel_scope.cancel()


async def _collect(stream: ByteReceiveStream, output: _Bounded, read_all: anyio.Event) -> None:
    async for data in stream:
        output.add(data)
    read_all.set()


async def _end_group(process: Process, lifeline: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody left in it
        os.killpg(process.pid, signal.SIGKILL)
    try:
        with anyio.move_on_after(_REAP, shield=True):
            await process.aclose()
            await anyio.wait_readable(lifeline)
    finally:
        os.close(lifeline)


def _result(exit_code: int | None, output: str, timeout: float) -> ToolResult:
    raw = {"exitCode": exit_code, "output": output}
    if exit_code is None:
        note = f"[killed after {timeout:g} s]"
    elif exit_code != 0:
        note = f"[exit code {exit_code}]"
    else:
        return ToolResult(output, raw)
    return ToolResult(f"{output.rstrip()}\n{note}" if output else note, raw)


class _Bounded:
    """The beginning and the end of a stream of bytes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0

    def add(self, data: bytes) -> None:
        room = _KEEP - len(self._head)
        self._head += data[:room]
        if rest := data[room:] if room > 0 else data:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= _KEEP:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._dropped += gone

    def text(self) -> str:
        tail = b"".join(self._tail)
        dropped = self._dropped + max(0, len(tail) - _KEEP)
        cut = f"\n[{dropped} bytes left out]\n".encode() if dropped else b""
        return (bytes(self._head) + cut + tail[-_KEEP:]).decode("utf-8", "replace")
