"""Telling a late replay from an answer. SANS-IO.

Some agents answer `session/load` first and replay afterwards, when the next prompt is on its way
already. Nothing in the protocol marks such updates, but the conversation is known: what an agent
says is taken for its replay while it starts with the first prompt ever said and goes on as the
record does. The first difference ends it (HAZARDS R11).
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import Any

Json = dict[str, Any]
_SAYS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
#: characters of a conversation that are kept to compare with; a replay is told that far.
_LIMIT = 4_000_000


class LateReplay:
    """What a process may repeat of a conversation after it was given the session."""

    def __init__(self) -> None:
        self._said = dict.fromkeys(_SAYS, "")
        self._cards: set[str] = set()
        self._at = dict.fromkeys(_SAYS, 0)
        self._begun = False
        #: nothing that comes now is a replay.
        self.over = False

    @classmethod
    async def of(cls, pages: AsyncIterable[list[Json]]) -> LateReplay:
        """From the recorded conversation: pages of `session/update` parameters."""
        late, said = cls(), {kind: list[str]() for kind in _SAYS}
        room = _LIMIT
        async for page in pages:
            for params in page:
                update = params.get("update")
                if not isinstance(update, dict) or room <= 0:
                    continue
                kind, text = update.get("sessionUpdate"), _text(update)
                if kind in said:
                    said[kind].append(text)
                    room -= len(text)
                elif isinstance(card := update.get("toolCallId"), str):
                    late._cards.add(card)
        late._said = {kind: "".join(texts) for kind, texts in said.items()}
        return late

    def add_prompt(self, blocks: Iterable[Any]) -> None:
        """The prompt that is sent now: it may end the replay."""
        for block in blocks:
            self._said[_SAYS[0]] += _text({"content": block})

    def covers(self, update: Json) -> bool:
        """Whether this update of the conversation repeats what is recorded; in order."""
        if self.over:
            return False
        kind = update.get("sessionUpdate")
        if kind in self._at:
            repeated = (self._begun or kind == _SAYS[0]) and self._repeats(str(kind), update)
        else:
            repeated = self._begun and update.get("toolCallId") in self._cards
        self._begun = repeated
        self.over = not repeated
        return repeated

    def _repeats(self, kind: str, update: Json) -> bool:
        text, at = _text(update), self._at[kind]
        if not text or not self._said[kind].startswith(text, at):
            return False
        self._at[kind] += len(text)
        return True


def _text(update: Json) -> str:
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""
