"""Tool calls: the updates about one are merged, and become a card."""

from __future__ import annotations

import json
import re
from typing import Final

from acp_bridge.json_values import objects
from acp_bridge.protocol import ENDED, Json
from acp_bridge.terminal.view.block_text import harmless, one_line
from acp_bridge.terminal.view.blocks import Card, Diff, Output
from acp_bridge.terminal.view.content import text_of

#: what an update may change; whatever it doesn't name stays.
_FIELDS: Final = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput")
#: characters of a text of a card that are looked at; the rest is counted as left out elsewhere.
_LONGEST: Final = 100_000
_MOST_LOCATIONS: Final = 4
#: a whole text that an agent has fenced, for editors that show it as Markdown.
_FENCE: Final = re.compile(r"\A(`{3,})[^`\n]*\n((?:(?!\n\1).)*)\n\1\Z", re.DOTALL)


def merged(call: Json, update: Json) -> Json:
    """Return a tool call as it is after an update of it."""
    return {**call, **{key: update[key] for key in _FIELDS if update.get(key) is not None}}


def has_ended(call: Json) -> bool:
    """Return True when nothing more is to come of a tool call."""
    return call.get("status") in ENDED


def card(call: Json, *, seen: object = None, asked: bool = False) -> Card:
    """Return the card of a tool call, without content that was `seen` before.

    `asked`: with what it is to do, for a permission.
    """
    items = [] if call.get("content") == seen else objects(call.get("content"))
    content = [each for item in items if (each := _content(item))]
    changes = any(isinstance(each, Diff) for each in content)
    shown = [*_input(call), *content] if asked and not changes else content
    return Card(
        title=_title(call),
        kind=one_line(call.get("kind"), 20) or "other",
        status=one_line(call.get("status"), 20) or "pending",
        locations=tuple(_locations(call)),
        content=tuple(shown or _raw_output(call)),
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
                harmless(old[:_LONGEST]) if isinstance(old, str) else None,
                harmless(str(item.get("newText") or "")[:_LONGEST]),
            )
        case "content":
            text = _FENCE.sub(r"\2", text_of(item.get("content"))[:_LONGEST].strip("\n"))
            return Output(harmless(text)) if text.strip() else None
    return None


def _locations(call: Json) -> list[str]:
    places = objects(call.get("locations"))
    found = [
        one_line(place.get("path"), 300)
        + (f":{place['line']}" if isinstance(place.get("line"), int) else "")
        for place in places[:_MOST_LOCATIONS]
    ]
    more = len(places) - len(found)
    return [*filter(None, found), *([f"and {more} more"] if more else [])]


def _input(call: Json) -> list[Output]:
    """Return what a tool call is to do, unless its title says it."""
    raw, title = call.get("rawInput"), _title(call)
    values = raw.items() if isinstance(raw, dict) else []
    texts = [
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in values
        if not _says(title, value)
    ]
    return [Output(harmless("\n".join(texts)[:_LONGEST]))] if texts else []


def _says(title: str, value: object) -> bool:
    return isinstance(value, str) and (
        title == value or title.endswith((f" {value}", f"`{value}`"))
    )


def _raw_output(call: Json) -> list[Output]:
    raw = call.get("rawOutput")
    return [Output(harmless(raw[:_LONGEST]))] if isinstance(raw, str) and raw.strip() else []
