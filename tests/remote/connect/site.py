"""The model's server behind a real WebSocket, and a line to it that is cut and halved."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from ssl import SSLContext
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream
from websockets.http11 import Request

from acp_bridge.core.wire.jsonrpc import Decoder
from acp_bridge.remote.serve.websocket import WebSocket, opened, server_protocol
from acp_bridge.sharing.bridge_client.tasks import beside
from tests.remote.connect.model import Server
from tests.support.wire import Wire, laid

TOKEN = "acpb_token-of-a-test"
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class Site:
    """A server that runs what it is asked for, whether or not anybody listens."""

    def __init__(self, rng: Random) -> None:
        self.server = Server()
        self.token = TOKEN
        self.port = 0
        self.lines = 0
        self._rng = rng
        self._line: WebSocket | None = None
        self._wake = anyio.Event()

    async def run(self) -> None:
        """Let things happen until no prompt waits, and again when one does."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while any(each.waiting for each in self.server.sessions.values()):
                self.happens()
                for _ in range(self._rng.randrange(1, 20)):
                    await anyio.lowlevel.checkpoint()

    async def take(self, stream: ByteStream) -> None:
        """Serve one connection; one that comes later takes its place."""
        with suppress(*_GONE):
            protocol = server_protocol()
            while not (events := protocol.events_received()):
                protocol.receive_data(await stream.receive())
            (request,) = events
            assert isinstance(request, Request)
            assert request.path == "/acp"
            is_in = request.headers["Authorization"] == f"Bearer {self.token}"
            refusal = None if is_in else protocol.reject(401, "the token is not known\n")
            protocol.send_response(refusal or protocol.accept(request))
            await stream.send(b"".join(protocol.data_to_send()))
            if is_in:
                async with opened(stream, protocol) as line:
                    await self._serve(line)

    async def _serve(self, line: WebSocket) -> None:
        self.lines += 1
        self._line = line
        self.server.connect()
        decoder = Decoder()
        while (data := await line.read()) and self._line is line:
            for message in decoder.feed(data):
                assert isinstance(message, dict)
                self.server.take(message)
                self.tell()
                self._wake.set()

    def cut(self) -> None:
        """Let the line drop without a word."""
        if self._line is not None:
            self._line._buffer.clear()
            self._line._end("cut")
            self._line = None

    def happens(self) -> None:
        """Let something happen in each session, and say what is to be said."""
        for session in list(self.server.sessions.values()):
            for _ in range(self._rng.randrange(3)):
                self.server.step(session, self._rng.choice((0, 1, 2, 0, 1, 6)))
        self.tell()

    def tell(self) -> None:
        out, self.server.out = self.server.out, []
        for message in out:
            if self._line is not None:
                self._line.write(json.dumps(message).encode() + b"\n")


@asynccontextmanager
async def site(seed: int = 0, tls: SSLContext | None = None) -> AsyncIterator[Site]:
    it = Site(Random(seed))

    async def take(stream: SocketStream) -> None:
        async with stream:
            with suppress(*_GONE, OSError):
                secure = tls and await TLSStream.wrap(
                    stream, ssl_context=tls, server_side=True, standard_compatible=False
                )
                await it.take(secure or stream)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        it.port = listener.extra(SocketAttribute.local_port)
        async with beside() as tasks:
            tasks.start_soon(listener.serve, take)
            tasks.start_soon(it.run)
            yield it


class Cutter(Wire):
    """A wire to a server on a port of this machine, which is asked under its own name."""

    def __init__(self, there: int) -> None:
        super().__init__(self._reach)
        self.there = there

    async def _reach(self) -> ByteStream:
        return await anyio.connect_tcp("127.0.0.1", self.there)

    async def introduce(self, near: ByteStream, far: ByteStream) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += await near.receive()
        named, known = (f"127.0.0.1:{each}".encode() for each in (self.port, self.there))
        await far.send(request.replace(named, known))


@asynccontextmanager
async def cutter(port: int, seed: int, cuts: int) -> AsyncIterator[Cutter]:
    """A line that loses its connections after some bytes, and hands bytes over in pieces."""
    async with laid(Cutter(port)) as it:
        it.pieces, it.to_break = Random(seed), cuts
        yield it


def logged_in(home: Path, port: int, token: str = TOKEN, **more: Any) -> list[str]:
    """Keep a token for a server; returns the command that connects with it."""
    url = f"ws://127.0.0.1:{port}/acp"
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "connect.json"
    file.write_text(json.dumps({url: {"token": token, "certificate": None, **more}}))
    file.chmod(0o600)
    return ["connect", url, "--home", str(home)]
