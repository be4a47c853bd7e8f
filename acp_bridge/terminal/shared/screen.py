"""The stdout and stderr of a command, written without blocking the event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from acp_bridge.core.wire.lossy import LossyWriter
from acp_bridge.core.wire.stdio import Writer
from acp_bridge.sharing.bridge_client.tasks import beside
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.shared.waiting import Stop

#: bytes that may be buffered for a slow reader of stdout before reading from the bridge stops.
_LIMIT: Final = 256 * 1024


class StdScreen:
    """Writes to stdout and stderr; made by `std_screen`."""

    def __init__(self, stdout: Writer, stop: Stop) -> None:
        self._stdout, self._stop = stdout, stop
        #: None where stderr is the same terminal, pipe or file as stdout: one writer keeps the
        #: order there, and no line of progress comes into the middle of the answer's line.
        self._stderr = None if _is_stdout(2) else LossyWriter(2)
        self._at_line_start = True

    def write(self, data: bytes) -> None:
        """Write to stdout; what it doesn't take at once is buffered."""
        self._stdout.write(data)
        if data:
            self._at_line_start = data.endswith(b"\n")

    def tell(self, line: str) -> None:
        """Write a line to stderr; drop it if stderr takes no more."""
        told = f"{line}\n".encode(errors="backslashreplace")
        if self._stderr is not None:
            self._stderr.write(told)
        else:
            self.write(told if self._at_line_start else b"\n" + told)

    async def room(self) -> None:
        """Wait until less than `_LIMIT` bytes are buffered for stdout, or the command is to end."""
        if self._stdout.pending >= _LIMIT:
            await self._below(_LIMIT)

    async def finish(self) -> None:
        """Wait until stdout has taken everything, nobody reads it, or the command is to end."""
        if self._stdout.pending:
            await self._below(1)

    async def _below(self, limit: int) -> None:
        async with anyio.create_task_group() as tasks:

            async def stopped() -> None:
                await self._stop.asked.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(stopped)
            await self._stdout.drain_below(limit)
            tasks.cancel_scope.cancel()


def _is_stdout(fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.fstat(1))
    except OSError:  # closed
        return False


@asynccontextmanager
async def std_screen(stop: Stop) -> AsyncGenerator[StdScreen, None]:
    """Give a screen for the block, then wait for `finish`; a stdout that breaks asks `stop`."""

    def broken() -> None:
        if stdout.failure is None:
            stop.ask(Exit.INTERRUPTED)
        elif not stop.asked.is_set():
            screen.tell(f"acp-bridge: stdout can't be written: {stdout.failure.strerror}")
            stop.ask(Exit.FAILED)

    stdout = Writer(os.dup(1), on_broken=broken)
    screen = StdScreen(stdout, stop)
    try:
        async with beside() as tasks:
            tasks.start_soon(stdout.run)
            yield screen
            await screen.finish()
            if stdout.failure is not None:  # in the last words, which nothing has waited for
                broken()
    finally:
        stdout.close()
