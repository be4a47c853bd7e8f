"""A provider of models on the loopback, inside the test's process: real HTTP, no network.

    async with ModelServer() as server:
        server.say(Text("Hello "), Call("read_file", '{"path": "a"}'))   # the next answer
        server.say(Status(429))                                          # and the one after it
        ...  # OPENAI_BASE_URL: server.openai_url, ANTHROPIC_BASE_URL: server.anthropic_url
        server.requests[0].body["messages"]

It speaks OpenAI's chat completions and Responses, Anthropic's messages and Gemini's form, by the
path of the request. Replies are given in the order of `say`; after them `server.answer` makes one
from the body. Without either, a last user message with `BENCH n=.. gap=.. tag=A` is answered with
n words `A<i>@<monotonic microseconds> `, gap ms apart.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup

from tests.support.model_more_replies import GeminiWriter, ResponsesWriter
from tests.support.model_replies import (
    Body,
    ChatWriter,
    Count,
    Cut,
    End,
    Event,
    Gate,
    Json,
    MessagesWriter,
    Pings,
    Raw,
    Short,
    Status,
    Step,
    Text,
    Writer,
    sse,
)
from tests.support.tasks import end_tasks

_BENCH = re.compile(r"BENCH n=(\d+) gap=(\d+) tag=([A-Za-z]+)")
_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@dataclass(eq=False)
class ModelRequest:
    """What a client asked."""

    path: str
    #: names in small letters
    headers: dict[str, str]
    body: Json
    #: the client closed its connection before it had the whole answer
    gone: anyio.Event = field(default_factory=anyio.Event)

    @property
    def prompt(self) -> str:
        """The text of the last user message that has one."""
        for message in reversed(self.body.get("messages", ())):
            if message["role"] == "user" and (text := _text(message["content"])):
                return text
        return ""


class _Gone(Exception):
    """The client has closed the connection, or we are to."""


class ModelServer:
    """`async with`; an ephemeral port. Every wait for it is bounded by 5 seconds."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        #: makes a reply from the body, when none is left that was prepared
        self.answer: Callable[[Json], Sequence[Step]] | None = None
        #: JSON that is answered on a path at any time, such as what Ollama tells of its models
        self.facts: dict[str, Json] = {}
        self._replies: deque[Sequence[Step]] = deque()
        self._reached: Counter[str] = Counter()
        self._gates: dict[str, anyio.Event] = {}
        self._news = anyio.Event()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        self.openai_url, self.anthropic_url = f"{self.url}/v1", self.url
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

    def say(self, *steps: Step) -> None:
        """One more prepared reply."""
        self._replies.append(steps)

    async def asked(self, count: int = 1) -> ModelRequest:
        """The request with that number, from 1, once it has come."""
        await self._until(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def reached(self, gate: str, count: int = 1) -> None:
        """Everything before the gate has been sent."""
        await self._until(lambda: self._reached[gate] >= count)

    def open(self, gate: str) -> None:
        """For good."""
        self._gate(gate).set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        with anyio.fail_after(5):
            while not is_so():
                await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    def _gate(self, name: str) -> anyio.Event:
        return self._gates.setdefault(name, anyio.Event())

    async def _serve(self, listener: Any) -> None:
        async with listener:
            await listener.serve(self._serve_connection, self._tasks)

    async def _serve_connection(self, stream: SocketStream) -> None:
        async with stream, anyio.create_task_group() as tasks:
            connection = _Connection(stream)
            tasks.start_soon(connection.read)
            with contextlib.suppress(_Gone):
                while True:
                    await self._serve_request(connection)
            tasks.cancel_scope.cancel()

    async def _serve_request(self, connection: _Connection) -> None:
        request = await connection.request()
        self.requests.append(request)
        self._tell()
        try:
            with anyio.CancelScope() as connection.replying:
                await self._reply(connection, request)
        finally:
            if connection.is_gone:
                request.gone.set()
        if connection.is_gone:
            raise _Gone

    async def _reply(self, connection: _Connection, request: ModelRequest) -> None:
        reply = self._reply_to(request)
        match reply[:1]:
            case [Status() as refusal]:
                await connection.send(_refusal(refusal))
                return
            case [Body(data)]:
                await connection.send(_STREAM)
                await connection.send_chunk(data)
                await connection.send(b"0\r\n\r\n")
                return
        writer = _writer(request)
        writer.count = next((step for step in reply if isinstance(step, Count)), writer.count)
        await connection.send(_STREAM)
        await connection.send_chunk(writer.begin())
        for step in reply:
            if isinstance(step, Gate):
                self._reached[step.name] += 1
                self._tell()
                await self._gate(step.name).wait()
            elif isinstance(step, Pings):
                while True:
                    await connection.send_chunk(b": ping\n\n")
                    await anyio.sleep(0.01)
            elif isinstance(step, Short):
                await connection.send(b"0\r\n\r\n")
                return
            else:
                await connection.send_chunk(_written(step, writer))
        if bench := not reply and _BENCH.search(request.prompt):
            await _send_bench(connection, writer, bench)
        await connection.send_chunk(writer.end())
        await connection.send(b"0\r\n\r\n")

    def _reply_to(self, request: ModelRequest) -> Sequence[Step]:
        if (facts := self.facts.get(request.path)) is not None:
            return [Status(200, facts)]
        if self._replies:
            return self._replies.popleft()
        if self.answer is not None:
            return self.answer(request.body)
        if _BENCH.search(request.prompt):
            return ()
        return [Status(400, "no_reply_was_prepared")]


class _Connection:
    """Reads all the time, so that the client's going away is seen at once."""

    def __init__(self, stream: SocketStream) -> None:
        self.is_gone = False
        #: cancelled when the client goes away
        self.replying = anyio.CancelScope()
        self._stream = stream
        self._buffer = b""
        self._news = anyio.Event()

    async def read(self) -> None:
        while not self.is_gone:
            try:
                data = await self._stream.receive()
                self._buffer += data
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.is_gone = True
                self.replying.cancel()
            self._news.set()
            self._news = anyio.Event()

    async def request(self) -> ModelRequest:
        head = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split(" ")[1].partition("?")[0]
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        length = int(headers.get("content-length", 0))
        while len(self._buffer) < length:
            await self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return ModelRequest(path, headers, json.loads(body or b"{}"))

    async def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            await self._more()
        found, _, self._buffer = self._buffer.partition(end)
        return found

    async def _more(self) -> None:
        if self.is_gone:
            raise _Gone
        await self._news.wait()

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except anyio.BrokenResourceError:
            self.is_gone = True
            raise _Gone from None

    async def send_chunk(self, data: bytes) -> None:
        if data:
            await self.send(b"%x\r\n%s\r\n" % (len(data), data))


def _writer(request: ModelRequest) -> Writer:
    if request.path.endswith("/messages"):
        return MessagesWriter(request.body)
    if request.path.endswith("/responses"):
        return ResponsesWriter(request.body)
    if request.path.endswith(":streamGenerateContent"):
        return GeminiWriter(request.body)
    return ChatWriter(request.body)


def _written(step: Step, writer: Writer) -> bytes:
    match step:
        case Count():
            return b""
        case End(reason):
            writer.reason = reason
            return b""
        case Event(value):
            return sse(value)
        case Raw(data):
            return data
        case Cut():
            raise _Gone
        case Gate() | Pings() | Short() | Status() | Body():
            raise AssertionError(f"{step} has no place here")
    return writer.write(step)


async def _send_bench(connection: _Connection, writer: Writer, bench: re.Match[str]) -> None:
    count, gap, tag = int(bench[1]), int(bench[2]), bench[3]
    for i in range(count):
        if i and gap:
            await anyio.sleep(gap / 1000)
        word = f"{tag}{i}@{time.monotonic_ns() // 1000} "
        await connection.send_chunk(writer.write(Text(word)))


def _refusal(status: Status) -> bytes:
    body = json.dumps(status.json).encode()
    lines = [
        f"HTTP/1.1 {status.code} Sorry",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in status.headers),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if isinstance(part, dict))
