"""The way to the other end of a connection, on which what is written can be held back for a while.

What stands behind a hold leaves when that hold and all before it were let go, in the order of
writing. Nobody waits meanwhile; what is held counts as `pending`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from acp_bridge.wire.streams import Outgoing


class _Hold:
    """One hold, and the bytes that were written behind it and before the next one."""

    __slots__ = ("data", "over")

    def __init__(self) -> None:
        self.data = bytearray()
        self.over = False


class Held:
    """Passes bytes on to a stream in their order, and keeps those behind a hold until it is over.

    It is an `Outgoing`, and owns the one that it is given.
    """

    def __init__(self, to: Outgoing) -> None:
        """Nothing is held."""
        self._to = to
        self._holds: deque[_Hold] = deque()
        self._bytes = 0
        self._let_go = anyio.Event()

    def hold(self) -> Callable[[], None]:
        """Hold back what is written from now on; returns what lets it go."""
        hold = _Hold()
        self._holds.append(hold)

        def let_go() -> None:
            hold.over = True
            self._pass_on()

        return let_go

    def _pass_on(self) -> None:
        while self._holds and self._holds[0].over:
            data = self._holds.popleft().data
            self._bytes -= len(data)
            if data:
                self._to.write(bytes(data))
        self._let_go.set()
        self._let_go = anyio.Event()

    def write(self, data: bytes) -> None:
        """Send now or as soon as there is room and nothing before it is held."""
        if self._holds:
            self._holds[-1].data += data
            self._bytes += len(data)
        else:
            self._to.write(data)

    @property
    def pending(self) -> int:
        """The number of bytes that the system has not taken yet."""
        return self._to.pending + self._bytes

    @property
    def taken(self) -> int:
        """The number of bytes that the system has taken since the start."""
        return self._to.taken

    def run(self) -> Coroutine[Any, Any, None]:
        """Write what is pending, until cancelled or until the other end is gone."""
        return self._to.run()

    async def drain_below(self, limit: int) -> None:
        """Wait until fewer than `limit` bytes are pending, or the other end is gone.

        Whoever holds something back lets it go in time.
        """
        while self._bytes and self.pending >= limit:
            await self._let_go.wait()
        await self._to.drain_below(limit)

    async def flush(self, seconds: float) -> bool:
        """Wait at most that long until all is written; returns whether it is."""
        with anyio.move_on_after(seconds):
            while self._bytes:
                await self._let_go.wait()
            return await self._to.flush(seconds)
        return False

    def close(self) -> None:
        """Close the way; what is pending is dropped."""
        self._holds.clear()
        self._bytes = 0
        self._let_go.set()
        self._to.close()
