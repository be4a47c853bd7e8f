"""A transcript as Markdown: what was said, in the order in which it was said.

Invariants
- A tool call stands where it began, with what is known of it at the end.
- A fence is longer than every run of backticks in what it holds.
- Text of others is harmless to a terminal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from acp_bridge.notices import as_code
from acp_bridge.protocol import (
    AGENT_MESSAGE,
    AGENT_THOUGHT,
    CONTEXT,
    FEEDBACK,
    PLAN,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    USER_MESSAGE,
    Json,
    follows_apart,
    own_meta,
)
from acp_bridge.terminal.harmless import harmless, one_line

_HEADS: Final = {USER_MESSAGE: "User", AGENT_MESSAGE: "Agent", AGENT_THOUGHT: "Thought"}
_DONE: Final = {"completed": "x", "in_progress": "-"}
#: what a block that is not there yet says: as text, when all is known.
_Block = Callable[[], str]


def markdown(transcript: Iterable[Json]) -> str:
    """Return the Markdown of a session's updates: params of `session/update`."""
    page = _Page()
    for params in transcript:
        update = params.get("update")
        if isinstance(update, dict) and not own_meta(params).get(CONTEXT):
            page.add(update, own_meta(params))
    return page.text()


class _Page:
    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._cards: dict[str, Json] = {}
        self._plan: Json = {}
        #: who speaks, what was said last, and the pieces of that message.
        self._who: str | None = None
        self._last: Json | None = None
        self._said: list[str] = []

    def add(self, update: Json, own: Json) -> None:
        match update.get("sessionUpdate"):
            case str(kind) if kind in _HEADS:
                self._say(_voice(kind, own), update)
            case kind if kind in (TOOL_CALL, TOOL_CALL_UPDATE):
                self._card(update)
            case kind if kind == PLAN:
                self._note_plan(update)

    def text(self) -> str:
        return "\n\n".join(filter(None, (block() for block in self._blocks)))

    def _say(self, who: str, update: Json) -> None:
        said = _content(update.get("content"))
        if who != self._who:
            self._blocks.append(lambda: f"## {who}")
        if who != self._who or follows_apart(self._last, update):
            self._said = parts = [said]
            self._blocks.append(lambda: "".join(parts))
        else:
            self._said.append(said)
        self._who, self._last = who, update

    def _card(self, update: Json) -> None:
        call = str(update.get("toolCallId"))
        if call not in self._cards:
            self._cards[call] = {}
            self._blocks.append(lambda: _shown_card(self._cards[call]))
            self._who = None
        self._cards[call] |= {key: value for key, value in update.items() if value is not None}

    def _note_plan(self, update: Json) -> None:
        if not self._plan:
            self._blocks.append(lambda: _shown_plan(self._plan))
            self._who = None
        self._plan = update


def _voice(kind: str, own: Json) -> str:
    if own.get("notice"):
        return "acp-bridge"
    return "Hook" if own.get(FEEDBACK) else _HEADS[kind]


def _shown_card(card: Json) -> str:
    title = _code(one_line(str(card.get("title") or "tool call")))
    kind, status = (card.get(key) for key in ("kind", "status"))
    about = ", ".join(one_line(str(each)) for each in (kind, status) if each)
    head = f"**Tool** {title}" + (f" ({about})" if about else "")
    content = card.get("content")
    parts = [_part(each) for each in content] if isinstance(content, list) else []
    return "\n\n".join([head, *filter(None, parts)])


def _code(text: str) -> str:
    """Return a line as code; one that is code already, as titles of commands are, stays so."""
    within = text.removeprefix("`").removesuffix("`")
    if len(text) - len(within) == 2 and within and "`" not in within:
        return text
    return as_code(text)


def _part(item: Any) -> str:
    match item:
        case {"type": "diff", "path": str(path), "newText": str(new), **rest}:
            old = rest.get("oldText")
            return _fenced(_diff(path, old if isinstance(old, str) else "", new), "diff")
        case {"type": "content", "content": content}:
            return _fenced(_content(content))
    return ""


def _diff(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        harmless(old).splitlines(),
        harmless(new).splitlines(),
        one_line(path),
        one_line(path),
        lineterm="",
    )
    return "\n".join(lines)


def _fenced(text: str, language: str = "") -> str:
    if not text.strip():
        return ""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _shown_plan(plan: Json) -> str:
    entries = plan.get("entries")
    lines = [
        f"- [{_DONE.get(str(entry.get('status')), ' ')}] {one_line(str(entry.get('content')))}"
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
    ]
    return "\n".join(lines)


def _content(content: Any) -> str:
    """Return the text of a content block; what is no text is named in brackets."""
    match content:
        case {"type": "text", "text": str(text)}:
            return harmless(text)
        case {"type": "resource_link", "uri": str(uri)}:
            return f"<{one_line(uri)}>"
        case {"type": "resource", "resource": {"uri": str(uri), **rest}}:
            held: object = rest.get("text")
            whole = f"\n\n{_fenced(harmless(held))}" if isinstance(held, str) else ""
            return f"<{one_line(uri)}>{whole}"
        case {"type": str(kind)}:
            return f"[{one_line(kind)}]"
    return ""
