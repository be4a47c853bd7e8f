"""A bridge as a process of our own: started for a command, spoken to on its stdin and stdout.

Its stdin and stdout are a socket and no pipes: whoever finds a pipe in /proc can open the other end
of it, write what the user never said, and keep it open when the user's own process has ended
(invariant P17).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Self

import anyio
from anyio.abc import Process

from acp_bridge.core.agents.handed_keys import handed_keys
from acp_bridge.core.agents.stderr import LineForwarder
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.core.wire.streams import Streams
from acp_bridge.sharing.bridge_client.connection import Connection, connected
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.sharing.bridge_client.tasks import beside

#: The bridge, run by the same interpreter; isolated, so that no module of the user's is imported.
BRIDGE: Final = (sys.executable, "-I", "-m", "acp_bridge")
#: Seconds for a bridge to end by itself, and for its processes to be gone (invariants P1, P2).
END: Final = 3.5
#: seconds. The rest of a stderr is read; the pipe has ended unless it was handed on.
_LAST_STDERR: Final = 0.2


class BridgeProcess:
    """A bridge that runs as a child process; whoever has called `start` calls `end`."""

    def __init__(self, process: Process, standard: socket.socket) -> None:
        """`standard` is our end of the socket that is its stdin and stdout, and is owned here."""
        self._process, self._standard = process, standard
        #: what reads its stdout and what writes its stdin; the user of the streams closes them.
        self.streams: Streams = (
            Reader(os.dup(standard.fileno())),
            Writer(os.dup(standard.fileno())),
        )

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        stderr: int,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Self:
        """Start a bridge in a session of its own, so that it gets no Ctrl-C of the terminal.

        `stderr` stays the caller's. Raises OSError: it could not be started.
        """
        ours, its = socket.socketpair()
        try:
            for each in (ours, its):  # the bridge would not block on its end either
                each.setblocking(False)
            environment = os.environ if env is None else env
            with its, handed_keys(environment) as (given, kept):
                process = await anyio.open_process(
                    command,
                    stdin=its.fileno(),
                    stdout=its.fileno(),
                    stderr=stderr,
                    env=given,
                    cwd=cwd,
                    start_new_session=True,
                    pass_fds=kept,
                )
            return cls(process, ours)
        except BaseException:
            ours.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the bridge with SIGKILL; its guards see that and kill its agents."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def hang_up(self) -> None:
        """Close the stdin of the bridge, and wait up to `END` seconds for its end."""
        with suppress(OSError):  # it is gone, or the socket is
            self._standard.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(END):
            await self._process.wait()

    async def end(self) -> None:
        """Hang up, kill the bridge if it has not ended by then, and close our end of the socket."""
        with anyio.CancelScope(shield=True):
            await self.hang_up()
            if self._process.returncode is None:
                self.kill()
                with anyio.move_on_after(END):
                    await self._process.wait()
            await self._process.aclose()
            self._standard.close()


@asynccontextmanager
async def over_process(
    command: Sequence[str],
    listener: Listener,
    tell: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
) -> AsyncGenerator[Connection, None]:
    """Start a bridge and give the block a connection to it; at the end of the block it has ended.

    `tell` is given each line of its stderr; `log` as in `Connection`. An exception of the block
    comes out as it is.

    Raises:
        OSError: it could not be started.
    """
    stderr, for_child = os.pipe()
    os.set_blocking(stderr, False)
    all_told = anyio.Event()

    async def forward() -> None:
        await LineForwarder(tell).run(stderr)
        all_told.set()

    try:
        try:
            bridge = await BridgeProcess.start(command, for_child, env=env, cwd=cwd)
        finally:
            os.close(for_child)
        async with beside() as tasks:
            tasks.start_soon(forward)
            try:
                async with connected(bridge.streams, listener, log=log) as connection:
                    yield connection
            finally:
                await bridge.end()
                with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_STDERR):
                    await all_told.wait()
    finally:
        os.close(stderr)
