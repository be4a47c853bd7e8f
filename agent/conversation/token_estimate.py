"""How many tokens a conversation takes, told without a tokenizer.

What a provider counted in the last call says how many tokens a character takes; until it has
counted, four characters are one token. An image counts as much whatever its size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.conversation.entries import Call, Entry
from agent.conversation.history import History
from agent.conversation.messages import TRIMMED, messages_of_entry
from agent.model import Message, ToolSpec

IMAGE_TOKENS = 1_500
#: tokens a character
USUAL_RATE = 0.25
#: no text takes less or more: one that seems to was not counted as a whole
_RATES = (0.1, 1.5)
#: characters too few to tell a rate from
_FEW = 2_000


@dataclass(frozen=True, slots=True)
class Size:
    chars: int = 0
    images: int = 0

    def tokens(self, rate: float) -> int:
        return round(self.chars * rate) + self.images * IMAGE_TOKENS


class TokenEstimate:
    """For one model call. `specs`: of its tools, None if not known; `images`: the model takes them;
    `rate`: tokens a character, if the history has no count to tell it from."""

    def __init__(
        self,
        history: History,
        specs: Sequence[ToolSpec] | None,
        *,
        images: bool,
        rate: float = USUAL_RATE,
    ) -> None:
        self._history = history
        self._specs = len(json.dumps(specs)) if specs else 0
        self._images = images
        self.rate = (None if specs is None else self._counted()) or rate

    def tokens(self) -> int:
        """Of the next call's input, as the history is now."""
        return self._size(self._history.messages(images=self._images)).tokens(self.rate)

    def of_entries(self, entries: Iterable[Entry]) -> int:
        images = self._images
        messages = (m for entry in entries for m in messages_of_entry(entry, images=images))
        return size_of(messages).tokens(self.rate)

    def of_result(self, call: Call) -> int:
        """What trimming it would save."""
        if call.outcome is None or call.trimmed:
            return 0
        images = len(call.outcome.images) if self._images else 0
        return Size(len(call.outcome.text) - len(TRIMMED), images).tokens(self.rate)

    def _counted(self) -> float | None:
        if self._history.measured is None:
            return None
        tokens, entries = self._history.measured
        size = self._size(self._history.messages(images=self._images, upto=entries))
        if size.chars < _FEW:
            return None
        rate = (tokens - size.images * IMAGE_TOKENS) / size.chars
        return min(max(rate, _RATES[0]), _RATES[1])

    def _size(self, messages: Iterable[Message]) -> Size:
        size = size_of(messages)
        return Size(size.chars + self._specs, size.images)


def size_of(messages: Iterable[Message]) -> Size:
    chars = images = 0
    for message in messages:
        content = message.get("content", "")
        if isinstance(content, str):
            chars += len(content)
        else:
            chars += sum(len(part.get("text", "")) for part in content)
            images += sum(part.get("type") == "image_url" for part in content)
        chars += len(message.get("reasoning_content", ""))
        for call in message.get("tool_calls", ()):
            chars += len(call["function"]["name"]) + len(call["function"]["arguments"])
    return Size(chars, images)
