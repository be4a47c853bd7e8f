"""The outgoing stream of a connection, on whose lanes bytes can be held back for a while.

A lane has a name. Bytes written to a lane after a hold of it are sent when that hold, and all
earlier ones of the lane, have ended, in the order of writing. All other bytes are sent at once:
those of other lanes, and those of no lane. No writer waits meanwhile. Bytes that are held back
count as `pending`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import anyio

from acp_bridge.core.wire.streams import Outgoing


class Laned(Outgoing, Protocol):
    """An outgoing stream that has lanes."""

    def write(self, data: bytes, lane: str | None = None) -> None:
        """Send `data` behind what is held back on its lane; without a lane at once."""


class _Hold:
    """One hold of a lane, and the bytes that were written to it after that and before the next."""

    __slots__ = ("data", "over")

    def __init__(self) -> None:
        self.data = bytearray()
        self.over = False


class Held:
    """Passes bytes on to a stream, and keeps those of a lane after a hold until that has ended.

    It is an `Outgoing` itself, and owns the stream that it passes them on to.
    """

    def __init__(self, to: Outgoing) -> None:
        """`to`: the stream that gets the bytes."""
        self._to = to
        #: the holds of each lane that has any, the oldest first.
        self._lanes: dict[str, deque[_Hold]] = {}
        self._bytes = 0
        self._let_go = anyio.Event()

    def hold(self, lane: str) -> Callable[[], None]:
        """Hold back all bytes written to a lane from now on; returns the function that ends it."""
        hold = _Hold()
        self._lanes.setdefault(lane, deque()).append(hold)

        def let_go() -> None:
            hold.over = True
            self._pass_on(lane)

        return let_go

    def _pass_on(self, lane: str) -> None:
        holds = self._lanes.get(lane, deque())
        while holds and holds[0].over:
            data = holds.popleft().data
            self._bytes -= len(data)
            if data:
                self._to.write(bytes(data))
        if not holds:
            self._lanes.pop(lane, None)
        self._let_go.set()
        self._let_go = anyio.Event()

    def held_lane(self, *names: str) -> str | None:
        """Return the first of these names whose lane is held; None if none is."""
        return next((name for name in names if name in self._lanes), None)

    def write(self, data: bytes, lane: str | None = None) -> None:
        """Send `data` now, or as soon as there is room and no earlier hold of its lane is left."""
        if lane is not None and (holds := self._lanes.get(lane)):
            holds[-1].data += data
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

        Bytes that are held back are waited for, too: whoever called `hold` must end it in time.
        """
        while self._bytes and self.pending >= limit:
            await self._let_go.wait()
        await self._to.drain_below(limit)

    async def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` seconds until all is written; returns whether it is."""
        with anyio.move_on_after(seconds):
            while self._bytes:
                await self._let_go.wait()
            return await self._to.flush(seconds)
        return False

    def close(self) -> None:
        """Close the stream; bytes that are pending are dropped."""
        self._lanes.clear()
        self._bytes = 0
        self._let_go.set()
        self._to.close()
