"""A way to a server over TCP that can hang: nothing comes through, and nobody is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream

_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class _Flow:
    """Whether bytes come through some connections."""

    def __init__(self) -> None:
        self.goes_on = anyio.Event()
        self.goes_on.set()


class Forwarder:
    """Passes bytes on both ways between a port of its own and a server's, unless it hangs."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        #: the port of its own.
        self.port = 0
        #: that of new connections, and all that there are.
        self._flow = _Flow()
        self._flows = [self._flow]
        self._news = anyio.Event()

    def hang(self, *, anew: bool = True) -> None:
        """From now on take everything, and pass nothing on.

        `anew`: on new connections, too; else those are as if nothing were the matter.
        """
        self._news = anyio.Event()
        for flow in self._flows:
            flow.goes_on = anyio.Event()
        if not anew:
            self._flow = _Flow()
            self._flows.append(self._flow)

    def flow(self) -> None:
        """Pass on what was taken, and all that comes."""
        for flow in self._flows:
            flow.goes_on.set()

    async def asked(self) -> None:
        """Until somebody has sent something that is not passed on."""
        with anyio.fail_after(5):
            await self._news.wait()

    async def _one(self, client: SocketStream) -> None:
        flow = self._flow
        async with client:
            await flow.goes_on.wait()
            async with (
                await anyio.connect_tcp(*self._to) as server,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(self._pass, flow, client, server)
                tasks.start_soon(self._pass, flow, server, client)

    async def _pass(self, flow: _Flow, source: ByteReceiveStream, target: ByteSendStream) -> None:
        with suppress(*_BROKEN):
            while True:
                data = await source.receive()
                if not flow.goes_on.is_set():
                    self._news.set()
                    await flow.goes_on.wait()
                await target.send(data)
        with suppress(*_BROKEN):
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
