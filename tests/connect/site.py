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
from anyio.abc import ByteStream, SocketAttribute, SocketStream, TaskGroup
from anyio.streams.tls import TLSStream
from websockets.http11 import Request

from acp_bridge.bridge_client.tasks import beside
from acp_bridge.remote.websocket import WebSocket, opened, server_protocol
from acp_bridge.wire.jsonrpc import Decoder
from tests.connect.model import Server

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


class Cutter:
    """A line that loses its connections after some bytes, and hands bytes over in pieces."""

    def __init__(self, port: int, rng: Random, cuts: int) -> None:
        self.there, self._rng = port, rng
        self.cuts = cuts
        self.port = 0
        self._open: list[TaskGroup] = []

    def cut(self) -> None:
        """Let the connections drop that there are."""
        for tasks in self._open:
            tasks.cancel_scope.cancel()

    async def take(self, here: SocketStream) -> None:
        """Carry one connection, until it is cut or one of its ends is gone."""
        async with here:
            with suppress(*_GONE, OSError):
                async with await anyio.connect_tcp("127.0.0.1", self.there) as there:
                    await self._introduce(here, there)
                    await self._carry(here, there)

    async def _introduce(self, here: SocketStream, there: SocketStream) -> None:
        """Pass the request on under the name that the server has."""
        request = b""
        while b"\r\n\r\n" not in request:
            request += await here.receive()
        here_name, there_name = (f"127.0.0.1:{each}" for each in (self.port, self.there))
        await there.send(request.replace(here_name.encode(), there_name.encode()))

    async def _carry(self, here: SocketStream, there: SocketStream) -> None:
        left = self._rng.randrange(1, 6000) if self.cuts > 0 else 1 << 30
        self.cuts -= 1

        async def carry(one: SocketStream, other: SocketStream) -> None:
            nonlocal left
            with suppress(*_GONE):
                while left > 0:
                    data = await one.receive(self._rng.randrange(1, 4096))
                    await other.send(data[:left])
                    left -= len(data)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            self._open.append(tasks)
            tasks.start_soon(carry, here, there)
            tasks.start_soon(carry, there, here)


@asynccontextmanager
async def cutter(port: int, seed: int, cuts: int) -> AsyncIterator[Cutter]:
    it = Cutter(port, Random(seed), cuts)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        it.port = listener.extra(SocketAttribute.local_port)
        async with beside() as tasks:
            tasks.start_soon(listener.serve, it.take)
            yield it


def logged_in(home: Path, port: int, token: str = TOKEN, **more: Any) -> list[str]:
    """Keep a token for a server; returns the command that connects with it."""
    url = f"ws://127.0.0.1:{port}/acp"
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "connect.json"
    file.write_text(json.dumps({url: {"token": token, "certificate": None, **more}}))
    file.chmod(0o600)
    return ["connect", url, "--home", str(home)]
