"""Text of others on a terminal: what would move the cursor, colour or deceive is shown escaped.

Models, agents, file names and titles may hold escape sequences, which can rewrite what stands on
the screen, set the window's title or answer in the user's name. None reaches a terminal, and none
reaches a pipe either, since what reads that may be one.
"""

from __future__ import annotations

import json
import re
from typing import Final

from acp_bridge.protocol import Json
from acp_bridge.wire.jsonrpc import encode

#: Controls but for newline and tab, surrogates, marks that turn the direction of writing, ends of
#: lines that look like none, and characters that are seen nowhere, so that a command or a path is
#: not what it looks like, or that hold words (tags). Joiners stay: some scripts can't do without.
_HARMFUL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def harmless(text: str) -> str:
    """Return a text of several lines as a terminal can show it; `\\r\\n` is a newline."""
    return _HARMFUL.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return a text as one harmless line: each run of white space is a blank."""
    return harmless(" ".join(text.split()))


def exact(text: str) -> str:
    """Return a text as one harmless line in which every newline and tab is seen."""
    return _HARMFUL.sub(_escaped, text).replace("\n", "\\n").replace("\t", "\\t")


def json_line(value: Json) -> bytes:
    """Return a value as one line of JSON that a terminal can show."""
    line = encode(value)
    if line.isascii() and b"\x7f" not in line:  # JSON itself escapes other controls
        return line
    return _HARMFUL.sub(_escaped_in_json, line.decode()).encode()


def _escaped_in_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")
