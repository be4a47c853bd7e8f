"""A proxy between the adapter and the agent-server that cuts, swallows and delays at named points.

    async with Proxy(server.port) as proxy:
        proxy.strike(Point("POST events", 1, When.ANSWERED), Deed.CUT)
        ...                # the adapter is given proxy.url
        proxy.points       # every point that was passed, in order

A point is an HTTP request or a frame of the server's on the WebSocket, counted by its name. The
deed is done once. Compression is refused for the adapter, so that frames can be read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import ByteStream, SocketAttribute, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.support.tasks import end_tasks

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
_GONE_IN_THE_MIDDLE = (*_GONE, anyio.IncompleteRead)
_LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
_EXTENSIONS = re.compile(rb"^sec-websocket-extensions:.*\r\n", re.IGNORECASE | re.MULTILINE)
_KEY = re.compile(rb"^sec-websocket-key: *(\S+)", re.IGNORECASE | re.MULTILINE)
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_LARGE = 64 << 20


class When(Enum):
    #: a request: the server gets nothing of it; a frame: the adapter doesn't
    BEFORE = auto()
    #: a request: the server has done it, the adapter gets nothing of the answer
    ANSWERED = auto()
    #: the adapter gets half of the answer, or of the frame
    HALF = auto()


class Deed(Enum):
    #: the connection ends
    CUT = auto()
    #: the connection stays, and nothing more crosses it
    SWALLOW = auto()
    #: it waits until the test says `go`
    DELAY = auto()


@dataclass(frozen=True, slots=True)
class Point:
    #: "POST events", "GET search", "socket", "StreamingDeltaEvent", "execution_status finished"
    name: str
    #: from 1
    number: int
    when: When

    def __str__(self) -> str:
        return f"{self.name} {self.number} {self.when.name.lower()}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the proxy answers in the server's place: a status, or a close after the accept."""

    status: int = 101
    code: int = 0
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.code} {self.reason}" if self.code else f"HTTP {self.status}"

    def answer(self, head: bytes) -> bytes:
        """All that the adapter gets for its handshake."""
        if not self.code:
            return b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self.status
        found = _KEY.search(head)
        assert found
        accept = base64.b64encode(hashlib.sha1(found[1] + _MAGIC).digest())
        lines = (
            b"HTTP/1.1 101 Switching Protocols",
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Accept: " + accept,
        )
        body = self.code.to_bytes(2) + self.reason.encode()
        return b"\r\n".join(lines) + b"\r\n\r\n" + bytes([0x88, len(body)]) + body


class _Cut(Exception):
    pass


class Proxy:
    """`async with`; an ephemeral port."""

    def __init__(self, port: int) -> None:
        self.points: list[Point] = []
        #: the deed was done
        self.struck = anyio.Event()
        self._port = port
        self._count: Counter[str] = Counter()
        self._deeds: dict[Point, Deed] = {}
        self._go = anyio.Event()
        self._news = anyio.Event()
        self._refusing = False
        self.refusal: Refusal | None = None
        self._open: set[_Connection] = set()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._serve, listener)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await end_tasks(self._tasks, exc)

    def strike(self, point: Point, deed: Deed) -> None:
        """Once, when this point is reached."""
        self._deeds[point] = deed

    def count(self, name: str) -> int:
        """How often a point of this name was begun."""
        return self._count[name]

    async def passed(self, name: str, count: int, within: float) -> None:
        """Until a point of this name was begun so often."""
        with anyio.fail_after(within):
            while self._count[name] < count:
                await self._news.wait()

    def go(self) -> None:
        """Lets what is delayed go on."""
        self._go.set()

    def refuse_sockets(self, refusal: Refusal | None) -> None:
        """Of every WebSocket from now on, until it is None."""
        self.refusal = refusal

    async def cut_all(self, *, refuse: bool = False) -> None:
        """Cuts every connection; with `refuse`, new ones are cut as well until `accept`."""
        self._refusing = refuse
        for connection in list(self._open):
            await connection.abort()

    def accept(self) -> None:
        self._refusing = False

    async def pass_by(self, name: str, when: When) -> Deed | None:
        """The deed to do here; a delay has been waited for."""
        if when is When.BEFORE:
            self._count[name] += 1
        point = Point(name, self._count[name], when)
        self.points.append(point)
        self._news.set()
        self._news = anyio.Event()
        deed = self._deeds.pop(point, None)
        if deed is None:
            return None
        self.struck.set()
        if deed is Deed.CUT:
            raise _Cut
        if deed is Deed.SWALLOW:
            await anyio.sleep_forever()
        await self._go.wait()
        return deed

    async def _serve(self, listener: Any) -> None:
        async with listener:
            await listener.serve(self._connection, self._tasks)

    async def _connection(self, client: ByteStream) -> None:
        if self._refusing:
            await client.aclose()
            return
        with suppress(*_GONE):
            server = await anyio.connect_tcp("127.0.0.1", self._port)
            connection = _Connection(self, client, server)
            self._open.add(connection)
            try:
                await connection.run()
            finally:
                self._open.discard(connection)
                await connection.abort()


