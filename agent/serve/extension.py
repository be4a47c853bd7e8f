"""The bridge's own methods that this project's agents support (docs/extension.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import anyio

from acp_bridge.core.protocol import ASK, CAN_ASK, CAN_PAUSE, GO, PAUSE
from agent.errors import invalid_params, request_cancelled, unknown_method
from agent.serve.sdk_transport import CANCELLED, REQUEST_ID

#: announced in `agentCapabilities._meta`
ABILITIES = {"acp_bridge": {CAN_PAUSE: True, CAN_ASK: True}}


class Extended(Protocol):
    """A session as the methods of the extension use it."""

    async def pause(self) -> bool:
        """Pauses the running turn; returns True once it waits, False if it ends or goes on."""
        ...

    def go(self) -> None: ...

    async def ask(self, question: str) -> str:
        """Returns the answer to a question; the session's conversation stays as it is."""
        ...


class Extension:
    """Answers requests for the bridge's own methods, and ends those that the client cancels."""

    def __init__(self, session: Callable[[str], Extended]) -> None:
        """`session` returns the open session with an id, or raises RequestError."""
        self._session = session
        self._running: dict[Any, anyio.CancelScope] = {}

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Returns the result of a request. Raises RequestError, ModelError."""
        if method not in (PAUSE, GO, ASK):
            raise unknown_method(method)
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            raise invalid_params("sessionId is missing")
        session, request_id = self._session(session_id), params.get(REQUEST_ID)
        with anyio.CancelScope() as scope:
            self._running[request_id] = scope
            try:
                return await _answer(session, method, params)
            finally:
                self._running.pop(request_id, None)
        raise request_cancelled()

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Handles a notification: a cancel ends its request, others are ignored."""
        scope = self._running.get(params.get("requestId")) if method == CANCELLED else None
        if scope is not None:
            scope.cancel()


async def _answer(session: Extended, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == PAUSE:
        return {"paused": await session.pause()}
    if method == GO:
        session.go()
        return {}
    question = params.get("question")
    if not isinstance(question, str) or not question.strip():
        raise invalid_params("question is missing")
    return {"answer": await session.ask(question)}
