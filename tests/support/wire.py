"""A wire that can be cut, held up and cut into pieces: a relay between a client and a server.

What it carries stays in order, and is what was said up to the cut: it does nothing that TCP would
not do.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import TypeVar

import anyio
from anyio.abc import ByteStream, SocketAttribute

from acp_bridge.sharing.bridge_client.tasks import beside

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
#: bytes that are carried at once, and those of which one is drawn with `Wire.pieces`.
_AT_ONCE = 65536
_PIECE = 4096
#: the longest stretch after which a connection of `Wire.to_break` breaks.
_STRETCH = 6000


W = TypeVar("W", bound="Wire")


class Wire:
    """A relay to a server, byte for byte."""

    def __init__(self, dial: Callable[[], Awaitable[ByteStream]]) -> None:
        """`dial`: connects to the server."""
        self._dial = dial
        self.port = 0
        #: bytes of the server, and of the client, after which the wire breaks, None: it holds.
        self.breaks_after: int | None = None
        self.takes_only: int | None = None
        #: draws the length of each piece that is carried, None: as it comes.
        self.pieces: Random | None = None
        #: connections that will break by themselves, after a stretch that `pieces` draws.
        self.to_break = 0
        #: nobody gets through.
        self.down = False
        self.cuts = 0
        #: when connections ended, in monotonic seconds.
        self.ended: list[float] = []
        self._ends: list[ByteStream] = []
        #: set while nothing holds up what is said.
        self._flows = anyio.Event()
        self._flows.set()

    async def cut(self) -> None:
        """Break what is connected."""
        self.cuts += 1
        self.breaks_after = self.takes_only = None
        ends, self._ends = self._ends, []
        await _closed(*ends)

    def hold(self) -> None:
        """Carry nothing until `flow`."""
        if self._flows.is_set():
            self._flows = anyio.Event()

    def flow(self) -> None:
        """Carry what was said, and what comes."""
        self._flows.set()

    def mend(self) -> None:
        """Nothing happens to what is said from now on."""
        self.down, self.to_break = False, 0
        self.breaks_after = self.takes_only = None
        self.flow()

    async def take(self, near: ByteStream) -> None:
        """Pass on what one connection says, in both directions, until it is cut."""
        try:
            far = None if self.down else await self._dial()
        except OSError:  # the server is not there
            far = None
        if far is None:
            await _closed(near)
            return
        if self.to_break and self.pieces:
            self.to_break -= 1
            way = self.pieces.choice(["breaks_after", "takes_only"])
            setattr(self, way, self.pieces.randrange(1, _STRETCH))
        self._ends += [near, far]
        try:
            with suppress(*_GONE):
                await self.introduce(near, far)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._carry, near, far, "takes_only", tasks.cancel_scope)
                tasks.start_soon(self._carry, far, near, "breaks_after", tasks.cancel_scope)
        finally:
            self.ended.append(time.monotonic())
            await _closed(near, far)
        self._ends = [each for each in self._ends if each not in (near, far)]

    async def introduce(self, near: ByteStream, far: ByteStream) -> None:
        """Do what comes before all is carried as it is said."""

    async def _carry(
        self, one: ByteStream, other: ByteStream, left: str, scope: anyio.CancelScope
    ) -> None:
        """Carry one direction; `left`: the attribute with the bytes that may still pass."""
        with suppress(*_GONE):
            while True:
                longest = self.pieces.randrange(1, _PIECE) if self.pieces else _AT_ONCE
                data = await one.receive(longest)
                await self._flows.wait()
                may_pass: int | None = getattr(self, left)
                if may_pass is not None and len(data) >= may_pass:
                    await other.send(data[:may_pass])
                    await self.cut()
                    break
                if may_pass is not None:
                    setattr(self, left, may_pass - len(data))
                await other.send(data)
        scope.cancel()


async def _closed(*ends: ByteStream) -> None:
    """Close connections, with what they have not sent yet."""
    with anyio.CancelScope(shield=True):
        for end in ends:
            await end.aclose()


@asynccontextmanager
async def wire(dial: Callable[[], Awaitable[ByteStream]], port: int = 0) -> AsyncIterator[Wire]:
    """Give a wire on the loopback of this machine; `port` 0: on any."""
    async with laid(Wire(dial), port) as it:
        yield it


@asynccontextmanager
async def laid(it: W, port: int = 0) -> AsyncIterator[W]:
    """Lay a wire as `wire` does."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener,
        beside() as tasks,
    ):
        it.port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(listener.serve, it.take)
        yield it