class _Connection:
    def __init__(self, proxy: Proxy, client: ByteStream, server: ByteStream) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._from_client = BufferedByteReceiveStream(client)
        self._from_server = BufferedByteReceiveStream(server)

    async def run(self) -> None:
        with suppress(_Cut, *_GONE_IN_THE_MIDDLE):
            while True:
                head = await self._from_client.receive_until(b"\r\n\r\n", _LARGE) + b"\r\n\r\n"
                if b"\nupgrade: websocket" in head.lower():
                    await self._socket(_EXTENSIONS.sub(b"", head))
                    return
                await self._request(head)

    async def abort(self) -> None:
        with anyio.CancelScope(shield=True):
            for stream in (self._client, self._server):
                with suppress(*_GONE):
                    await anyio.aclose_forcefully(stream)

    async def _request(self, head: bytes) -> None:
        name = _name(head)
        body = await self._body(self._from_client, head)
        await self._proxy.pass_by(name, When.BEFORE)
        await self._server.send(head + body)
        answer = await self._from_server.receive_until(b"\r\n\r\n", _LARGE) + b"\r\n\r\n"
        answer += await self._body(self._from_server, answer)
        await self._proxy.pass_by(name, When.ANSWERED)
        await self._halves(name, answer)

    async def _halves(self, name: str, data: bytes) -> None:
        middle = len(data) // 2
        await self._client.send(data[:middle])
        await self._proxy.pass_by(name, When.HALF)
        await self._client.send(data[middle:])

    @staticmethod
    async def _body(stream: BufferedByteReceiveStream, head: bytes) -> bytes:
        found = _LENGTH.search(head)
        return await stream.receive_exactly(int(found[1])) if found and int(found[1]) else b""

    async def _socket(self, head: bytes) -> None:
        await self._proxy.pass_by("socket", When.BEFORE)
        if self._proxy.refusal:
            await self._client.send(self._proxy.refusal.answer(head))
            with anyio.move_on_after(1):  # for its close
                await self._from_client.receive()
            return
        await self._server.send(head)
        answer = await self._from_server.receive_until(b"\r\n\r\n", _LARGE) + b"\r\n\r\n"
        await self._proxy.pass_by("socket", When.ANSWERED)
        await self._client.send(answer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._up)
            with suppress(_Cut, *_GONE_IN_THE_MIDDLE):
                while True:
                    await self._frame()
            tasks.cancel_scope.cancel()

    async def _up(self) -> None:
        with suppress(*_GONE):
            while True:
                await self._server.send(await self._from_client.receive())

    async def _frame(self) -> None:
        first, length = await self._from_server.receive_exactly(2)
        head = bytes([first, length])
        for mark, size in ((126, 2), (127, 8)):
            if length == mark:
                extra = await self._from_server.receive_exactly(size)
                head, length = head + extra, int.from_bytes(extra)
        data = await self._from_server.receive_exactly(length) if length else b""
        if first & 0x0F != 1:
            await self._client.send(head + data)
            return
        name = _frame_name(data)
        await self._proxy.pass_by(name, When.BEFORE)
        await self._halves(name, head + data)


def _name(head: bytes) -> str:
    """Such as "POST events": the method and the last word of the path."""
    method, path = head.decode("latin-1").split(" ")[:2]
    word = _ID.sub("ID", path.partition("?")[0]).rstrip("/").rpartition("/")[2]
    return f"{method} {word}"


def _frame_name(data: bytes) -> str:
    """Such as "StreamingDeltaEvent", "MessageEvent user", "execution_status finished"."""
    event = json.loads(data)
    match event.get("kind"):
        case "ConversationStateUpdateEvent" if event["key"] == "full_state":
            return f"full_state {event['value'].get('execution_status')}"
        case "ConversationStateUpdateEvent" if event["key"] == "execution_status":
            return f"execution_status {event['value']}"
        case "ConversationStateUpdateEvent":
            return str(event["key"])
        case "MessageEvent":
            return f"MessageEvent {event['source']}"
    return str(event.get("kind"))
