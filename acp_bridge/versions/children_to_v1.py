"""Subagents of an agent of version 2, its children, as version 1 has them. SANS-IO.

In both versions a child is announced on the session above it, and what it does comes under its own
id. Where it stands is told in its own session in version 2, in version 1 on the session above it.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.protocol import SUBAGENT_UPDATE, Json, is_link, objects

#: members of a state that version 1 has not.
_NOT_TOLD: Final = ("sessionUpdate", "background")


def child_stands(child_id: str, state: Json) -> Json | None:
    """Return the update on the session above that tells where a child stands; None if it is odd."""
    if not isinstance(state.get("state"), str):
        return None
    told = {name: value for name, value in state.items() if name not in _NOT_TOLD}
    return {"sessionUpdate": SUBAGENT_UPDATE, "sessionId": child_id, "state": told}


def without_links(update: Json) -> Json | None:
    """Return an update that links to no session; None if it is nothing else.

    One without a link is the very same object.
    """
    content = update.get("content")
    if isinstance(content, list) and any(is_link(each) for each in content):
        return {**update, "content": [each for each in objects(content) if not is_link(each)]}
    return None if is_link(content) else update
