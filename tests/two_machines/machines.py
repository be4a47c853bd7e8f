"""The two machines, and a wire between them that can be cut."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
from anyio.abc import ByteStream

from acp_bridge.bridge_client.tasks import beside

PORT = 8765
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


@dataclass(frozen=True, slots=True)
class Machine:
    """A network namespace, its address, and its end of the cable."""

    name: str
    address: str
    end: str


HOME = Machine("acp-home", "10.99.0.1", "home0")
AWAY = Machine("acp-away", "10.99.0.2", "away0")


def at(machine: Machine, *command: str) -> list[str]:
    """Return the words that run a command on a machine."""
    return ["ip", "netns", "exec", machine.name, *command]


class Wire:
    """A relay on this machine to the server on the other one, byte for byte."""

    def __init__(self) -> None:
        #: bytes of the server after which the wire breaks, None: it holds.
        self.breaks_after: int | None = None
        #: nobody gets through.
        self.down = False
        self.cuts = 0
        self._ends: list[ByteStream] = []

    async def cut(self) -> None:
        """Break what is connected."""
        self.cuts += 1
        self.breaks_after = None
        for end in self._ends:
            await anyio.aclose_forcefully(end)
        self._ends.clear()

    async def take(self, near: ByteStream) -> None:
        """Pass on what one connection says, in both directions, until it is cut."""
        if self.down:
            await anyio.aclose_forcefully(near)
            return
        far = await anyio.connect_tcp(HOME.address, PORT)
        self._ends += [near, far]
        with suppress(*_GONE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass, near, far)
                with suppress(*_GONE):
                    await self._back(far, near)
                tasks.cancel_scope.cancel()
        for end in (near, far):
            await anyio.aclose_forcefully(end)

    async def _pass(self, near: ByteStream, far: ByteStream) -> None:
        with suppress(*_GONE):
            while True:
                await far.send(await near.receive())

    async def _back(self, far: ByteStream, near: ByteStream) -> None:
        while True:
            data = await far.receive(4096)
            if self.breaks_after is not None:
                data, rest = data[: self.breaks_after], data[self.breaks_after :]
                self.breaks_after -= len(data)
                if rest or not self.breaks_after:
                    await near.send(data)
                    await self.cut()
                    return
            await near.send(data)


@asynccontextmanager
async def wire() -> AsyncIterator[Wire]:
    """Give a wire on the loopback of this machine, on the server's own port."""
    it = Wire()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=PORT) as listener,
        beside() as tasks,
    ):
        tasks.start_soon(listener.serve, it.take)
        yield it
