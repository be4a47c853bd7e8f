"""A bridge in memory, as a command sees it: what it is asked is recorded, tests say its answers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from acp_bridge.protocol import Json
from acp_bridge.terminal.connection import BridgeRequest, Connection, Listener, connected
from acp_bridge.terminal.tasks import beside
from acp_bridge.wire.jsonrpc import Answer, Malformed, RpcError
from acp_bridge.wire.peer import Call, Peer


class Pipe:
    """One end of two in-memory streams of bytes."""

    def __init__(
        self, receive: MemoryObjectReceiveStream[bytes], send: MemoryObjectSendStream[bytes]
    ) -> None:
        self._receive, self._send = receive, send

    async def receive(self) -> bytes:
        return await self._receive.receive()

    async def send(self, item: bytes, /) -> None:
        await self._send.send(item)

    def send_now(self, data: bytes) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._send.send_nowait(data)

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


def pipes() -> tuple[Pipe, Pipe]:
    """Both ends; what one sends the other receives."""
    to_right, from_left = anyio.create_memory_object_stream[bytes](1000)
    to_left, from_right = anyio.create_memory_object_stream[bytes](1000)
    return Pipe(from_right, to_right), Pipe(from_left, to_left)


class FakeBridge:
    """Answers each method as `answers` says: a value, an RpcError, or a function of the params.

    A method that is not there is left open: `answer` is for those.
    """

    def __init__(self, **answers: Any) -> None:
        own = {"agentCapabilities": {}, "protocolVersion": 1}
        self.answers: dict[str, Any] = {"initialize": own, **answers}
        self.calls: list[Call] = []
        self.notified: list[tuple[str, Any]] = []
        self.answered: list[Answer] = []
        self.gone = anyio.Event()
        self._news = anyio.Event()
        self.end, self._own = pipes()
        self.peer = Peer(self, self._own.send_now, answer_malformed=True)

    async def run(self) -> None:
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                self.peer.feed(await self._own.receive())
                self._tell()
        self.gone.set()
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # -- what the command sends

    def on_request(self, call: Call) -> None:
        self.calls.append(call)
        if call.method in self.answers:
            answer = self.answers[call.method]
            if callable(answer):
                answer = answer(call.params)
            if isinstance(answer, RpcError):
                raise answer
            if answer is not None:
                self.peer.answer(call.id, answer)

    def on_notification(self, method: str, params: Any) -> None:
        self.notified.append((method, params))

    def on_malformed(self, line: Malformed) -> None:
        raise AssertionError(line)

    def on_batch_end(self) -> None:
        pass

    # -- what tests do

    async def until(self, look: Callable[[], Any]) -> Any:
        """Wait until `look` gives something true."""
        while not (found := look()):
            await self._news.wait()
        return found

    async def asked(self, method: str) -> Call:
        """Wait for the newest request of this method."""
        found = await self.until(lambda: [call for call in self.calls if call.method == method])
        call: Call = found[-1]
        return call

    async def told(self, method: str) -> Any:
        """Wait for a notification of this method; returns its parameters."""
        found = await self.until(lambda: [p for name, p in self.notified if name == method])
        return found[-1]

    def update(self, session_id: str, of_kind: str, /, **update: Any) -> None:
        params = {"sessionId": session_id, "update": {"sessionUpdate": of_kind, **update}}
        self.peer.notify("session/update", params)

    def say(self, session_id: str, text: str, kind: str = "agent_message_chunk") -> None:
        self.update(session_id, kind, content={"type": "text", "text": text})

    def ask(self, method: str, params: Json) -> int:
        """Send a request; its answer is appended to `answered`."""

        def note(answer: Answer) -> None:
            self.answered.append(answer)

        return self.peer.request(method, params, note)

    def close(self) -> None:
        """End the connection from the bridge's side."""
        self._own.close()


class Notes:
    """A listener that notes everything, and leaves requests open."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.requests: list[BridgeRequest] = []
        self.withdrawn: list[BridgeRequest] = []
        self.free = anyio.Event()
        self.free.set()

    def on_notification(self, method: str, params: Json) -> None:
        self.heard.append((method, params))

    def on_request(self, request: BridgeRequest) -> None:
        self.requests.append(request)

    def on_withdrawn(self, request: BridgeRequest) -> None:
        self.withdrawn.append(request)

    async def room(self) -> None:
        await self.free.wait()


@asynccontextmanager
async def living(bridge: FakeBridge) -> AsyncGenerator[FakeBridge]:
    """Let a bridge live for the block."""
    async with beside() as tasks:
        tasks.start_soon(bridge.run)
        try:
            yield bridge
        finally:
            bridge.close()
            bridge.end.close()


@asynccontextmanager
async def connection_to(bridge: FakeBridge, listener: Listener) -> AsyncGenerator[Connection]:
    """A connection to a bridge that lives for the block."""
    async with living(bridge), connected(bridge.end, listener) as connection:
        yield connection
