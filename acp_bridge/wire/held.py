"""The outgoing stream of a connection, on which bytes can be held back for a while.

Bytes written after a hold are sent when that hold and all earlier ones have ended, in the order of
writing. No writer waits meanwhile; bytes that are held back count as `pending`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from acp_bridge.wire.streams import Outgoing


class _Hold:
    """One hold, and the bytes that were written after it and before the next one."""

    __slots__ = ("data", "over")

    def __init__(self) -> None:
        self.data = bytearray()
        self.over = False


class Held:
    """Passes bytes on to a stream in their order, and keeps those after a hold until it has ended.

    It is an `Outgoing` itself, and owns the stream that it passes them on to.
    """

    def __init__(self, to: Outgoing) -> None:
        """`to`: the stream that gets the bytes."""
        self._to = to
        self._holds: deque[_Hold] = deque()
        self._bytes = 0
        self._let_go = anyio.Event()

    def hold(self) -> Callable[[], None]:
        """Hold back all bytes that are written from now on; returns the function that ends this."""
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
        """Send `data` now, or as soon as there is room and no earlier hold is left."""
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
        self._holds.clear()
        self._bytes = 0
        self._let_go.set()
        self._to.close()
