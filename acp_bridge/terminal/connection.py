"""A client's connection to a bridge: one that it starts itself, or one that lives, by its socket.

Invariants
- What the bridge sends reaches the listener in the order of reading, and before the answer of a
  request that was read after it.
- A request that waits gets its answer, or an exception: when its time is over (NoAnswer), when the
  connection ends (ConnectionLost).
- Each request of the bridge is answered at most once; one that it withdraws is answered for the
  listener.
- The end is bounded, and leaves no process of ours behind.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio

from acp_bridge import __version__
from acp_bridge.json_values import as_object
from acp_bridge.listening.peers import connect
from acp_bridge.protocol import CANCEL_REQUEST, INITIALIZE, VERSION, ErrorCode, Json, with_own_meta
from acp_bridge.terminal.sent import Sent
from acp_bridge.terminal.socket_stream import SocketStream
from acp_bridge.terminal.stream import Outgoing, Stream
from acp_bridge.terminal.tasks import beside
from acp_bridge.wire.jsonrpc import Malformed, RequestId, RpcError
from acp_bridge.wire.peer import Call, Peer

#: seconds. A bridge takes what was written to it before the connection is closed.
_FLUSH: Final = 1.0
_WITHDRAWN: Final = "request cancelled"


@dataclass(frozen=True, slots=True)
class BridgeRequest:
    """A request of the bridge, such as `session/request_permission`."""

    id: RequestId
    method: str
    params: Json
    _connection: Connection

    @property
    def open(self) -> bool:
        """It was neither answered nor withdrawn."""
        return self._connection.is_open(self)

    def answer(self, result: Any) -> None:
        """Answer it; nothing happens if it is not open."""
        self._connection.settle(self, lambda peer: peer.answer(self.id, result))

    def fail(self, error: RpcError) -> None:
        """Answer it with an error; nothing happens if it is not open."""
        self._connection.settle(self, lambda peer: peer.fail(self.id, error))


class Listener(Protocol):
    """Is told what the bridge sends. It is called synchronously and must not take long."""

    def on_notification(self, method: str, params: Json) -> None:
        """Take a notification, such as `session/update`."""

    def on_request(self, request: BridgeRequest) -> None:
        """Answer it now or later; raising RpcError is an answer."""

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Note that an open request is wanted no more; it is answered already."""

    async def room(self) -> None:
        """Return when more may be read."""


class Connection:
    """One end of ACP, as a client; made by `connected`, `over_socket` or `over_process`."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        """Takes over the stream, which carries pieces of bytes; `run` must be running."""
        self._stream = stream
        self._listener = listener
        self._outgoing = Outgoing(stream)
        self._peer = Peer(self, self._outgoing.write, answer_malformed=False)
        self._open: dict[RequestId, BridgeRequest] = {}
        #: the ids of requests that were withdrawn, also of those that were answered by then.
        self._withdrawn = set[RequestId]()
        #: what requests are answered with that are open when the connection ends.
        self.lost = RpcError(ErrorCode.INTERNAL_ERROR, "the connection has ended")
        #: set when nothing more comes from the bridge.
        self.ended = anyio.Event()

    # -- to the bridge

    async def initialize(
        self, name: str, *, own: Json | None = None, within: float, **capabilities: Any
    ) -> Json:
        """Initialize as the client `name`; `own` are abilities in `_meta.acp_bridge`.

        Raises as `request` does.
        """
        params = {
            "protocolVersion": VERSION,
            "clientCapabilities": with_own_meta(capabilities, own) if own else capabilities,
            "clientInfo": {"name": name, "version": __version__},
        }
        return as_object(await self.request(INITIALIZE, params, within=within))

    def send(self, method: str, params: Json) -> Sent:
        """Send a request, whose result may be awaited later."""
        sent = Sent(self, method)
        sent.id = self._peer.request(method, params, sent.take)
        return sent

    async def request(self, method: str, params: Json, *, within: float | None) -> Any:
        """Return the result of a request; it is given up when the caller is, or its time is over.

        Raises as `Sent.result` does.
        """
        sent = self.send(method, params)
        try:
            return await sent.result(within=within)
        finally:
            sent.cancel()

    def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        self._peer.notify(method, params)

    def cancel(self, sent: Sent) -> None:
        """Send `$/cancel_request` for a request that is not answered yet."""
        if isinstance(sent.id, int):
            self._peer.cancel(sent.id)

    # -- requests of the bridge

    def is_open(self, request: BridgeRequest) -> bool:
        """Return True until a request of the bridge is answered or withdrawn."""
        return self._open.get(request.id) is request

    def overtook(self, request: BridgeRequest) -> bool:
        """Return True when the bridge has withdrawn a request, perhaps after our answer."""
        return request.id in self._withdrawn

    def settle(self, request: BridgeRequest, reply: Callable[[Peer], None]) -> None:
        """Let `reply` answer a request of the bridge, if it is open."""
        if self.is_open(request):
            del self._open[request.id]
            reply(self._peer)

    # -- what the peer hands over

    def on_request(self, call: Call) -> None:
        """Give a request to the listener. Raises RpcError, which is its answer."""
        request = BridgeRequest(call.id, call.method, as_object(call.params), self)
        self._open[call.id] = request
        try:
            self._listener.on_request(request)
        except BaseException:
            self._open.pop(call.id, None)
            raise

    def on_notification(self, method: str, params: Any) -> None:
        """Give a notification to the listener, or settle what it withdraws."""
        if method != CANCEL_REQUEST:
            self._listener.on_notification(method, as_object(params))
            return
        request_id = as_object(params).get("requestId")
        if not isinstance(request_id, int | float | str):
            return
        self._withdrawn.add(request_id)
        if request := self._open.get(request_id):
            request.fail(RpcError(ErrorCode.REQUEST_CANCELLED, _WITHDRAWN))
            self._listener.on_withdrawn(request)

    def on_malformed(self, line: Malformed) -> None:
        """Drop a line that is no message."""

    def on_batch_end(self) -> None:
        """Do nothing: the listener has each message already."""

    # -- the stream

    async def run(self) -> None:
        """Read and write until the connection ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._outgoing.run)
            try:
                await self._read_on()
            finally:
                tasks.cancel_scope.cancel()

    async def close(self) -> None:
        """Write what is left, then close the stream; bounded."""
        with anyio.CancelScope(shield=True):
            await self._outgoing.flush(_FLUSH)
            with anyio.move_on_after(_FLUSH), suppress(anyio.BrokenResourceError):
                await self._stream.aclose()
        self._end()

    async def _read_on(self) -> None:
        try:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while True:
                    self._peer.feed(await self._stream.receive())
                    await self._listener.room()
            self._peer.eof()
        finally:
            self._end()

    def _end(self) -> None:
        self._outgoing.give_up()
        self._peer.close(self.lost)
        self._open.clear()
        self.ended.set()


@asynccontextmanager
async def connected(stream: Stream, listener: Listener) -> AsyncGenerator[Connection, None]:
    """Be a client over this stream for the block; an exception of the block comes out as it is."""
    connection = Connection(stream, listener)
    async with beside() as tasks:
        tasks.start_soon(connection.run)
        try:
            yield connection
        finally:
            await connection.close()


@asynccontextmanager
async def over_socket(path: str, listener: Listener) -> AsyncGenerator[Connection, None]:
    """Be a client of a bridge that lives, by its socket, for the block.

    Raises:
        OSError: nobody listens there; NoBridge if an agent's process does.
    """
    stream = SocketStream(await connect(path))
    async with connected(stream, listener) as connection:
        yield connection
