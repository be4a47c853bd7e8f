"""The questions that an agent of version 2 asks a person, in version 1. SANS-IO."""

from __future__ import annotations

from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.protocol import Json, as_object, objects
from acp_bridge.versions import v2
from acp_bridge.versions.blocks_to_v1 import text_content
from acp_bridge.versions.cards_to_v1 import Cards

#: the kinds of options that version 1 has: an option of another kind could not be answered by a
#: rule.
_OPTIONS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")
_MODES: Final = ("form", "url")


def permission_to_v1(params: Json, cards: Cards, call_id: str) -> Json:
    """Return the parameters of `session/request_permission` in version 1.

    Version 1 asks about a tool call: a question about something else gets one of the id `call_id`.
    Raises RpcError if it has no option that version 1 knows.
    """
    title, subject = params.get("title"), as_object(params.get("subject"))
    headline = title if isinstance(title, str) else ""
    match subject:
        case {"type": v2.OF_TOOL_CALL, "toolCall": {"toolCallId": str()} as about}:
            call = cards.asked(about, headline)
        case {"type": "command", "command": str(command)}:
            known = subject.get("toolCallId")
            raw = {"command": command, "cwd": subject.get("cwd")}
            about = {"toolCallId": known if isinstance(known, str) else call_id, "title": headline}
            call = cards.asked({**about, "kind": "execute", "rawInput": raw}, headline)
        case _:
            call = {"toolCallId": call_id, "title": headline, "kind": "other"}
    call = _with_words(call, headline, params.get("description"))
    kept = {name: value for name, value in params.items() if name in ("sessionId", "_meta")}
    options = [each for each in objects(params.get("options")) if each.get("kind") in _OPTIONS]
    if not options:
        raise errors.invalid("none is of a kind that is known here", "options")
    return {**kept, "toolCall": call, "options": options}


def _with_words(call: Json, title: str, description: object) -> Json:
    """Return a tool call with a question's title, if it differs, and description in its content."""
    said = [title] if title and title != call.get("title") else []
    if isinstance(description, str) and description:
        said.append(description)
    if not said:
        return call
    return {**call, "content": [*objects(call.get("content")), text_content("\n\n".join(said))]}


def elicitation_to_v1(params: Json) -> Json:
    """Return `params` of `elicitation/create` unchanged: they are the same in both versions.

    Raises RpcError for a mode that is not known.
    """
    if params.get("mode") not in _MODES:
        raise errors.invalid("not known here", "mode")
    return params
