"""Reads and writes a connected socket on the event loop, as a stream of bytes.

A transport of asyncio reads by itself as soon as it exists, and keeps what nobody has asked for: a
client that sends without end fills the memory with it. So there is no transport here.

Invariants
- Nothing is read unless `receive` is waiting, and then at most what it was asked for.
- A cancelled `receive` has taken no byte. A cancelled `send` may have sent a part.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio.abc import SocketStream

#: bytes that are read at once, and that the system keeps of an accepted connection (twice that).
CHUNK: Final = 1 << 13
_KEPT: Final = 1 << 16
#: the state of a TCP connection that is open both ways (Linux).
_ESTABLISHED: Final = 1
#: seconds after which the next address of a host is tried beside the one that has not answered.
_NEXT: Final = 0.25


class SocketBytes(SocketStream):
    """A connected socket as a stream of bytes; owns the socket."""

    def __init__(self, raw: socket.socket) -> None:
        """`raw`: a connected socket, TCP or UNIX."""
        raw.setblocking(False)
        if raw.family != socket.AF_UNIX:
            with suppress(OSError):  # the other end is gone already
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._raw = raw
        self._sending = anyio.Lock()

    @property
    def _raw_socket(self) -> socket.socket:
        return self._raw

    async def receive(self, max_bytes: int = CHUNK) -> bytes:
        """Wait for bytes, and return up to `max_bytes` of them; raises EndOfStream at the end."""
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._raw.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._raw)
                continue
            except OSError as exc:
                raise self._failed() from exc
            if not data:
                raise anyio.EndOfStream
            return data

    async def send(self, item: bytes) -> None:
        """Wait until the system has taken all bytes; several tasks send one after the other."""
        async with self._sending:
            with memoryview(item) as rest:
                sent = 0
                while sent < len(rest):
                    try:
                        sent += self._raw.send(rest[sent:])
                    except BlockingIOError:
                        await anyio.wait_writable(self._raw)
                    except OSError as exc:
                        raise self._failed() from exc

    async def send_eof(self) -> None:
        """Tell the other end that nothing more comes; it can still send."""
        with suppress(OSError):  # it is gone
            self._raw.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close the socket; whoever waits for it gets ClosedResourceError."""
        if self._raw.fileno() >= 0:
            anyio.notify_closing(self._raw)
            self._raw.close()
        await anyio.lowlevel.checkpoint()

    def _failed(self) -> Exception:
        closed = self._raw.fileno() < 0
        return anyio.ClosedResourceError() if closed else anyio.BrokenResourceError()


async def accept(listener: socket.socket) -> SocketBytes:
    """Wait for a connection on a listening socket that does not block; raises OSError.

    The system keeps little of what the other end sends ahead: it would have to be read even if
    nobody is at the other end any more.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT)
    while True:
        await anyio.wait_readable(listener)
        with suppress(BlockingIOError, ConnectionAbortedError):
            return SocketBytes(listener.accept()[0])


def has_left(raw: socket.socket) -> bool:
    """Return True if the other end of a TCP connection sends nothing more, even if bytes wait.

    Only Linux tells; elsewhere, and for a UNIX socket, it is False.
    """
    try:
        state = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except (OSError, AttributeError):
        return False
    return state != _ESTABLISHED


async def connect(host: str, port: int) -> SocketBytes:
    """Return a connection to the first address of a host that takes one; raises OSError."""
    addresses = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    won, failures = list[socket.socket](), list[OSError]()

    async def attempt(family: int, address: Any, ended: anyio.Event) -> None:
        try:
            raw = await _connected(family, address)
            if won:
                raw.close()
            else:
                won.append(raw)
                tasks.cancel_scope.cancel()
        except OSError as exc:
            failures.append(exc)
        finally:
            ended.set()

    try:
        async with anyio.create_task_group() as tasks:
            for family, _, _, _, address in addresses:
                tasks.start_soon(attempt, family, address, ended := anyio.Event())
                with anyio.move_on_after(_NEXT):
                    await ended.wait()
        await anyio.lowlevel.checkpoint_if_cancelled()
    except BaseException:
        for raw in won:
            raw.close()
        raise
    if not won:
        raise failures[-1]
    return SocketBytes(won[0])


async def _connected(family: int, address: Any) -> socket.socket:
    raw = socket.socket(family, socket.SOCK_STREAM)
    try:
        raw.setblocking(False)
        with suppress(BlockingIOError):
            raw.connect(address)
        await anyio.wait_writable(raw)
        if why := raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(why, os.strerror(why))
    except BaseException:
        raw.close()
        raise
    return raw
