"""Reads what a guard reports over its control socket (`guard`)."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Final

import anyio

#: seconds after which a guard that has not reported the start is continued, in case it was stopped.
_CONTINUE: Final = 0.5


class GuardReports:
    """Reads the reports of one guard, for one task at a time. The socket stays the caller's."""

    def __init__(self, control: socket.socket) -> None:
        """`control` does not block."""
        self._control = control
        self._received = b""

    async def first(self, send_signal: Callable[[int], object]) -> list[str] | None:
        """Return the guard's first report, as `next` does; the caller bounds the wait.

        The agent may stop its guard at once, before the guard has reported the start. So the guard
        is continued with `send_signal` as long as it is silent.
        """
        while True:
            with anyio.move_on_after(_CONTINUE):
                return await self.next()
            send_signal(signal.SIGCONT)

    async def next(self) -> list[str] | None:
        """Wait for the guard's next report and return its words, None once the guard has ended."""
        while b"\n" not in self._received:
            try:
                data = self._control.recv(4096)
            except BlockingIOError:
                await anyio.wait_readable(self._control)
                continue
            except OSError:
                return None
            if not data:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode().split()
