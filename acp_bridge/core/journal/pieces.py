"""Updates with a piece of text of a terminal or a tool call, taken apart to join them. SANS-IO."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64

from acp_bridge.core import protocol
from acp_bridge.core.protocol import Json, as_object


def text_of(said: Json) -> tuple[Json, str] | None:
    """Return a piece without its text, and the text; None for an update that is no such piece.

    A byte of a terminal's output becomes one character.
    """
    match said:
        case {"sessionUpdate": protocol.TERMINAL_OUTPUT_CHUNK, "data": str(data)}:
            try:
                return {**said, "data": None}, b64decode(data, validate=True).decode("latin-1")
            except (NotBase64, ValueError):
                return None
        case {
            "sessionUpdate": protocol.TOOL_CALL_CONTENT_CHUNK,
            "content": {"content": {"type": "text", "text": str(text)}},
        }:
            return _with(said, None), text
    return None


def with_text(said: Json, text: str) -> Json:
    """Return the piece `said` with another text; the inverse of `text_of`."""
    if said["sessionUpdate"] == protocol.TERMINAL_OUTPUT_CHUNK:
        return {**said, "data": b64encode(text.encode("latin-1")).decode()}
    return _with(said, text)


def _with(said: Json, text: str | None) -> Json:
    content = as_object(said["content"])
    return {**said, "content": {**content, "content": {**content["content"], "text": text}}}
