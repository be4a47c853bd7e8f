"""Shows a client that can't show subagents what a session's children do. SANS-IO.

- Each child is one tool card of the session: its title, its latest words, the status of its work.
  When it is given work again, that is one more card: a card has one end (invariant C16).
- Its own tool calls are no cards, but for one that the client is asked about. What sessions say to
  each other is left out, and no child is named (invariant X1).
- The recorded updates alone say what is shown, so a replay shows the cards of before.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    ENDED,
    OF_SUBAGENTS,
    SUBAGENT_UPDATE,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    Json,
    as_object,
    without,
)
from acp_bridge.core.updates.children import Child, Children, is_of_subagents, names_session
from acp_bridge.core.updates.tool_calls import title

#: the most characters of a child's latest words on its card, and the number of new ones after
#: which the card is renewed.
_WORDS: Final = 500
_NEW: Final = 200


class _Card(Struct):
    """What was shown of a child last."""

    run: int = 0
    title: str = ""
    status: str = ""
    words: str = ""
    #: the message that the words are of, and how many characters of it the card lacks.
    message: object = None
    new: int = 0


class Folded:
    """Turns the updates of a session and its children into those of the session alone.

    Each child is one tool card there.
    """

    def __init__(self, children: Children, *, replays: bool = False) -> None:
        """`replays`: `children` knows nothing yet, and learns from the updates given to `fold`."""
        self._children = children
        self._replays = replays
        self._cards: dict[str, _Card] = {}
        for child in children:  # those of an earlier bridge were shown, if clients knew them
            if child.announced:
                self._cards[child.key] = _Card(child.run, child.title, child.status)

    def fold(self, params: Json) -> list[Json]:
        """Return the updates that the client is shown for a recorded one."""
        if not is_of_subagents(params):
            return [params]
        if self._replays:
            self._children.note_recorded(params)
        update = as_object(params.get("update"))
        kind = update.get("sessionUpdate")
        if kind == SUBAGENT_UPDATE:
            child = self._children.get(update.get("sessionId"))
            return self._state(child) if child else []
        if "sessionId" in params:
            return self._of_child(params, update)
        if kind not in OF_SUBAGENTS and names_session(params):
            return [{**params, "update": self._children.unlinked(update)}]
        return []

    def card(self, child: Child) -> Json:
        """Return the update that opens a child's card for a client that has not been shown it."""
        return {"update": {"sessionUpdate": TOOL_CALL, **self._whole(child)}}

    def _whole(self, child: Child) -> Json:
        """Return a child's card with all its members: id, title, kind, status, latest words."""
        shown = self._cards.setdefault(child.key, _Card())
        about = child.told.get("description")
        words = shown.words or (about if isinstance(about, str) and about != child.title else "")
        return {
            "toolCallId": _card_id(child),
            "title": child.title,
            "kind": "other",
            "status": child.status,
            **_content(words),
        }

    def _state(self, child: Child) -> list[Json]:
        shown = self._cards.setdefault(child.key, _Card())
        if shown.run != child.run:
            self._cards[child.key] = _Card(child.run, child.title, child.status)
            return [self.card(child)]
        changed: Json = {}
        if child.title != shown.title:
            changed["title"] = shown.title = child.title
        if child.status != shown.status:
            changed["status"] = shown.status = child.status
            changed |= _content(shown.words) if child.status in ENDED and shown.new else {}
        return [self._update(child, changed)] if changed else []

    def _of_child(self, params: Json, update: Json) -> list[Json]:
        child = self._children.get(params["sessionId"])
        if child is None:
            return []
        kind, card_id = update.get("sessionUpdate"), update.get("toolCallId")
        if kind == AGENT_MESSAGE:
            return self._said(child, update)
        if kind in (TOOL_CALL, TOOL_CALL_UPDATE) and card_id in self._children.asked:
            if update.get("status") in ENDED:
                self._children.asked.discard(str(card_id))
            meta = without(params, "sessionId")
            return [{**meta, "update": in_name_of(child, self._children.unlinked(update))}]
        return []

    def _said(self, child: Child, update: Json) -> list[Json]:
        """Note the child's words; returns its renewed card after a line or `_NEW` characters."""
        text, message = as_object(update.get("content")).get("text"), update.get("messageId")
        shown = self._cards.setdefault(child.key, _Card())
        if not isinstance(text, str) or child.status in ENDED:
            return []
        if message != shown.message:
            shown.message, shown.words = message, ""
        shown.words = (shown.words + text)[-_WORDS:]
        shown.new += len(text)
        if shown.new < _NEW and "\n" not in text:
            return []
        shown.new = 0
        return [self._update(child, _content(shown.words))]

    def _update(self, child: Child, changed: Json) -> Json:
        card = {"sessionUpdate": TOOL_CALL_UPDATE, "toolCallId": _card_id(child)}
        return {"update": {**card, **changed}}


def in_name_of(child: Child, call: Json) -> Json:
    """Return a description of a tool call of a child with the child's title in front of its own."""
    said = "title" in call
    return {**call, "title": f"[{child.title}] {title(call)}"} if said else call


def _card_id(child: Child) -> str:
    number, run = child.key[1:], child.run
    return f"subagent-{number}" if run == 1 else f"subagent-{number}.{run}"


def _content(words: str) -> Json:
    if not words.strip():
        return {}
    return {"content": [{"type": "content", "content": {"type": "text", "text": words}}]}
