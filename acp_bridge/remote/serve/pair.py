"""A connection within this process, over which a client speaks to the bridge."""

from __future__ import annotations

import anyio

from acp_bridge.core.wire.streams import Streams


class OneWay:
    """Carries bytes one way: it is the `Outgoing` of one end and the `Incoming` of the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._changed = anyio.Event()
        self._closed = anyio.Event()
        #: bytes that the other end has taken.
        self.taken = 0

    @property
    def pending(self) -> int:
        """The number of bytes that the other end has not taken yet."""
        return len(self._buffer)

    def write(self, data: bytes) -> None:
        """Queue bytes for the other end; they are dropped once either end has closed."""
        if not self._closed.is_set():
            self._buffer += data
            self._report()

    async def read(self) -> bytes:
        """Wait for bytes, and return all that were written; b"" at the end."""
        while not self._buffer and not self._closed.is_set():
            await self._changed.wait()
        data = bytes(self._buffer)
        self._buffer.clear()
        self.taken += len(data)
        self._report()
        return data

    async def run(self) -> None:
        """Wait until either end has closed."""
        await self._closed.wait()

    async def drain_below(self, limit: int) -> None:
        """Wait until fewer than `limit` bytes are pending, or either end has closed."""
        while self.pending >= limit and not self._closed.is_set():
            await self._changed.wait()

    async def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until the other end has taken all; returns whether it has."""
        with anyio.move_on_after(seconds):
            await self.drain_below(1)
        return not self.pending

    def close(self) -> None:
        """Close the connection; pending bytes can still be read."""
        self._closed.set()
        self._report()

    def _report(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def pair() -> tuple[Streams, Streams]:
    """Return the streams of the two ends of a new connection."""
    there, back = OneWay(), OneWay()
    return (back, there), (there, back)
