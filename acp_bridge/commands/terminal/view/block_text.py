"""Text of others on a terminal: harmless, without tabs, and any value that is no text is empty."""

from __future__ import annotations

from typing import Final

from acp_bridge.cli import harmless as escapes
from acp_bridge.commands.terminal.view.blocks import Content

#: spaces that stand for a tab.
_TAB: Final = "    "


def harmless(text: object) -> str:
    """Return a text of several lines; a lone carriage return is a newline, as of a progress bar."""
    if not isinstance(text, str):
        return ""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return escapes.harmless(lines.replace("\t", _TAB))


def one_line(text: object, longest: int = 200) -> str:
    """Return a text as one line of at most `longest` characters, such as a title or a path."""
    if not isinstance(text, str):
        return ""
    # Cut before the rest is done: a text of megabytes must not cost its length each time.
    line = escapes.one_line(text[: 8 * longest])
    return line if len(line) <= longest else line[: longest - 1] + "…"


def words(content: Content | None) -> str:
    """Return a content block's text as it came; what is no text is named."""
    match content:
        case Content("text", str(text)):
            return text
        case Content("resource_link"):
            return f"@{content.name or content.uri}"
        case Content("resource"):
            return f"[{content.uri or content.type}]"
        case Content("image" | "audio"):
            return f"[{content.type} {content.mime_type}]"
    return ""
