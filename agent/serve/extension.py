"""The methods of the bridge's own that this agent takes (docs/extension.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acp_bridge.protocol import CAN_PAUSE, GO, PAUSE
from agent.errors import invalid_params, unknown_method
from agent.session.session import Session

#: what `agentCapabilities._meta` says of it
ABILITIES = {"acp_bridge": {CAN_PAUSE: True}}


async def call(
    method: str, params: dict[str, Any], session: Callable[[str], Session]
) -> dict[str, Any]:
    """Answers one of them. `session` returns the open session with an id, or raises RequestError.

    Raises RequestError.
    """
    if method not in (PAUSE, GO):
        raise unknown_method(method)
    session_id = params.get("sessionId")
    if not isinstance(session_id, str):
        raise invalid_params("sessionId is missing")
    found = session(session_id)
    if method == PAUSE:
        return {"paused": await found.pause()}
    found.go()
    return {}
