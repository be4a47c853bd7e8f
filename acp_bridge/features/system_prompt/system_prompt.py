"""Lets a client give a session's agent a system prompt, which stays with the session.

The capability and the parameter are a draft of ACP (schema of November 2026, not yet stable):
`sessionCapabilities.systemPrompt` of the agent, and `systemPrompt {mode, content}` of the requests
that open a session. The prompt may hold secrets, so no log, trace or export has it.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.clients.client import Client
from acp_bridge.core.clients.rights import Right
from acp_bridge.core.protocol import SYSTEM_PROMPT, Json, has
from acp_bridge.core.session.feature import Plugin

_NAME: Final = ("sessionCapabilities", SYSTEM_PROMPT)


def _check(client: Client, given: Json, capabilities: object) -> None:
    """Refuse a system prompt that the client may not give, or that the agent can't take."""
    if SYSTEM_PROMPT not in given:
        return
    if client.rights and not client.may(Right.SET):
        raise errors.refused("this login may not set a system prompt")
    match given[SYSTEM_PROMPT]:
        case {"mode": str(mode), "content": [_, *_] as content} if all(map(_is_text, content)):
            can = has(capabilities, *_NAME, "mode", mode) or mode == "append"
        case _:
            raise errors.invalid("must have a mode, and content of text blocks", SYSTEM_PROMPT)
    if has(capabilities, *_NAME) and not can:
        raise errors.invalid("the agent does not have this mode", f"{SYSTEM_PROMPT}.mode")


def _is_text(block: object) -> bool:
    match block:
        case {"type": "text", "text": str()}:
            return True
    return False


PLUGIN: Final = Plugin(keeps=frozenset({SYSTEM_PROMPT}), check=_check)
