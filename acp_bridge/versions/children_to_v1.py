"""Subagents of an agent of version 2, its children, as version 1 has them. SANS-IO.

In both versions a child is announced on the session above it, and its updates come under its own
id. Its state is told in its own session in version 2, and on the session above it in version 1.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core.protocol import SUBAGENT_UPDATE, Json, is_link, objects

#: members of a state that version 1 has not.
_NOT_TOLD: Final = ("sessionUpdate", "background")


def child_stands(child_id: str, state: Json) -> Json | None:
    """Return the update that tells a child's state on the session above; None if malformed."""
    if not isinstance(state.get("state"), str):
        return None
    told = {name: value for name, value in state.items() if name not in _NOT_TOLD}
    return {"sessionUpdate": SUBAGENT_UPDATE, "sessionId": child_id, "state": told}


def without_links(update: Json) -> Json | None:
    """Return an update without its links to sessions; None if its content is only a link.

    An update without links is returned as the very same object.
    """
    content = update.get("content")
    if isinstance(content, list) and any(is_link(each) for each in content):
        return {**update, "content": [each for each in objects(content) if not is_link(each)]}
    return None if is_link(content) else update
