"""`_session/steering`: the user's words for the turn that runs, a method that agents share.

Invariant: no turn begins by it, whatever the client asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from acp.schema import PromptRequest

from agent.errors import invalid_params
from agent.serve.open_sessions import checked_blocks

#: the one `idleBehavior` that is known: without a turn the words are left to a prompt
_PROMPT_REQUIRED = "promptRequired"


class Steered(Protocol):
    """A session as `_session/steering` uses it."""

    async def steer(self, blocks: list[dict[str, Any]]) -> bool:
        """Has the words join the running turn; returns False if it can take none."""
        ...


async def steered(session: Callable[[str], Steered], params: dict[str, Any]) -> dict[str, Any]:
    """Returns the result of a `_session/steering` request. Raises RequestError, ValidationError.

    `session` returns the open session with an id, or raises RequestError.
    """
    request = PromptRequest.model_validate(params)
    open_session, blocks = session(request.session_id), checked_blocks(request.prompt)
    if _idle_behavior(request.field_meta) not in (None, _PROMPT_REQUIRED):
        raise invalid_params(f"_meta.steering.idleBehavior must be {_PROMPT_REQUIRED}")
    if await open_session.steer(blocks):
        return {"outcome": "injected"}
    return {"outcome": _PROMPT_REQUIRED, "reason": "noRunningTurn"}


def _idle_behavior(meta: dict[str, Any] | None) -> object:
    match meta:
        case {"steering": {"idleBehavior": told}}:
            return told
    return None
