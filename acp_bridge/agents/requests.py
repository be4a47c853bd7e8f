"""Requests to one agent, and on whose behalf each of them was sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

import anyio

from acp_bridge import errors
from acp_bridge.protocol import (
    AUTHENTICATE,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    ErrorCode,
)
from acp_bridge.wire.jsonrpc import Answer, Err, Ok, RequestId
from acp_bridge.wire.peer import Handler, Peer

#: methods that an agent answers with a result only when it needs no login.
_LOGGED_IN: Final = (AUTHENTICATE, SESSION_NEW, SESSION_LOAD, SESSION_RESUME, SESSION_PROMPT)


def agent_peer(handler: Handler, send: Callable[[bytes], None]) -> Peer:
    """Return the bridge's end of a connection to an agent."""
    return Peer(
        handler,
        send,
        answer_malformed=False,
        internal_error=errors.internal,
        spoiled_answer=errors.spoiled_answer,
    )


class Requests:
    """Sends requests through `peer` and remembers the origin of each until it is answered.

    An origin is whatever the caller gives, and is never looked into here: a client's bare request
    id would not do, because two clients may use the same one.
    """

    def __init__(self, peer: Peer) -> None:
        #: the origins of the requests that are open, by the id under which the agent knows them.
        self.on_behalf: dict[RequestId, object] = {}
        #: when the agent last said that it wants a login; None if it has been content since.
        self.login_wanted: float | None = None
        #: when a request with an origin was last answered.
        self.touched = 0.0
        #: called when the process has closed its session and is about to end, for a last request.
        self.last: Callable[[], Awaitable[None]] | None = None
        self._peer = peer

    def send(
        self,
        origin: object | None,
        method: str,
        params: Any,
        on_answer: Callable[[Answer], None],
    ) -> int:
        """Send a request; `on_answer` is called exactly once. Returns the id, for `Peer.cancel`.

        A peer that is closed answers before this returns.
        """
        answered = False

        def settled(answer: Answer) -> None:
            nonlocal answered
            answered = True
            if origin is not None:
                self.touched = monotonic()  # the event loop's clock
            self.on_behalf.pop(request_id, None)
            self._note_login(method, answer)
            on_answer(answer)

        request_id = 0
        request_id = self._peer.request(method, params, settled)
        if origin is not None and not answered:
            self.on_behalf[request_id] = origin
        return request_id

    def _note_login(self, method: str, answer: Answer) -> None:
        if isinstance(answer, Ok):
            if method in _LOGGED_IN:
                self.login_wanted = None
        elif answer.error.code == ErrorCode.AUTH_REQUIRED:
            self.login_wanted = anyio.current_time()

    async def ask(self, origin: object | None, method: str, params: Any) -> Any:
        """Return the result of a request; raises RpcError.

        A caller that is cancelled gives the request up, and the agent is told so. The wait is
        unbounded: the caller sets the deadline.
        """
        answers: list[Answer] = []
        settled = anyio.Event()

        def on_answer(answer: Answer) -> None:
            answers.append(answer)
            settled.set()

        request_id = self.send(origin, method, params, on_answer)
        try:
            await settled.wait()
        except BaseException:
            self._peer.cancel(request_id)
            raise
        match answers[0]:
            case Ok(result):
                return result
            case Err(error):
                raise error
