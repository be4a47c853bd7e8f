"""The open sessions of a connection, and the request handlers that both agents share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import anyio
from acp.schema import CloseSessionResponse
from pydantic import BaseModel

from agent.errors import invalid_params, unknown_session
from agent.serve.extension import Extended, Extension
from agent.wire_form import wire_form


class OpenSession(Extended, Protocol):
    """A session as the shared handlers use it."""

    def cancel(self) -> None:
        """Cancels the oldest unanswered prompt; does nothing if there is none."""
        ...

    async def close(self) -> None:
        """Cancels every prompt, waits until they are answered, and leaves nothing running."""
        ...


S = TypeVar("S", bound=OpenSession)


class OpenSessions(Generic[S]):
    """The sessions of one connection, with handlers for requests about one of them."""

    def __init__(self) -> None:
        #: True once `initialize` has come
        self.initialized = False
        self._sessions: dict[str, S] = {}
        self._extension = Extension(self._session)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session := self._sessions.get(session_id):
            session.cancel()

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        session = self._session(session_id)
        del self._sessions[session_id]
        await session.close()
        return CloseSessionResponse()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self._extension.call(f"_{method}", params)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        self._extension.notified(f"_{method}", params)

    async def stop(self) -> None:
        """Cancels every prompt, waits until all are answered, and leaves nothing running."""
        async with anyio.create_task_group() as tasks:
            for session in self._sessions.values():
                tasks.start_soon(session.close)

    def _session(self, session_id: str) -> S:
        """Returns the open session with this id; raises RequestError if there is none."""
        if session := self._sessions.get(session_id):
            return session
        raise unknown_session()


def checked_blocks(prompt: Sequence[BaseModel]) -> list[dict[str, Any]]:
    """Returns a prompt's content blocks in wire form.

    Raises RequestError if the prompt is empty or has audio.
    """
    if not prompt:
        raise invalid_params("prompt is empty")
    blocks = [wire_form(block) for block in prompt]
    if any(block["type"] == "audio" for block in blocks):
        raise invalid_params("this agent takes no audio")
    return blocks
