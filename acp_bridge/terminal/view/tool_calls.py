"""Tool calls: the updates about one are merged, and become a card."""

from __future__ import annotations

import re
from typing import Final

from acp_bridge import tool_calls
from acp_bridge.json_values import objects
from acp_bridge.protocol import ENDED, Json
from acp_bridge.terminal.view.block_text import harmless, one_line
from acp_bridge.terminal.view.blocks import Card, Diff, Output
from acp_bridge.terminal.view.content import text_of

#: what an update may change of how a call stands; whatever it doesn't name stays.
_STANDS: Final = ("status", "rawOutput")
#: characters of a text of a card that are looked at; the rest is counted.
_LONGEST: Final = 100_000
_MOST_LOCATIONS: Final = 4
#: a whole text that an agent has fenced, for editors that show it as Markdown.
_FENCE: Final = re.compile(r"\A(`{3,})[^`\n]*\n((?:(?!\n\1).)*)\n\1\Z", re.DOTALL)


def merged(call: Json, update: Json) -> Json:
    """Return a tool call as it is after an update of it."""
    stands = {key: update[key] for key in _STANDS if update.get(key) is not None}
    return {**tool_calls.updated(call, update), **stands}


def has_ended(call: Json) -> bool:
    """Return True when nothing more is to come of a tool call."""
    return call.get("status") in ENDED


def card(call: Json, *, seen: object = None, asked: bool = False) -> Card:
    """Return the card of a tool call, without content that was `seen` before.

    `asked`: with what it is to do, all of it, for a permission (invariant V9).
    """
    call = tool_calls.shown(call) if asked else call
    items = [] if call.get("content") == seen else objects(call.get("content"))
    content = [each for item in items if (each := _content(item))]
    return Card(
        title=one_line(tool_calls.title(call)) if asked else _title(call),
        kind=one_line(call.get("kind"), 20) or "other",
        status=one_line(call.get("status"), 20) or "pending",
        locations=() if asked else tuple(_locations(call)),
        content=tuple(content or _raw_output(call)),
        whole=asked,
    )


def _title(call: Json) -> str:
    title = one_line(call.get("title"), 300)
    return title or one_line(call.get("kind"), 20) or "tool call"


def _content(item: Json) -> Diff | Output | None:
    match item.get("type"):
        case "diff":
            old = item.get("oldText")
            return Diff(
                one_line(item.get("path"), 300),
                _bounded(old) if isinstance(old, str) else None,
                _bounded(str(item.get("newText") or "")),
            )
        case "content":
            text = _FENCE.sub(r"\2", text_of(item.get("content")).strip("\n")[:_LONGEST])
            left = len(text_of(item.get("content")).strip("\n")) - _LONGEST
            return Output(harmless(text) + _more(left)) if text.strip() else None
    return None


def _bounded(text: str) -> str:
    return harmless(text[:_LONGEST]) + _more(len(text) - _LONGEST)


def _more(left: int) -> str:
    return f"\n… {left} more characters" if left > 0 else ""


def _locations(call: Json) -> list[str]:
    places = objects(call.get("locations"))
    found = [
        one_line(place.get("path"), 300)
        + (f":{place['line']}" if isinstance(place.get("line"), int) else "")
        for place in places[:_MOST_LOCATIONS]
    ]
    more = len(places) - len(found)
    return [*filter(None, found), *([f"and {more} more"] if more else [])]


def _raw_output(call: Json) -> list[Output]:
    raw = call.get("rawOutput")
    return [Output(harmless(raw[:_LONGEST]))] if isinstance(raw, str) and raw.strip() else []
