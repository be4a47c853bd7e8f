"""Estimates how many tokens a conversation takes, without a tokenizer.

The provider's count for the last call gives the rate of tokens per character; without a count, four
characters are one token. Every image counts the same, whatever its size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from msgspec import Struct

from agent.conversation.entries import Call, Entry
from agent.conversation.history import History
from agent.conversation.messages import TRIMMED, messages_of_entry
from agent.model import Message, ToolSpec

IMAGE_TOKENS = 1_500
#: tokens per character, until a provider has counted
USUAL_RATE = 0.25
#: limits of the rate; a count outside of them was not of the whole text
_RATES = (0.1, 1.5)
#: characters; for fewer, a count says too little about the rate
_FEW = 2_000


class Size(Struct, frozen=True):
    chars: int = 0
    images: int = 0

    def tokens(self, rate: float) -> int:
        return round(self.chars * rate) + self.images * IMAGE_TOKENS


class TokenEstimate:
    """The estimate of the input of one model call.

    `specs`: of the call's tools, None if they are not known. `images`: the model takes images.
    `rate`: tokens per character if the history has no count.
    """

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
        """Returns the tokens of the next call's input, with the history as it is now."""
        return self._size(self._history.messages(images=self._images)).tokens(self.rate)

    def of_entries(self, entries: Iterable[Entry]) -> int:
        images = self._images
        messages = (m for entry in entries for m in messages_of_entry(entry, images=images))
        return size_of(messages).tokens(self.rate)

    def of_result(self, call: Call) -> int:
        """Returns the tokens that are saved if the call's result is left out."""
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
