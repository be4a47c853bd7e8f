"""The client's end of a connection to a bridge, or to an agent: both speak ACP.

Invariants
- What the other end sends reaches the listener as it came, in the order of reading, and before the
  answer of a request that was read after it.
- A request of ours gets its answer, or an exception: when its time is over (NoAnswer), when the
  connection ends (ConnectionLost).
- A request of the other end is answered at most once.

On the wire an error names an entry of the log by its id; here the path of the log is added.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import anyio

from acp_bridge.core.clients.handshake import hello
from acp_bridge.core.protocol import (
    CANCEL_REQUEST,
    INITIALIZE,
    ErrorCode,
    Json,
    as_object,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.wire.jsonrpc import (
    DEFAULT_LIMIT,
    Answer,
    Decoder,
    Err,
    Malformed,
    Message,
    Ok,
    RequestId,
    RpcError,
    is_id,
)
from acp_bridge.core.wire.peer import Call, Peer
from acp_bridge.core.wire.streams import Streams
from acp_bridge.sharing.bridge_client.listener import BridgeRequest, Listener
from acp_bridge.sharing.bridge_client.sent import Sent
from acp_bridge.sharing.bridge_client.tasks import beside

#: seconds. A bridge takes what was written to it before the connection is closed.
_FLUSH: Final = 1.0
_LOST: Final = RpcError(ErrorCode.INTERNAL_ERROR, "the connection has ended")

#: Is given each whole line that was read (`in`) or is written (`out`), without its newline, before
#: anything is done about it.
Tap: TypeAlias = Callable[[Literal["in", "out"], bytes], None]

#: what `acp_bridge.core.errors` and the built-in agent's errors say.
_NAMED: Final = re.compile(r"the log has more under id [0-9a-f]+", re.IGNORECASE)


class Connection:
    """A client's end of a connection, over any two streams of bytes."""

    def __init__(
        self,
        streams: Streams,
        listener: Listener,
        *,
        lost: Callable[[], RpcError] | None = None,
        tap: Tap | None = None,
        log: Path | None = None,
    ) -> None:
        """A task must run `run`; whoever has made the connection calls `close`.

        `lost` makes the error that open requests get when the connection ends. `log`: the log file
        whose path errors tell people, for more.
        """
        self._incoming, self._outgoing = streams
        self._listener = listener
        self._make_lost = lost
        self._tap = tap
        self._log = log
        self._peer = Peer(self, self._write, towards_client=False)
        self._decoder = Decoder()
        #: the beginning of a line whose end has not been read, for the tap.
        self._partial = bytearray()
        self._open: dict[RequestId, BridgeRequest] = {}
        #: bytes that were read.
        self.received = 0
        #: the error with which the other end refused the connection: it answers no request.
        self.refusal: str | None = None
        #: the error that open requests got when the connection ended.
        self.lost: RpcError | None = None
        #: set when the connection has ended.
        self.ended = anyio.Event()

    # -- to the other end

    async def initialize(
        self,
        name: str,
        *,
        own: Json | None = None,
        within: float | None,
        capabilities: Json | None = None,
    ) -> Json:
        """Initialize as the client `name`; `own` are abilities in `_meta.acp_bridge`.

        Raises as `request` does.
        """
        params = hello(name, own, capabilities)
        return as_object(await self.request(INITIALIZE, params, within=within))

    def send(self, method: str, params: Any) -> Sent:
        """Send a request; its result can be awaited later."""
        sent = Sent(self, method)
        log = self._log
        sent.id = self._peer.request(
            method, params, (lambda answer: sent.take(with_log(answer, log))) if log else sent.take
        )
        return sent

    async def request(self, method: str, params: Json, *, within: float | None) -> Any:
        """Send a request and return its result; cancel it when the time is over or the caller is.

        Raises as `Sent.result` does.
        """
        sent = self.send(method, params)
        try:
            return await sent.result(within=within)
        finally:
            sent.cancel()

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._peer.notify(method, params)

    def cancel(self, sent: Sent) -> None:
        """Send `$/cancel_request` for a request that is not answered yet."""
        self._peer.cancel(sent.id)

    @property
    def pending(self) -> int:
        """The number of bytes that the other end has not taken yet."""
        return self._outgoing.pending

    @property
    def taken(self) -> int:
        """The number of bytes that the other end has taken."""
        return self._outgoing.taken

    def _write(self, line: bytes) -> None:
        if self._tap is not None:
            self._tap("out", line.removesuffix(b"\n"))
        self._outgoing.write(line)

    # -- requests of the other end

    def is_open(self, request: BridgeRequest) -> bool:
        """Return True until a request of the other end is answered."""
        return self._open.get(request.call.id) is request

    def respond(self, request: BridgeRequest, answer: Answer) -> None:
        """Answer a request of the other end, if it is open."""
        if self.is_open(request):
            del self._open[request.call.id]
            match answer:
                case Ok(result):
                    self._peer.answer(request.call.id, result)
                case Err(error):
                    self._peer.fail(request.call.id, error)

    # -- what the peer hands over

    def on_request(self, call: Call) -> None:
        """Give a request to the listener. Raises RpcError, which is its answer."""
        request = self._open[call.id] = BridgeRequest(call, self)
        try:
            self._listener.on_request(request)
        except BaseException:
            self._open.pop(call.id, None)
            raise

    def on_notification(self, method: str, params: Any) -> None:
        """Give a notification to the listener; `$/cancel_request` becomes `on_withdrawn`."""
        withdrawn = as_object(params).get("requestId") if method == CANCEL_REQUEST else None
        request = self._open.get(withdrawn) if is_id(withdrawn) else None
        if request is not None:
            self._listener.on_withdrawn(request)
        else:
            self._listener.on_notification(method, params)

    def on_malformed(self, line: Malformed) -> None:
        """Log a line that is no message."""
        event("connection.malformed", what=line.error.message)

    def on_batch_end(self) -> None:
        """Do nothing: the listener has got each message already."""

    # -- the streams

    async def run(self) -> None:
        """Read and write until the other end is gone, or `close` was called."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._outgoing.run)
                await self._read()
                tasks.cancel_scope.cancel()
        finally:
            self.lost = self._make_lost() if self._make_lost else _LOST
            self._peer.close(self.lost)
            self._open.clear()
            self.ended.set()

    async def flush(self, seconds: float) -> None:
        """Wait up to `seconds` until everything is written."""
        await self._outgoing.flush(seconds)

    def close(self) -> None:
        """Close the streams: `run` returns, and bytes that are not written yet are dropped."""
        self._incoming.close()
        self._outgoing.close()

    async def _read(self) -> None:
        try:
            while data := await self._incoming.read():
                self.received += len(data)
                self._show_lines(data)
                self._take(self._decoder.feed(data))
                await self._listener.room()
            self._take(self._decoder.eof())
        except OSError as exc:
            event("connection.unreadable", what=exc.strerror)

    def _take(self, messages: list[Message | Malformed]) -> None:
        for message in messages:
            match message:
                case {"id": None, "error": {"message": str(reason)}}:
                    self.refusal = reason
        self._peer.feed_messages(messages)

    def _show_lines(self, data: bytes) -> None:
        """Give the tap each line that ends in these bytes; a line that is too long is cut."""
        if self._tap is not None:
            *ends, rest = data.split(b"\n")
            for end in ends:
                self._tap("in", bytes(self._partial + end))
                self._partial.clear()
            self._partial += rest[: DEFAULT_LIMIT - len(self._partial)]


@asynccontextmanager
async def connected(
    streams: Streams, listener: Listener, *, tap: Tap | None = None, log: Path | None = None
) -> AsyncGenerator[Connection, None]:
    """Give the block a connection over these streams; exceptions of the block come out unchanged.

    At its end the streams are closed; what was not sent by then has a second for that.
    """
    connection = Connection(streams, listener, tap=tap, log=log)
    async with beside() as tasks:
        tasks.start_soon(connection.run)
        try:
            yield connection
        finally:
            with anyio.CancelScope(shield=True):
                await connection.flush(_FLUSH)
            connection.close()


def with_log(answer: Answer, log: Path) -> Answer:
    """Return an answer; in an error that names an entry of the log, the path of `log` is added."""
    if not isinstance(answer, Err) or not _NAMED.search(answer.error.message):
        return answer
    error = answer.error
    return Err(RpcError.received(error.code, _named(error.message, log), _named(error.data, log)))


def _named(value: Any, log: Path) -> Any:
    match value:
        case str():
            return _NAMED.sub(lambda found: f"{found[0]}: {log}", value)
        case {"details": str(details)}:
            return {**value, "details": _named(details, log)}
    return value
