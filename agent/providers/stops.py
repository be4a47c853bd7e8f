"""Reads why an answer ended, in the words of any server.

Servers have words of their own, and more come each year, so they are known by what is in them. What
nobody knows is taken as the usual end.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from agent.loose import members, words
from agent.model import Stop

#: the first that matches counts: a refusal is never taken for anything else
_REFUSAL = re.compile(
    r"filter|refus|safety|prohibited|blocked|blocklist|recitation|spii|sensitive|moderation|policy|guardrail"
)
_BROKEN = re.compile(
    r"error|abort|cancel|insufficient|time_?out|fail|interrupt|malformed|unavailable|overload"
    r"|disconnect|crash|exception"
)
_LIMIT = re.compile(r"length|max_?\w*tokens|max_?output|token_?limit|context_?window|truncat")
_CALLS = re.compile(r"tool|function")


class End(Struct, frozen=True):
    stop: Stop = "end_turn"
    #: the server broke its answer off
    broken: bool = False
    #: the answer ended for a tool call
    for_call: bool = False


def read_end(reason: Any) -> End:
    """Returns what a reason for the end means; an object names it in its `type` or `reason`."""
    named = members(reason)
    said = words(named.get("type") or named.get("reason") or reason).lower()
    said = re.sub(r"[\s-]+", "_", said)
    if _REFUSAL.search(said):
        return End("refusal")
    if _BROKEN.search(said):
        return End(broken=True)
    if _LIMIT.search(said):
        return End("max_tokens")
    return End(for_call=_CALLS.search(said) is not None)
