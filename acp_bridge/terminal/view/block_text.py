"""Text of agents and files for a terminal: harmless, without tabs.

The functions return "" for a value that is no text.
"""

from __future__ import annotations

import re
from typing import Final

from acp_bridge.terminal.cli import harmless as escapes
from acp_bridge.terminal.view.blocks import Content

#: spaces shown for a tab.
_TAB: Final = "    "
#: a text that is one fenced code block: agents fence output for editors that show Markdown.
_FENCE: Final = re.compile(r"\A(`{3,})[^`\n]*\n((?:(?!\n\1).)*)\n\1\Z", re.DOTALL)
#: characters above which a text is not searched for a fence.
_LONGEST: Final = 100_000


def harmless(text: object) -> str:
    """Return a text with all that a terminal would obey escaped, but its newlines.

    Tabs become spaces, and a lone carriage return a newline.
    """
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


def unfenced(text: str) -> str:
    """Return the content of a text that is one fenced code block; any other text as it is."""
    return text if len(text) > _LONGEST else _FENCE.sub(r"\2", text)
