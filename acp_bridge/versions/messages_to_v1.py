"""Messages of version 2 as version 1 shows them: in chunks, of which none is taken back. SANS-IO.

Version 2 can also tell a message as a whole, and replace it. If the new text begins with the shown
one, the rest is shown as one more chunk; else the new text is shown as another message. Of the text
that was shown only a length and a digest are kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from acp_bridge.core import protocol
from acp_bridge.core.protocol import Json
from acp_bridge.versions import v2
from acp_bridge.versions.blocks_to_v1 import block_to_v1, blocks_to_v1

#: the kinds of updates that tell a whole message, each with the kind that tells a chunk of it.
WHOLE: Final = {
    v2.USER_MESSAGE: protocol.USER_MESSAGE,
    v2.AGENT_MESSAGE: protocol.AGENT_MESSAGE,
    v2.AGENT_THOUGHT: protocol.AGENT_THOUGHT,
}
#: texts that are put into the digest in one go: to digest each alone would be slow.
_TEXTS: Final = 50


@dataclass(slots=True)
class _Message:
    """The text that was shown of one message: its length and digest."""

    #: its id in version 1.
    shown_id: str
    #: how often its text was replaced.
    replaced: int = 0
    length: int = 0
    digest: Any = field(default_factory=blake2b)
    #: texts that are not in the digest yet.
    last: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Add a text to what was shown."""
        self.length += len(text)
        self.last.append(text)
        if len(self.last) >= _TEXTS:
            self._digest()

    def begins(self, text: str) -> bool:
        """Return True if a text begins with all that was shown of the message."""
        if len(text) < self.length:
            return False
        self._digest()
        return bool(blake2b(_bytes(text[: self.length])).digest() == self.digest.digest())

    def _digest(self) -> None:
        self.digest.update(_bytes("".join(self.last)))
        self.last.clear()


class Messages:
    """The messages of one session that were shown."""

    def __init__(self) -> None:
        """No message was shown yet."""
        self._shown: dict[str, _Message] = {}

    def chunk(self, update: Json) -> list[Json]:
        """Return the updates of version 1 for a chunk of a message."""
        block, message_id = block_to_v1(update.get("content")), update.get("messageId")
        if block is None:
            return []
        if not isinstance(message_id, str):
            return [update]
        message = self._known(message_id)
        message.add(_as_text(block))
        if block is update["content"] and message.shown_id == message_id:
            return [update]
        return [{**update, "content": block, "messageId": message.shown_id}]

    def whole(self, update: Json) -> list[Json]:
        """Return the chunks for a message that is told as a whole: what was not shown of it yet."""
        blocks, message_id = blocks_to_v1(update.get("content")), update.get("messageId")
        if not blocks or not isinstance(message_id, str):
            return []
        message = self._known(message_id)
        if not message.begins("".join(map(_as_text, blocks))):
            message = self._replace(message_id, message)
        kept = {name: value for name, value in update.items() if name == "_meta"}
        chunks = []
        for block in _rest(blocks, message.length):
            message.add(_as_text(block))
            chunk = {"sessionUpdate": WHOLE[update["sessionUpdate"]], "content": block}
            chunks.append({**chunk, "messageId": message.shown_id, **kept})
        return chunks

    def _known(self, message_id: str) -> _Message:
        if (message := self._shown.get(message_id)) is None:
            message = self._shown[message_id] = _Message(message_id)
        return message

    def _replace(self, message_id: str, before: _Message) -> _Message:
        """Begin another message, under a new id, for a text that replaces the shown one."""
        number = before.replaced + 1
        self._shown[message_id] = _Message(f"{message_id}~{number + 1}", number)
        return self._shown[message_id]


def _rest(blocks: list[Json], shown: int) -> list[Json]:
    """Return the blocks without the first `shown` characters; a text block may be cut."""
    left = []
    for block in blocks:
        text = _as_text(block)
        if shown >= len(text):
            shown -= len(text)
        elif not shown:
            left.append(block)
        else:
            left.append({**block, "text": text[shown:]})
            shown = 0
    return left


def _as_text(block: Json) -> str:
    """Return the text of a text block; for any other its JSON, marked so that no text equals it."""
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        return text
    return f"\0{json.dumps(block, sort_keys=True)}\0"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
