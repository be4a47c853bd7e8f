"""Plays the agent of a trace to a client: an agent that is made of a recording.

- A request gets what the agent has answered to the same method, in order, for the same session, and
  before that whatever the agent has said and asked meanwhile, in its order.
- Where the agent has waited for the client, for an answer or a cancel, so does the player.
- A client may name a session that the trace does not have: it stands for the next one that has what
  is asked for. What the trace has no more of is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.protocol import (
    AUTHENTICATE,
    CANCEL_REQUEST,
    SESSION_CANCEL,
    ErrorCode,
    Json,
    as_object,
)
from acp_bridge.core.wire.jsonrpc import (
    UNSET,
    Answer,
    Err,
    Malformed,
    Ok,
    RequestId,
    RpcError,
    read_answer,
)
from acp_bridge.core.wire.peer import Call, Peer
from acp_bridge.core.wire.streams import Incoming, Outgoing
from acp_bridge.trace.exchanges import Act, Exchange, Step
from acp_bridge.versions.v2 import AUTH_LOGIN

#: members that hold an id which the client, or the agent, may have given another name.
_NAMES: Final = frozenset({"sessionId", "terminalId"})
#: bytes that may wait for a client that does not read.
_UNREAD: Final = 1024 * 1024


#: seconds for what is written when the client has ended.
_FLUSH: Final = 1.0


@dataclass(slots=True)
class _Played:
    """A request of the client's that is not answered yet, and whether it was cancelled."""

    session: object
    cancelled: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True)
class _Asked:
    """A request to the client, and the client's answer once it has come."""

    id: int = 0
    settled: anyio.Event = field(default_factory=anyio.Event)
    #: what the client has answered.
    result: Json = field(default_factory=dict)

    def take(self, answer: Answer) -> None:
        if isinstance(answer, Ok):
            self.result = as_object(answer.result)
        self.settled.set()


class Player:
    """Plays the agent's part of recorded exchanges to one client."""

    def __init__(self, exchanges: Sequence[Exchange], *, timing: bool) -> None:
        """`timing`: wait before each step as long as the agent had waited."""
        self._left = list(exchanges)
        self._timing = timing
        self._outgoing: Outgoing
        self._peer: Peer
        self._tasks: TaskGroup
        #: the ids that the client knows, by those in the trace.
        self._names: dict[str, str] = {}
        #: the requests to the client, by the keys of the same requests in the trace.
        self._asked: dict[str, _Asked] = {}
        self._played: dict[RequestId, _Played] = {}

    async def serve(self, incoming: Incoming, outgoing: Outgoing) -> None:
        """Serve the client until its input ends, or it takes no more output."""
        self._outgoing = outgoing
        self._peer = Peer(self, outgoing.write, towards_client=True)
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._write)
            while data := await incoming.read():
                self._peer.feed(data)
            self._peer.eof()
            await outgoing.flush(_FLUSH)
            self._tasks.cancel_scope.cancel()

    async def _write(self) -> None:
        await self._outgoing.run()
        self._tasks.cancel_scope.cancel()

    # --- what the client says ------------------------------------------------------------------

    def on_request(self, call: Call) -> None:
        if call.method in (AUTHENTICATE, AUTH_LOGIN):  # a trace has no logins
            self._peer.answer(call.id, {})
            return
        session = as_object(call.params).get("sessionId")
        exchange = self._next(call.method, session)
        played = self._played[call.id] = _Played(session)
        self._tasks.start_soon(self._play, call.id, exchange, played)

    def on_notification(self, method: str, params: Any) -> None:
        named = as_object(params)
        for request_id, played in self._played.items():
            if (method == SESSION_CANCEL and played.session == named.get("sessionId")) or (
                method == CANCEL_REQUEST and request_id == named.get("requestId")
            ):
                played.cancelled.set()

    def on_malformed(self, line: Malformed) -> None:
        """Do nothing: the peer has answered it."""

    def on_batch_end(self) -> None:
        """Do nothing: each message was taken by itself."""

    def _next(self, method: str, session: object) -> Exchange:
        """Remove and return the next recorded exchange for a request.

        `session`: the id in the params of the request. Raises RpcError if no exchange is left.
        """
        left = [each for each in self._left if each.method == method]
        named = session if isinstance(session, str) else None
        recorded = next((each for each, here in self._names.items() if here == named), named)
        found = next((each for each in left if each.session == recorded), None)
        if found is None and named and named not in self._names.values():
            found = next((each for each in left if each.session not in self._names), None)
        if found is None:
            where = " in this session" if named else ""
            text = f"the trace has no more answers to {method}{where}"
            raise RpcError(ErrorCode.INTERNAL_ERROR, text)
        if found.session and named:
            self._names[found.session] = named
        self._left.remove(found)
        return found

    # --- what the agent has said ---------------------------------------------------------------

    async def _play(self, request_id: RequestId, exchange: Exchange, played: _Played) -> None:
        before = exchange.began
        for step in exchange.steps:
            match step.act:
                case Act.IS_CANCELLED:
                    await played.cancelled.wait()
                case Act.IS_ANSWERED:
                    await self._answered(step)
                case _:
                    await self._let_pass(step.seconds - before, played)
                    self._say(request_id, step)
            before = step.seconds
            await self._outgoing.drain_below(_UNREAD)
        if not exchange.answered:
            self._played.pop(request_id, None)
            text = f"the trace ends before {exchange.method} is answered"
            self._peer.fail(request_id, RpcError(ErrorCode.INTERNAL_ERROR, text))

    async def _let_pass(self, seconds: float, played: _Played) -> None:
        if self._timing and seconds > 0:
            with anyio.move_on_after(seconds):
                await played.cancelled.wait()

    async def _answered(self, step: Step) -> None:
        if asked := self._asked.get(step.asked):
            await asked.settled.wait()
            recorded, here = as_object(step.content).get("terminalId"), asked.result
            if isinstance(recorded, str) and isinstance(name := here.get("terminalId"), str):
                self._names[recorded] = name

    def _say(self, request_id: RequestId, step: Step) -> None:
        content = UNSET if step.content is None else self._named(step.content)
        match step.act:
            case Act.ANSWERS:
                self._played.pop(request_id, None)
                self._answer(request_id, step, None if content is UNSET else content)
            case Act.ASKS:
                asked = self._asked[step.asked] = _Asked()
                asked.id = self._peer.request(step.method, content, asked.take)
            case _ if step.method != CANCEL_REQUEST:
                self._peer.notify(step.method, content)
            case _ if called_back := self._asked.get(step.asked):
                self._peer.cancel(called_back.id)

    def _answer(self, request_id: RequestId, step: Step, content: Any) -> None:
        if step.failed:
            answer = read_answer({"error": content})
            if isinstance(answer, Err):
                self._peer.fail(request_id, answer.error)
            return
        opened = as_object(step.content).get("sessionId")
        if isinstance(opened, str):
            self._names.setdefault(opened, opened)
        self._peer.answer(request_id, content)

    def _named(self, value: Any) -> Any:
        """Return a copy of a recorded value with the ids that the client knows."""
        if isinstance(value, dict):
            return {
                key: self._names.get(each, each)
                if key in _NAMES and isinstance(each, str)
                else self._named(each)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._named(each) for each in value]
        return value
