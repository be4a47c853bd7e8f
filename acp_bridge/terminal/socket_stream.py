"""A unix socket as a stream of bytes.

anyio's own sets the result of a wait that may have ended: what comes while it is closed would be
told on stderr as an error of the event loop.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

import anyio
import anyio.lowlevel

_PIECE: Final = 65536


class SocketStream:
    """A connection to a bridge."""

    def __init__(self, connection: socket.socket) -> None:
        """`connection` is owned here, and does not block."""
        self._socket = connection

    async def receive(self) -> bytes:
        """Return what is there; raises EndOfStream, BrokenResourceError, ClosedResourceError."""
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._socket.recv(_PIECE)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError as exc:
                raise anyio.BrokenResourceError from exc
            else:
                break
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes, /) -> None:
        """Return when the bytes are taken; raises as `receive` does."""
        await anyio.lowlevel.checkpoint()
        while item:
            try:
                item = item[self._socket.send(item) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as exc:
                raise anyio.BrokenResourceError from exc

    def end_sending(self) -> None:
        """Let the other end read no more than was sent; what it sends can still be received."""
        with suppress(OSError):  # it is gone
            self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close it; who waits for it gets ClosedResourceError."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
