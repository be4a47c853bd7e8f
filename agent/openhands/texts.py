"""Decides what is shown of a model's message: while it is written, and when it is complete.

Deltas are not stored and carry no message's id: they belong to the next message of the agent. Of
that message, only what follows the deltas is shown; if it is another text, it is a message of its
own (the server asked the model again).

Invariants
- Each word is shown once, whatever was cut: after a gap, deltas are dropped until the live feed has
  told the end of the message that they may belong to.
"""

from __future__ import annotations

from acp_bridge.core.protocol import AGENT_MESSAGE, AGENT_THOUGHT, text_chunk
from agent.client import Update


class _Shown:
    """What deltas have shown of one text of an unfinished message."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._text = ""
        self._id = ""

    @property
    def any(self) -> bool:
        return bool(self._text)

    def delta(self, text: str, message_id: str) -> list[Update]:
        if not text:
            return []
        self._id = self._id or message_id
        self._text += text
        return [text_chunk(self._kind, text, self._id)]

    def whole(self, text: str, message_id: str) -> list[Update]:
        """Returns the rest of a complete text that deltas have not shown."""
        shown, its_id = self._text, self._id
        if not text.strip() or text.strip() == shown.strip():
            return []
        if shown and text.startswith(shown):
            return [text_chunk(self._kind, text[len(shown) :], its_id or message_id)]
        return [text_chunk(self._kind, text, message_id)]

    def split(self) -> None:
        """Starts a new message for the next delta; remembers what was shown."""
        self._id = ""

    def clear(self) -> None:
        self._text = self._id = ""


class Texts:
    """Converts deltas and complete messages into chunks of messages and thoughts."""

    def __init__(self) -> None:
        self._text = _Shown(AGENT_MESSAGE)
        self._thought = _Shown(AGENT_THOUGHT)
        self._gap = True

    def gap(self) -> None:
        """Notes that deltas may be missing, or may come after their message."""
        self._gap = True

    def boundary(self) -> None:
        """Notes that at this point of the live feed no message is being written."""
        self._gap = False

    def delta(self, text: str, thought: str, delta_id: str) -> list[Update]:
        if self._gap:
            return []
        return [
            *self._thought.delta(thought, f"{delta_id}-thought"),
            *self._text.delta(text, delta_id),
        ]

    def whole(self, texts: tuple[str, ...], thought: str, message_id: str) -> list[Update]:
        """Returns the rest of a complete message that deltas have not shown.

        `texts`: what was said before a tool call and, if the call itself ends the turn with words,
        those words. Deltas belong to the first text that isn't empty.
        """
        updates = self._thought.whole(thought, f"{message_id}-thought")
        told = [text for text in texts if text.strip()]
        for number, text in enumerate(told):
            if number and text.strip() == told[number - 1].strip():
                continue
            updates += self._text.whole(
                text, message_id if not number else f"{message_id}-{number}"
            )
            self._text.clear()
        self.clear()
        return updates

    def split(self) -> None:
        """Notes that something else is shown between two parts of the message."""
        self._text.split()
        self._thought.split()

    def clear(self) -> None:
        """Forgets a message that will not be completed: its run was stopped or failed."""
        self._text.clear()
        self._thought.clear()
