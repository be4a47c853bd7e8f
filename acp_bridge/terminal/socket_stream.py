"""A unix socket as a stream of bytes.

anyio's own sets the result of a wait that may have ended: what comes while it is closed would be
told on stderr as an error of the event loop.
"""

from __future__ import annotations

import socket
from typing import Final

import anyio
import anyio.lowlevel

_PIECE: Final = 65536


class SocketStream:
    """A connection to a bridge; owns its socket."""

    def __init__(self, path: str) -> None:
        """Connect without waiting: a bridge with a full backlog refuses. Raises OSError."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.setblocking(False)
            self._socket.connect(path)
        except BaseException as exc:
            self._socket.close()
            if isinstance(exc, ValueError):  # a NUL in the path
                raise OSError(str(exc)) from exc
            raise

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

    async def aclose(self) -> None:
        """Close it; who waits for it gets ClosedResourceError."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
