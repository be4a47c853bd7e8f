"""What a long question is about, said once more where it is answered.

What is to be done may be off the screen there, and an agent's own text in its place, which can look
like another question (invariant V9).
"""

from __future__ import annotations

import json
from typing import Final

from acp_bridge.cli.harmless import one_line
from acp_bridge.protocol import Json
from acp_bridge.updates import tool_calls

#: lines and characters of a call that are on a screen together with the question about it.
_LINES: Final = 12
_CHARACTERS: Final = 800


def reminder(call: Json) -> str:
    """Return one harmless line about a tool call; empty if the question is short."""
    try:
        text = json.dumps(call)
    except RecursionError:
        return one_line(tool_calls.summary(call))
    far = len(text) > _CHARACTERS or text.count("\\n") > _LINES
    return one_line(tool_calls.summary(call)) if far else ""
