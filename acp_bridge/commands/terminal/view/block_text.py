"""Text of agents and files for a terminal: harmless, without tabs.

"" for a value that is no text.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.cli import harmless as escapes
from acp_bridge.commands.terminal.view.blocks import Content

#: spaces shown for a tab.
_TAB: Final = "    "


def harmless(text: object) -> str:
    """Return a text of several lines, harmless; a lone carriage return counts as a newline."""
    if not isinstance(text, str):
        return ""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return escapes.harmless(lines.replace("\t", _TAB))


def one_line(text: object, longest: int = 200) -> str:
    """Return a text such as a title as one harmless line of at most `longest` characters."""
    if not isinstance(text, str):
        return ""
    # Cut first: a text of megabytes must not be processed as a whole for one line.
    line = escapes.one_line(text[: 8 * longest])
    return line if len(line) <= longest else line[: longest - 1] + "…"


def words(content: Content | None) -> str:
    """Return the text of a content block, unchanged.

    Other kinds as `@name`, `[uri]` or `[image ...]`.
    """
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
