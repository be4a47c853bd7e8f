"""Sums up a long question in one line, to be shown beside the answers.

The tool call may have scrolled off the screen by then, and an agent's own text in its place may
look like another question (invariant V9).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.core.updates import tool_calls
from acp_bridge.terminal.cli.harmless import one_line

#: lines and characters of a tool call that fit on a usual screen together with the answers.
_LINES: Final = 12
_CHARACTERS: Final = 800
_ENDLESS: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class Reminder:
    """One harmless line about a tool call, and how long the whole call is."""

    line: str
    characters: int
    lines: int

    def shown(self, columns: int = 80, rows: int = _ENDLESS) -> str:
        """Return the line; "" if the whole call fits into so many rows above the answers."""
        far = self.characters > _CHARACTERS or self.lines > _LINES
        return self.line if far or self.lines + self.characters // columns >= rows else ""


def reminder(call: Json) -> Reminder:
    """Return the line about a tool call, and the call's length."""
    line = one_line(tool_calls.summary(call))
    try:
        text = json.dumps(call)
    except RecursionError:
        return Reminder(line, _ENDLESS, _ENDLESS)
    return Reminder(line, len(text), text.count("\\n"))
