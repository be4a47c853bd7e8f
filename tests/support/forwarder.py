"""A way to a server over TCP that can hang: nothing comes through, and nobody is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream


class Forwarder:
    """Passes bytes on both ways between a port of its own and a server's, unless it hangs."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        #: the port of its own.
        self.port = 0
        self._flows = anyio.Event()
        self._flows.set()
        #: bytes that came since it hangs.
        self.held = 0
        self._news = anyio.Event()

    def hang(self) -> None:
        """From now on take everything, also new connections, and pass nothing on."""
        self._flows, self.held, self._news = anyio.Event(), 0, anyio.Event()

    def flow(self) -> None:
        """Pass on what was taken, and all that comes."""
        self._flows.set()

    async def asked(self) -> None:
        """Until somebody has sent something that is not passed on."""
        with anyio.fail_after(5):
            await self._news.wait()

    async def _one(self, client: SocketStream) -> None:
        async with client:
            await self._flows.wait()
            async with (
                await anyio.connect_tcp(*self._to) as server,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(self._pass, client, server)
                tasks.start_soon(self._pass, server, client)

    async def _pass(self, source: ByteReceiveStream, target: ByteSendStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            with suppress(anyio.EndOfStream):
                while True:
                    data = await source.receive()
                    if not self._flows.is_set():
                        self.held += len(data)
                        self._news.set()
                        await self._flows.wait()
                    await target.send(data)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await target.aclose()


@asynccontextmanager
async def forwarder(host: str, port: int) -> AsyncIterator[Forwarder]:
    """Give a forwarder that flows, to a server that listens there."""
    made = Forwarder(host, port)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        made.port = listener.extra(SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, made._one)
            yield made
            tasks.cancel_scope.cancel()
