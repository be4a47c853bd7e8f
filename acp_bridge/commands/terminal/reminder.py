"""Sums up a long question in one line, to be shown beside the answers.

The tool call may have scrolled off the screen by then, and an agent's own text in its place may
look like another question (invariant V9).
"""

from __future__ import annotations

import json
from typing import Final

from acp_bridge.cli.harmless import one_line
from acp_bridge.protocol import Json
from acp_bridge.updates import tool_calls

#: lines and characters of a tool call that fit on a screen together with the answers.
_LINES: Final = 12
_CHARACTERS: Final = 800


def reminder(call: Json) -> str:
    """Return one harmless line about a tool call.

    "" if the call is short enough to be on the screen.
    """
    try:
        text = json.dumps(call)
    except RecursionError:
        return one_line(tool_calls.summary(call))
    far = len(text) > _CHARACTERS or text.count("\\n") > _LINES
    return one_line(tool_calls.summary(call)) if far else ""
