"""Makes text of agents, models and files harmless to a terminal.

Dangerous characters are escaped. Such text may hold escape sequences, which can rewrite the screen,
set the window's title or answer in the user's name. They are escaped for pipes too, since the
reader of a pipe may be a terminal.
"""

from __future__ import annotations

import json
import re
from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import encode

#: Control characters but for newline and tab, surrogates, marks that change the direction of
#: writing, line separators that don't look like one, and invisible characters, which make a command
#: or a path look different from what it is, or hide words (tags). Joiners are allowed: some scripts
#: need them.
_HARMFUL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def harmless(text: str) -> str:
    """Return a text of several lines with dangerous characters escaped.

    `\\r\\n` becomes a newline.
    """
    return _HARMFUL.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return a text as one harmless line: each run of white space becomes one space."""
    return harmless(" ".join(text.split()))


def exact(text: str) -> str:
    """Return a text as one harmless line: newlines and tabs are written as `\\n` and `\\t`."""
    return _HARMFUL.sub(_escaped, text).replace("\n", "\\n").replace("\t", "\\t")


def json_line(value: Json) -> bytes:
    """Return a value as one line of JSON, newline included, with dangerous characters escaped."""
    line = encode(value)
    if line.isascii() and b"\x7f" not in line:  # JSON itself escapes other controls
        return line
    return _HARMFUL.sub(_escaped_in_json, line.decode()).encode()


def _escaped_in_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")
