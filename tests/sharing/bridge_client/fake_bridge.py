"""A bridge in memory, as a command sees it: what it is asked is recorded, tests say its answers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import Answer, Malformed, RpcError, encode, error
from acp_bridge.core.wire.peer import Call, Peer
from acp_bridge.sharing.bridge_client.connection import Connection, connected
from acp_bridge.sharing.bridge_client.listener import BridgeRequest, Listener
from acp_bridge.sharing.bridge_client.tasks import beside


class Read:
    """What is read of a stream in memory."""

    def __init__(self, stream: MemoryObjectReceiveStream[bytes]) -> None:
        self._stream = stream

    async def read(self) -> bytes:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""

    def close(self) -> None:
        self._stream.close()


class Write:
    """Writes into a stream in memory, which takes everything at once."""

    pending = taken = 0

    def __init__(self, stream: MemoryObjectSendStream[bytes]) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._stream.send_nowait(data)

    async def run(self) -> None:
        pass

    async def drain_below(self, limit: int) -> None:
        pass

    async def flush(self, seconds: float) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()


def pipes() -> tuple[tuple[Read, Write], tuple[Read, Write]]:
    """Both ends; what one writes the other reads."""
    to_right, from_left = anyio.create_memory_object_stream[bytes](1000)
    to_left, from_right = anyio.create_memory_object_stream[bytes](1000)
    return (Read(from_right), Write(to_right)), (Read(from_left), Write(to_left))


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
        self.end, (self._incoming, self._outgoing) = pipes()
        self.peer = Peer(self, self._outgoing.write, towards_client=True)

    async def run(self) -> None:
        while data := await self._incoming.read():
            self.peer.feed(data)
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

    def refuse(self, why: str) -> None:
        """Send an error that answers no request."""
        self._outgoing.write(encode(error(None, RpcError(-32600, why))))

    def close(self) -> None:
        """End the connection from the bridge's side."""
        self._outgoing.close()
        self._incoming.close()


class Notes:
    """A listener that notes everything, and leaves requests open."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.requests: list[BridgeRequest] = []
        self.withdrawn: list[BridgeRequest] = []
        self.free = anyio.Event()
        self.free.set()

    def on_notification(self, method: str, params: Any) -> None:
        self.heard.append((method, params))

    def on_request(self, request: BridgeRequest) -> None:
        self.requests.append(request)

    def on_withdrawn(self, request: BridgeRequest) -> None:
        self.withdrawn.append(request)
        request.give_up()

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
            for each in bridge.end:
                each.close()


@asynccontextmanager
async def connection_to(bridge: FakeBridge, listener: Listener) -> AsyncGenerator[Connection]:
    """A connection to a bridge that lives for the block."""
    async with living(bridge), connected(bridge.end, listener) as connection:
        yield connection
