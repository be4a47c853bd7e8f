"""A bridge as a process of our own: started for a command, spoken to on its stdin and stdout.

These are a socket and no pipes: whoever finds a pipe in /proc can open the other end of it, write
what the user never said, and keep it open when the user's own process has ended (invariant P17).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from acp_bridge.agents.stderr import LineForwarder
from acp_bridge.terminal.connection import Connection, Listener, connected
from acp_bridge.terminal.socket_stream import SocketStream
from acp_bridge.terminal.tasks import beside

#: The bridge, run by the same interpreter; isolated, so that no module of the user's is imported.
BRIDGE: Final = (sys.executable, "-I", "-m", "acp_bridge")
#: Seconds for a bridge to end by itself, and for its processes to be gone (invariants P1, P2).
END: Final = 3.5
#: seconds. The rest of a stderr is read; the pipe has ended unless it was handed on.
_LAST_STDERR: Final = 0.2


class _Standard(SocketStream):
    """The stdin and stdout of a bridge, which are one socket."""

    async def aclose(self) -> None:
        """End what it reads alone: that is how a bridge learns that its client has gone."""
        self.end_sending()


@asynccontextmanager
async def over_process(
    command: Sequence[str],
    listener: Listener,
    tell: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> AsyncGenerator[Connection, None]:
    """Start a bridge and be its client for the block; it has ended when this returns.

    It is in a session of its own, so that it gets no Ctrl-C of the terminal. `tell` is given each
    line of its stderr. An exception of the block comes out as it is.

    Raises:
        OSError: it could not be started.
    """
    stderr, for_child = os.pipe()
    ours, its = socket.socketpair()
    try:
        os.set_blocking(stderr, False)
        for each in (ours, its):  # the bridge would not block on its end either
            each.setblocking(False)
        try:
            process = await anyio.open_process(
                command,
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=for_child,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        finally:
            os.close(for_child)
            its.close()
        async with _served(process, ours, stderr, listener, tell) as connection:
            yield connection
    finally:
        ours.close()
        os.close(stderr)


@asynccontextmanager
async def _served(
    process: Process,
    standard: socket.socket,
    stderr: int,
    listener: Listener,
    tell: Callable[[str], None],
) -> AsyncGenerator[Connection, None]:
    read = anyio.Event()

    async def forward() -> None:
        await LineForwarder(tell).run(stderr)
        read.set()

    async with beside() as tasks:
        tasks.start_soon(forward)
        try:
            async with connected(_Standard(standard), listener) as connection:
                yield connection
        finally:
            await _end(process, read)


async def _end(process: Process, read: anyio.Event) -> None:
    """Wait for the end of a bridge whose stdin is closed; kill it if it does not end."""
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(END):
            await process.wait()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            with anyio.move_on_after(END):
                await process.wait()
        with anyio.move_on_after(_LAST_STDERR):
            await read.wait()
        await process.aclose()
