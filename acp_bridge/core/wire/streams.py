"""The two directions of a connection, as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import anyio

from acp_bridge.core.wire.jsonrpc import Decoder

#: the lines that are read beyond the limit of bytes that wait.
_LINES: Final = 32


class Incoming(Protocol):
    """The stream of bytes from the other end of a connection (`wire.stdio.Reader`)."""

    async def read(self) -> bytes: ...
    def close(self) -> None: ...


class Lines(Protocol):
    """What is fed the bytes of a stream (`wire.peer.Peer`)."""

    @property
    def decoder(self) -> Decoder: ...
    def feed(self, data: bytes) -> None: ...
    def eof(self) -> None: ...


async def next_bytes(
    incoming: Incoming, decoder: Decoder, feed: Callable[[bytes], object], seconds: float
) -> bytes:
    """Return the next bytes of a stream, b"" at the end.

    If `decoder` waits for the rest of a message, and nothing comes for that many seconds, `feed`
    is given b"".
    """
    if decoder.waits:
        with anyio.move_on_after(seconds):
            return await incoming.read()
        feed(b"")
    return await incoming.read()


class Outgoing(Protocol):
    """The stream of bytes to the other end of a connection (`wire.stdio.Writer`)."""

    @property
    def pending(self) -> int: ...
    @property
    def taken(self) -> int: ...
    def write(self, data: bytes) -> None: ...
    async def run(self) -> None: ...
    async def drain_below(self, limit: int) -> None: ...
    async def flush(self, seconds: float) -> bool: ...
    def close(self) -> None: ...


Streams: TypeAlias = tuple[Incoming, Outgoing]


class Allowance:
    """The lines that are read while the other end does not take what it is sent.

    A few are read over any line, however slow, so a Stop is read at once.
    """

    def __init__(self, outgoing: Outgoing, limit: int) -> None:
        """`limit`: the bytes that may wait for the other end while it is read as ever."""
        self._outgoing, self._limit = outgoing, limit
        self._left = _LINES

    def count(self, lines: int) -> None:
        """Note that so many lines were read that may have an answer."""
        self._left -= lines

    async def room(self) -> None:
        """Wait until more may be read."""
        if self._outgoing.pending >= self._limit and self._left <= 0:
            await self._outgoing.drain_below(self._limit)
        if self._outgoing.pending < self._limit:
            self._left = _LINES
