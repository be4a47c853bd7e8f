"""A transport for the official SDK (`acp.run_agent`) over our stdio; it does not import `acp`.

    async with SdkTransport(*claim_stdio()) as transport:
        await run_agent(agent, transport)

Each line says what the SDK's own transport does (agent-client-protocol 0.12.1), then the invariant
that holds here. What 1.0 is known to mend is marked `0.12`; it can go when 0.12 is dropped.
- 0.12: it ends the process at a line that is an array or a scalar, and does not answer broken JSON.
  Here each gets -32700 or -32600 and the process lives.
- It spreads the keys of `params._meta` over the handler's keyword arguments, over validated ones
  too. Here the whole of `_meta` arrives as the one keyword `meta`, and overrides nothing.
- It logs a traceback for unknown notifications (0.12: and for `$/cancel_request`). Here they are
  dropped, but for a cancel of one of the bridge's own methods: those get their request's id as
  `REQUEST_ID`, and the cancel arrives as the notification `CANCELLED`.
- It stops receiving at a malformed `error`, and never answers with a result that JSON cannot hold.
  Here both become -32603.
- It cancels handlers at EOF before they answer, hangs if stdout is full, and does not notice a
  closed stdout. Here the end is bounded by `answer_grace` + `flush_limit` seconds.
- Its `send` never suspends. Here it does at least once in `_BURST` messages, and waits while more
  than `_HIGH_WATER` bytes are pending.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from acp_bridge.core.protocol import (
    ASK,
    CANCEL_REQUEST,
    GO,
    PAUSE,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_RESUME,
    SYSTEM_PROMPT,
    ErrorCode,
)
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import (
    Decoder,
    Err,
    Malformed,
    Message,
    Ok,
    RequestId,
    RpcError,
    encode,
)
from acp_bridge.core.wire.stdio import Reader, Writer

logger = logging.getLogger(__name__)

#: The parameter that holds the id of the request, for the bridge's own methods.
REQUEST_ID: Final = "_requestId"
#: The notification into which a cancel of a request for the bridge's own methods is turned.
CANCELLED: Final = f"_{CANCEL_REQUEST}"
_OWN: Final = frozenset({PAUSE, GO, ASK})
#: The id of the request that a task of the SDK's handles: `receive` sets it, and the SDK starts the
#: task right after that, so the task has it.
_handled: ContextVar[RequestId] = ContextVar("_handled", default=None)
#: Pending bytes above which `send` waits.
_HIGH_WATER: Final = 1 << 20
#: Messages that are sent before the event loop runs other tasks; a cancel waits for no more.
_BURST: Final = 64
#: The notifications that the SDK knows; for others it would log a traceback.
_NOTIFICATIONS: Final = frozenset({"session/cancel"})


class SdkTransport:
    """The transport that the SDK wants (`send`, `receive`, `close`); owns both descriptors.

    `limit`: bytes of a line. `answer_grace`: seconds after EOF in which running requests may be
    answered. `flush_limit`: seconds that writing the last output may take.
    """

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        limit: int = jsonrpc.DEFAULT_LIMIT,
        answer_grace: float = 0.5,
        flush_limit: float = 1.0,
    ) -> None:
        self._reader = Reader(read_fd)
        self._writer = Writer(write_fd, on_broken=self._on_broken)
        self._decoder = Decoder(limit)
        self._answer_grace = answer_grace
        self._flush_limit = flush_limit
        self._inbox: deque[Message | Malformed] = deque()
        self._unanswered: set[RequestId] = set()
        #: the unanswered requests that the client may cancel
        self._own: set[RequestId] = set()
        self._asked: set[RequestId] = set()
        #: by unanswered request, what is to be done right after its answer
        self._after: dict[RequestId, list[Callable[[], object]]] = {}
        self._burst = 0
        self._eof = False
        self._closed = False
        self._reading: anyio.CancelScope | None = None
        self._answered = anyio.Event()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> SdkTransport:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._writer.run)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._tasks is not None
        with anyio.CancelScope(shield=True):  # bounded by flush_limit
            await self.close()
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(exc_type, exc, traceback)

    async def send(self, message: dict[str, Any]) -> None:
        """Sends a message of the SDK's; drops it if the client has left.

        Raises ValueError or TypeError for a request or notification that JSON cannot hold.
        """
        is_answer, after = "method" not in message, list[Callable[[], object]]()
        try:
            line = encode(message)
        except (ValueError, TypeError, RecursionError):
            if not is_answer:
                raise
            logger.exception("a result could not be encoded")
            failure = RpcError(ErrorCode.INTERNAL_ERROR, "Internal error")
            line = encode(jsonrpc.error(message["id"], failure))
        if is_answer:
            self._unanswered.discard(message["id"])
            self._own.discard(message["id"])
            after = self._after.pop(message["id"], [])
            if not self._unanswered:
                self._answered.set()
        elif "id" in message:
            self._asked.add(message["id"])
        self._writer.write(line)
        for act in after:
            act()
        self._burst += 1
        if self._burst >= _BURST:
            self._burst = 0
            await anyio.lowlevel.checkpoint()
        await self._writer.drain_below(_HIGH_WATER)

    async def receive(self) -> dict[str, Any] | None:
        """Returns the next message, in a form that the SDK accepts.

        Returns None at the end: every request is answered, or `answer_grace` is over.
        """
        while not self._writer.broken:
            while self._inbox:
                message = self._accept(self._inbox.popleft())
                if message is not None:
                    _handled.set(message.get("id") if "method" in message else None)
                    return message
            if self._eof:
                await self._wait_for_answers()
                return None
            await self._read()
            # A client that sends bad lines and reads no answers must not fill the memory with
            # errors.
            await self._writer.drain_below(_HIGH_WATER)
        return None

    def after_answer(self, act: Callable[[], object]) -> None:
        """Calls `act` once the request is answered that is being handled; at once without one."""
        request_id = _handled.get()
        if request_id in self._unanswered:
            self._after.setdefault(request_id, []).append(act)
        else:
            act()

    async def close(self) -> None:
        """Writes the last output for at most `flush_limit` seconds, then closes.

        May be called again.
        """
        if self._closed:
            return
        self._closed = True
        await self._writer.flush(self._flush_limit)
        self._writer.close()
        self._reader.close()

    def _on_broken(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        data = b""
        with anyio.CancelScope() as self._reading:
            data = await self._reader.read()
        self._reading = None
        if data:
            self._inbox.extend(self._decoder.feed(data))
        else:
            self._eof = True
            self._inbox.extend(self._decoder.eof())

    async def _wait_for_answers(self) -> None:
        if self._unanswered:
            self._answered = anyio.Event()
            with anyio.move_on_after(self._answer_grace):
                await self._answered.wait()

    def _accept(self, message: Message | Malformed) -> Message | None:
        """Returns the message in a form for the SDK; None if it was answered or dropped here."""
        if isinstance(message, Malformed):
            if message.answer and message.id in self._asked:
                return self._accept_answer({"id": message.id})
            self._refuse(message.id, message.error)
            return None
        if "method" not in message:
            return self._accept_answer(message)
        if "id" not in message:
            return self._cancel(message) or (message if _routed(message) else None)
        if message["id"] in self._unanswered:
            text = "Invalid request: the id is in flight already"
            self._refuse(message["id"], RpcError(ErrorCode.INVALID_REQUEST, text))
            return None
        self._unanswered.add(message["id"])
        if message["method"] in _OWN and type(params := message.get("params")) is dict:
            self._own.add(message["id"])
            return {**message, "params": {**params, REQUEST_ID: message["id"]}}
        return _with_harmless_meta(_with_servers(message))

    def _cancel(self, notification: Message) -> Message | None:
        """Returns the notification `CANCELLED` for a cancel of one of the bridge's own methods.

        Returns None for any other notification.
        """
        params = notification.get("params")
        if notification["method"] != CANCEL_REQUEST or type(params) is not dict:
            return None
        request_id = params.get("requestId")
        if not jsonrpc.is_id(request_id) or request_id not in self._own:
            return None
        return {**notification, "method": CANCELLED}

    def _accept_answer(self, message: Message) -> Message | None:
        request_id = message.get("id")
        if request_id not in self._asked:
            return None
        self._asked.remove(request_id)
        match jsonrpc.read_answer(message):
            case Ok(result):
                return jsonrpc.response(request_id, result)
            case Err(error):
                return jsonrpc.error(request_id, error)

    def _refuse(self, request_id: RequestId, error: RpcError) -> None:
        self._writer.write(encode(jsonrpc.error(request_id, error)))


def _routed(notification: Message) -> bool:
    """Returns True if the SDK handles the notification without logging a traceback.

    It handles extensions, and cancels that name a session.
    """
    method, params = notification["method"], notification.get("params")
    if method.startswith("_"):
        return True
    if method not in _NOTIFICATIONS:
        return False
    return type(params) is dict and type(params.get("sessionId")) is str


def _with_servers(request: Message) -> Message:
    """Returns the request with empty `mcpServers` if it opens a session without any.

    The SDK insists on the key; clients of the protocol's next version don't send it.
    """
    params = request.get("params")
    opens = request["method"] in (SESSION_NEW, SESSION_LOAD, SESSION_RESUME)
    if not opens or type(params) is not dict or params.get("mcpServers") is not None:
        return request
    return {**request, "params": {**params, "mcpServers": []}}


def _with_harmless_meta(request: Message) -> Message:
    """Returns the request with its `_meta` wrapped in one key that no field has.

    The SDK spreads the keys of `_meta` over keyword arguments. Its models also accept `_meta` under
    its Python name, `field_meta`, which is dropped here. Parameters of extensions stay as they are.
    The SDK drops `systemPrompt`, which it does not know: that comes as the keyword `system_prompt`.
    """
    params = request.get("params")
    if request["method"].startswith("_") or type(params) is not dict:
        return request
    if not params.keys() & {"_meta", "field_meta", SYSTEM_PROMPT}:
        return request
    known = {key: params[key] for key in params if key not in ("field_meta", SYSTEM_PROMPT)}
    arguments = {"system_prompt": params[SYSTEM_PROMPT]} if SYSTEM_PROMPT in params else {}
    if type(meta := params.get("_meta")) is dict:
        arguments["meta"] = meta
    return {**request, "params": {**known, "_meta": arguments} if arguments else known}
