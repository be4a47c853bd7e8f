"""One end of a JSON-RPC connection: requests both ways, answers, cancels. Nothing here awaits.

Invariants:
- Messages reach the handler in read order; `on_batch_end` follows the last one of each feed.
- A request of the other side gets exactly one answer, whatever the handler does or raises. Its id
  is in flight until then; a second request with that id is refused and leaves the first alone.
- A request of ours gets exactly one `Answer`: the other side's, or the error of `close`. An answer
  whose id can't be read ends the only open request that it can be for, with an error.
- No exception leaves `feed`, and no exception's text reaches the wire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from msgspec import Struct

from acp_bridge.core.protocol import CANCEL_REQUEST, ErrorCode
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import (
    CANCELS,
    UNSET,
    Answer,
    Decoder,
    Err,
    Heard,
    Malformed,
    Message,
    Ok,
    RequestId,
    RpcError,
    encode,
)
from acp_bridge.core.wire.runs import Path, Run, RunReader

logger = logging.getLogger(__name__)

#: the codes of errors that say that a request can't be meant: nothing was done for it.
_MEANINGLESS: Final = (
    ErrorCode.METHOD_NOT_FOUND,
    ErrorCode.INVALID_PARAMS,
    ErrorCode.INVALID_REQUEST,
)


class Call(Struct, frozen=True):
    """A request of the other side. `params` is raw: any JSON value, UNSET if the key was absent."""

    id: RequestId
    method: str
    params: Any


class Handler(Protocol):
    """Gets the other side's messages. It is called synchronously and must not take long."""

    def on_request(self, call: Call) -> None:
        """Answer now or later with `Peer.answer` or `Peer.fail`; raising RpcError is an answer."""

    def on_notification(self, method: str, params: Any) -> None:
        """Handle a notification; `params` is raw, UNSET if absent. An exception is logged."""

    def on_malformed(self, line: Malformed) -> None:
        """Note that a line was no message; the peer itself answers it where that is needed."""

    def on_batch_end(self) -> None:
        """Note that every message of one feed has been handed over."""


def _opaque(exc: Exception) -> RpcError:
    logger.error("the handler failed", exc_info=exc)
    return RpcError(ErrorCode.INTERNAL_ERROR, "Internal error")


