"""Tool calls and terminals of version 2 as the tool cards of version 1. SANS-IO.

- Version 1 opens a card with `tool_call`, which has a title. It has no form for a piece of a card's
  content or for an agent's terminal: for each piece the card's whole content has to be shown.
- So pieces are shown when enough of them came to be worth that, and all of them before anything
  else about the card, and at the end of a turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from acp_bridge.core.clients.abilities import is_unknown_item
from acp_bridge.core.protocol import (
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    Json,
    as_object,
    has,
    is_link,
    objects,
)
from acp_bridge.versions import v2
from acp_bridge.versions.blocks_to_v1 import block_to_v1, text_content
from acp_bridge.versions.diff_to_v1 import diff_to_v1, is_understood, paths_of
from acp_bridge.versions.terminals_to_v1 import Terminal

#: the title of a card whose agent has not named it.
NO_TITLE: Final = "Tool"
_KINDS: Final = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
    | {"other"}
)
_STATUSES: Final = {
    **{each: each for each in ("pending", "in_progress", "completed", "failed")},
    v2.PAUSED: "pending",
    v2.CANCELLED: "failed",
}
#: the statuses of a call that has ended.
_FINAL: Final = frozenset({"completed", "failed", v2.CANCELLED})
#: a card of fewer characters than `_AT_ONCE` is shown at each piece; of a longer one pieces wait
#: until they are 1/`_PART` of it, or `_ENOUGH`: so not much more is sent than what came.
_AT_ONCE: Final = 2 * 1024
_PART: Final = 4
_ENOUGH: Final = 16 * 1024
#: cards that are kept; beyond that the oldest that has ended is forgotten.
_MOST: Final = 500


@dataclass(slots=True)
class _Card:
    """What the agent has told of one tool call."""

    title: str = ""
    content: list[Json] = field(default_factory=list)
    #: the content as it was last shown.
    shown: list[Json] = field(default_factory=list)
    #: the length of `shown`: of a terminal only the end is shown.
    length: int = 0
    #: characters of content and terminals that had come when it was last shown, and since then.
    size: int = 0
    unshown: int = 0
    ended: bool = False
    can_cancel: bool = False

    @property
    def terminals(self) -> list[str]:
        """The ids of the terminals that the card shows."""
        return [str(each.get("terminalId")) for each in self.content if _is_terminal(each)]

    def add(self, size: int) -> bool:
        """Note `size` more characters to show; returns True if the card is worth showing now."""
        self.unshown += size
        enough = max(min(self.size // _PART, _ENOUGH), self.length // _PART)
        return self.unshown > 0 and (self.size < _AT_ONCE or self.unshown >= enough)


class Cards:
    """The tool calls and terminals of one session."""

    def __init__(self) -> None:
        """No tool call or terminal is known yet."""
        self._cards: dict[str, _Card] = {}
        self._terminals: dict[str, Terminal] = {}

    # --- updates -------------------------------------------------------------------------------

    def call(self, update: Json) -> list[Json]:
        """Return the updates of version 1 for a `tool_call_update`."""
        call_id = update.get("toolCallId")
        if not isinstance(call_id, str):
            return []
        card, is_new = self._card(call_id)
        if card.ended and _begins(update):  # the agent uses the id for another call
            card, is_new = _Card(), True
            self._cards[call_id] = card
        shown = self.as_call(update, card)
        if "content" not in update and card.unshown:
            shown["content"] = self._shown(card)
        if is_new:
            return [{"sessionUpdate": TOOL_CALL, **_opened(shown, card)}]
        if len(shown) == 1:
            return []
        return [{"sessionUpdate": TOOL_CALL_UPDATE, **shown}]

    def piece(self, update: Json) -> list[Json]:
        """Return the updates for a `tool_call_content_chunk`; none while the piece waits."""
        call_id, item = update.get("toolCallId"), update.get("content")
        if not isinstance(call_id, str) or not isinstance(item, dict):
            return []
        card, is_new = self._card(call_id)
        card.content.append(item)
        shows = card.add(_size(item))
        if is_new:
            opened = {"toolCallId": call_id, "content": self._shown(card)}
            return [{"sessionUpdate": TOOL_CALL, **_opened(opened, card)}]
        return self._whole(call_id, card) if shows or _is_terminal(item) else []

    def terminal(self, update: Json) -> list[Json]:
        """Return the updates for a `terminal_update`: one for each card that shows the terminal."""
        terminal_id = str(update.get("terminalId"))
        self._terminals.setdefault(terminal_id, Terminal()).update(update)
        return [each for id_, card in self._showing(terminal_id) for each in self._whole(id_, card)]

    def output(self, update: Json) -> list[Json]:
        """Return the updates for a `terminal_output_chunk`; none while the output waits."""
        terminal_id = str(update.get("terminalId"))
        terminal = self._terminals.setdefault(terminal_id, Terminal())
        before = terminal.told
        terminal.add(update.get("data"))
        size = terminal.told - before
        return [
            each
            for id_, card in self._showing(terminal_id)
            if card.add(size)
            for each in self._whole(id_, card)
        ]

    def flush(self) -> list[Json]:
        """Return the updates that show all pieces that wait, one for each card."""
        waiting = [(id_, card) for id_, card in self._cards.items() if card.unshown]
        return [each for id_, card in waiting for each in self._whole(id_, card)]

    # --- queries --------------------------------------------------------------------------------

    def asked(self, call: Json, title: str) -> Json:
        """Return the tool call of a permission question in version 1; `title` if it has none.

        `call`: the tool call as the question has it. It is laid over what is known of the card,
        which itself does not change.
        """
        call_id = str(call.get("toolCallId"))
        known = self._cards.get(call_id) or _Card()
        asked = _Card(known.title, list(known.content), list(known.shown))
        shown = self.as_call(call, asked)
        shown["title"] = asked.title or title
        shown.setdefault("content", self._shown(asked))
        if paths := [each for item in asked.content for each in paths_of(item)]:
            told = objects(shown.get("locations"))
            named = [each.get("path") for each in told]
            shown["locations"] = told + [{"path": each} for each in paths if each not in named]
        if not all(is_understood(each) for each in asked.content if each.get("type") == "diff"):
            shown["kind"] = "other"  # no rule is to allow it
        return shown

    def can_cancel(self, kind: str, item_id: str) -> bool:
        """Return True if a tool call or a terminal runs and can be cancelled by itself."""
        if kind == v2.OF_TERMINAL:
            terminal = self._terminals.get(item_id)
            return terminal is not None and terminal.can_cancel and terminal.exit is None
        card = self._cards.get(item_id) if kind == v2.OF_TOOL_CALL else None
        return card is not None and card.can_cancel and not card.ended

    def cancellable(self) -> Iterator[tuple[str, str]]:
        """Yield type and id of each tool call and terminal that can be cancelled by itself now."""
        known = [(v2.OF_TOOL_CALL, each) for each in self._cards]
        known += [(v2.OF_TERMINAL, each) for each in self._terminals]
        yield from (each for each in known if self.can_cancel(*each))

    def title(self, kind: str, item_id: str) -> str:
        """Return the title of a tool call or the command of a terminal; `kind` if it has none."""
        card, terminal = self._cards.get(item_id), self._terminals.get(item_id)
        if kind == v2.OF_TERMINAL:
            return terminal.command if terminal and terminal.command else kind
        return card.title if card and card.title else kind

    def calls_of(self, kind: str, item_id: str) -> tuple[str, ...]:
        """Return the ids of the tool calls that show a terminal, or of the tool call itself."""
        if kind == v2.OF_TERMINAL:
            return tuple(call_id for call_id, _ in self._showing(item_id))
        return (item_id,) if kind == v2.OF_TOOL_CALL else ()

    def has_ended(self, kind: str, item_id: str) -> bool:
        """Return True if a tool call or a terminal has ended, or is not known."""
        if kind == v2.OF_TERMINAL:
            terminal = self._terminals.get(item_id)
            return terminal is None or terminal.exit is not None
        card = self._cards.get(item_id)
        return card is None or card.ended

    # --- the form of version 1 -----------------------------------------------------------------

    def as_call(self, update: Json, card: _Card) -> Json:
        """Return the members of a tool call in version 1's form, and note them in `card`.

        In version 1 a null member leaves the old value: one that is to be cleared becomes empty.
        """
        shown: Json = {"toolCallId": update.get("toolCallId")}
        for name, value in update.items():
            if name == "title":
                card.title = value if isinstance(value, str) else ""
                shown[name] = card.title
            elif name == "kind":
                shown[name] = value if isinstance(value, str) and value in _KINDS else "other"
            elif name == "status" and isinstance(value, str):
                card.ended = value in _FINAL
                shown[name] = _STATUSES.get(value, "in_progress")
            elif name == "content":
                card.content = objects(value)
                shown[name] = self._shown(card)
            elif name == "locations":
                shown[name] = objects(value)
            elif name in ("rawInput", "rawOutput"):
                shown[name] = "" if value is None else value
            elif name in ("name", "_meta") and value is not None:
                shown[name] = value
            elif name == "capabilities":
                card.can_cancel = has(value, "cancel")
        return shown

    def _whole(self, call_id: str, card: _Card) -> list[Json]:
        """Return the update that shows a card's whole content; none if it was shown already."""
        before = card.shown
        content = self._shown(card)
        if content == before:
            return []
        update = {"toolCallId": call_id, "content": content}
        return [{"sessionUpdate": TOOL_CALL_UPDATE, **update}]

    def _shown(self, card: _Card) -> list[Json]:
        """Return a card's content in version 1's form, and note that it is shown."""
        card.shown = [each for item in card.content for each in self._item(item)]
        card.length = sum(map(_size, card.shown))
        card.size, card.unshown = card.size + card.unshown, 0
        return card.shown

    def _item(self, item: Json) -> Iterator[Json]:
        """Yield the items of content in version 1 for one of version 2; none if it has none."""
        kind = item.get("type")
        if kind == "content" and not is_link(item.get("content")):
            if (block := block_to_v1(item.get("content"))) is not None:
                yield {**item, "content": block}
        elif is_link(item):
            yield item
        elif kind == "diff":
            yield from diff_to_v1(item)
        elif _is_terminal(item):
            terminal = self._terminals.get(str(item.get("terminalId")))
            if terminal and (text := terminal.text()):
                yield text_content(text)
        elif is_unknown_item(item):
            yield item

    def _card(self, call_id: str) -> tuple[_Card, bool]:
        """Return the card of a tool call, made if there is none, and whether it was made."""
        if call_id in self._cards:
            return self._cards[call_id], False
        if len(self._cards) >= _MOST:
            self._forget()
        card = self._cards[call_id] = _Card()
        return card, True

    def _forget(self) -> None:
        """Forget the oldest card that has ended, with the terminals that it alone showed."""
        for call_id, card in self._cards.items():
            if card.ended and all(self.has_ended(v2.OF_TERMINAL, t) for t in card.terminals):
                del self._cards[call_id]
                for each in card.terminals:
                    if not self._showing(each):
                        self._terminals.pop(each, None)
                return

    def _showing(self, terminal_id: str) -> list[tuple[str, _Card]]:
        """Return the cards that show a terminal, with their ids."""
        return [(id_, card) for id_, card in self._cards.items() if terminal_id in card.terminals]


def _opened(shown: Json, card: _Card) -> Json:
    """Return the members `shown` of a `tool_call`, with the title that it must have."""
    name = shown.get("name")
    title = card.title or (name if isinstance(name, str) and name else NO_TITLE)
    return {**shown, "title": title}


def _begins(update: Json) -> bool:
    """Return True if an update tells a status of a tool call that has not ended."""
    status = update.get("status")
    return isinstance(status, str) and status not in _FINAL


def _is_terminal(item: Json) -> bool:
    return item.get("type") == "terminal"


def _size(item: Json) -> int:
    """Return the length of a piece of content in characters; a guess for what is no text."""
    text: Any = as_object(item.get("content")).get("text")
    return max(1, len(text)) if isinstance(text, str) else _AT_ONCE