class Peer:
    """Is fed the bytes that were read; sends through `send`, which must neither block nor raise.

    `towards_client`: True towards a client, whose answers are read strictly; False towards an
    agent, whose malformed lines are noise on its stdout. `internal_error` logs an unexpected
    exception and returns the error that may be sent. `spoiled_answer` returns the error that a
    request gets if the line that answers it is no message.
    """

    def __init__(
        self,
        handler: Handler,
        send: Callable[[bytes], None],
        *,
        towards_client: bool,
        internal_error: Callable[[Exception], RpcError] = _opaque,
        spoiled_answer: Callable[[Malformed], RpcError] = jsonrpc.says_nothing,
        limit: int = jsonrpc.DEFAULT_LIMIT,
    ) -> None:
        self._handler = handler
        self._send = send
        self._towards_client = towards_client
        self._internal_error = internal_error
        self._spoiled_answer = spoiled_answer
        self.decoder = Decoder(limit, strict=towards_client, joins=True)
        #: returns the messages to hand over for one that came in; None: each is handed over itself.
        self.translate: Callable[[Message], Iterable[Message]] | None = None
        self._runs: RunReader | None = None
        self._on_run: Callable[[Run], None] | None = None
        #: sends a line in the place of `send`. It gets what the line is about, too: the parameters
        #: of the message, or of the request and the result that answers it; None if nothing.
        self.send_about: Callable[[bytes, object], None] | None = None
        #: by id, the parameters of the other side's requests, and ours with their parameters and
        #: methods.
        self._calls: dict[RequestId, object] = {}
        self._asked: dict[RequestId, tuple[Callable[[Answer], None], object, str]] = {}
        self._last_id = 0
        #: a notification was sent since the last request: the other side may answer that, too.
        self._notified = False
        self._closed: RpcError | None = None
        #: what was logged: each fault once, since a line of a log costs more than a message.
        self._warned = set[str]()

    @property
    def busy(self) -> bool:
        """True while a request of either side is not answered."""
        return bool(self._calls or self._asked)

    def meant(self, request_id: RequestId) -> RequestId:
        """Return the id of the other side's open request that is meant by this one."""
        return jsonrpc.known_id(request_id, self._calls)

    # -- messages that come in

    def feed(self, data: bytes) -> None:
        """Decode a piece of the stream, of any length, and hand its messages over.

        An empty one means that nothing comes for now (`Decoder.feed`).
        """
        self.feed_messages((self._runs or self.decoder).feed(data))

    def take_runs(
        self, path: Path, begins: Callable[[Message], bool], on_run: Callable[[Run], None]
    ) -> None:
        """Give `on_run` the notifications in succession that differ in the text at `path` alone.

        `begins`: see `RunReader`.
        """
        self._runs, self._on_run = RunReader(self.decoder, path, begins), on_run

    def tell_lines(self, heard: Heard) -> None:
        """Call `heard` with all lines that are read, before their messages are handed over."""
        self.decoder.heard = heard

    @property
    def unfinished(self) -> int:
        """The number of bytes that are kept of a message whose end has not come."""
        return self.decoder.unfinished

    def drop_unfinished(self) -> None:
        """Drop the bytes of a message whose end has not come; nothing may be fed after that."""
        self.decoder, self._runs = Decoder(), None

    def eof(self) -> None:
        """Handle the end of the stream; a last line without its newline counts as a line.

        Own requests stay open.
        """
        self.feed_messages(self.decoder.eof())

    def feed_messages(self, messages: Iterable[Message | Malformed | Run]) -> None:
        """Hand over the messages of a Decoder as one batch; no message at all is no batch."""
        batch = False
        for message in messages:
            batch = True
            try:
                if isinstance(message, Run):
                    if self._on_run is not None:
                        self._on_run(message)
                elif self.translate is None or isinstance(message, Malformed):
                    self._dispatch(message)
                else:
                    for each in self.translate(message):
                        self._dispatch(each)
            except Exception as exc:
                self._internal_error(exc)
        if batch:
            try:
                self._handler.on_batch_end()
            except Exception as exc:
                self._internal_error(exc)

    def _dispatch(self, message: Message | Malformed) -> None:
        if isinstance(message, Malformed):
            self._on_malformed(message)
        elif "method" not in message:
            self._on_answer(message)
        elif "id" not in message:
            self._handler.on_notification(message["method"], message.get("params", UNSET))
        else:
            self._on_request(message)

    def _on_request(self, message: Message) -> None:
        asked, strict = self._asked.get(self._known(message["id"])), self._towards_client
        if asked and jsonrpc.repeats_method(message, asked[2], strict=strict):
            self._on_answer(message)
            return
        call = Call(message["id"], message["method"], message.get("params", UNSET))
        if call.id in self._calls and call.method in CANCELS:  # answered once, with that request
            self._handler.on_notification(call.method, call.params)
            return
        if call.id in self._calls:
            self._warn("a request id was used again while in flight", call.id)
            text = "Invalid request: the id is in flight already"
            refusal = RpcError(ErrorCode.INVALID_REQUEST, text)
            self._emit(encode(jsonrpc.error(call.id, refusal)), None)
            return
        self._calls[call.id] = call.params
        try:
            self._handler.on_request(call)
        except RpcError as exc:  # it has done nothing, so it waits for nothing
            self._reply(call.id, jsonrpc.error(call.id, exc), None)
        except Exception as exc:
            self.fail(call.id, self._internal_error(exc))

    def _on_answer(self, message: Message) -> None:
        answer = jsonrpc.read_answer(message, self._spoiled_answer)
        message_id = message.get("id")
        if message_id is None and ("id" in message or "jsonrpc" in message):  # else a log's line
            says = isinstance(answer, Ok) and isinstance(answer.result, dict) and answer.result
            message_id = self._only_open(says=bool(says))
            if isinstance(answer, Ok):
                answer = Err(self._spoiled_answer(jsonrpc.without_id()))
        if not self._settle(message_id, answer):
            self._warn("an answer to nothing was dropped", message.get("id"))

    def _only_open(self, *, says: bool) -> RequestId:
        """Return the id of the request that an answer without an id is for; None if none is clear.

        Some programs answer notifications, too, but not with an object that `says` something. A
        client is sent notifications all the time.
        """
        clear = says or not (self._notified or self._towards_client)
        clear = clear and len(self._asked) == 1
        return next(iter(self._asked)) if clear else None

    def _on_malformed(self, line: Malformed) -> None:
        answered = line.id
        if line.answer and answered is None:
            answered = self._only_open(says=line.error.code == ErrorCode.INVALID_REQUEST)
        if line.answer and self._known(answered) in self._asked:
            self._settle(answered, Err(self._spoiled_answer(line)))
        elif self._towards_client or line.asks:
            self._emit(encode(jsonrpc.error(line.id, line.error)), None)
        self._handler.on_malformed(line)

    def _warn(self, fault: str, message_id: object) -> None:
        if fault not in self._warned:
            self._warned.add(fault)
            logger.warning("%s: id %.100r", fault, message_id)

    def _known(self, request_id: RequestId) -> RequestId:
        """Return the id of our request that an answer means, as we have given it."""
        return jsonrpc.known_id(request_id, self._asked)

    def _settle(self, request_id: RequestId, answer: Answer) -> bool:
        asked = self._asked.pop(self._known(request_id), None)
        if asked is None:
            return False
        try:
            asked[0](answer)
        except Exception as exc:
            self._internal_error(exc)
        return True

    # -- messages that go out

    def send_through(self, send: Callable[[bytes], None]) -> None:
        """Use `send` for all that is sent from now on; it must neither block nor raise."""
        self._send, self.send_about = send, None

    def _emit(self, line: bytes, about: object) -> None:
        if self.send_about is None:
            self._send(line)
        else:
            self.send_about(line, about)

    def request(self, method: str, params: Any, on_answer: Callable[[Answer], None]) -> int:
        """Send a request; `on_answer` is called exactly once. Returns the id, for `cancel`.

        After `close`, `on_answer` is called before this returns. Raises what `encode` raises, and
        then nothing was sent.
        """
        self._last_id += 1
        request_id = self._last_id
        if self._closed is not None:
            on_answer(Err(self._closed))
            return request_id
        line = encode(jsonrpc.request(request_id, method, params))
        self._asked[request_id] = on_answer, params, method
        self._notified = False
        self._emit(line, params)
        return request_id

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification."""
        self._notified = True
        self._emit(encode(jsonrpc.notification(method, params)), params)

    def cancel(self, request_id: int) -> None:
        """Ask the other side to give up an own request, whose answer is still awaited."""
        if asked := self._asked.get(request_id):  # the cancel stays behind the request
            self._notified = True
            line = encode(jsonrpc.notification(CANCEL_REQUEST, {"requestId": request_id}))
            self._emit(line, asked[1])

    def answer(self, call_id: RequestId, result: Any) -> None:
        """Answer a request of the other side. A second answer to it is dropped.

        A result that JSON cannot hold becomes an internal error.
        """
        self._reply(call_id, jsonrpc.response(call_id, result), (self._calls.get(call_id), result))

    def fail(self, call_id: RequestId, error: RpcError) -> None:
        """Answer a request of the other side with an error. A second answer to it is dropped.

        An error that says that the request can't be meant is about nothing.
        """
        about = None if error.code in _MEANINGLESS else (self._calls.get(call_id), None)
        self._reply(call_id, jsonrpc.error(call_id, error), about)

    def close(self, error: RpcError) -> None:
        """Settle every open request of ours with `error`, and each later one at once.

        The other side's answers to them are dropped; its own requests can still be answered.
        """
        if self._closed is not None:
            return
        self._closed = error
        for request_id in list(self._asked):
            self._settle(request_id, Err(error))

    def _reply(self, call_id: RequestId, reply: Message, about: object) -> None:
        if call_id not in self._calls:
            self._warn("a second answer was dropped", call_id)
            return
        del self._calls[call_id]
        try:
            line = encode(reply)
        except (ValueError, TypeError, RecursionError) as exc:
            line = encode(jsonrpc.error(call_id, self._internal_error(exc)))
        self._emit(line, about)
