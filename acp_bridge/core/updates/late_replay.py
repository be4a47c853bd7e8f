"""Tells a replay that comes after the load's answer from new words of the agent. SANS-IO.

Some agents answer `session/load` first and replay afterwards, when the next prompt is on its way
already. Nothing in the protocol marks such updates, but the conversation is known: what an agent
says is taken for its replay while it starts with the first prompt ever said and goes on as the
record does. The first difference ends it (invariant R11). If the agent does not repeat a prompt,
the words after it are new: an agent that was killed in a turn forgets the turn, and can use the
same words again. Space at the edges of texts does not count, since agents trim what they keep.
Other agents answer in the middle: what came before goes into the comparison first, and if that was
all of the record, nothing more is expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from acp_bridge.core.protocol import AGENT_MESSAGE, MESSAGES, NOTICE, USER_MESSAGE, Json, own_meta

#: the most characters of a conversation that are kept: a replay is recognized that far.
_LIMIT = 4_000_000
_COMPARED: Final[tuple[str, ...]] = ("sessionUpdate", "toolCallId")
_SPACE: Final = re.compile(r"\s*")


class LateReplay:
    """Compares what an agent says after a load with the recorded conversation."""

    def __init__(self) -> None:
        #: what was said, by kind: in pieces until the first update is compared with it.
        self._texts: dict[str, list[str]] = {kind: [] for kind in MESSAGES}
        self._sizes = dict.fromkeys(MESSAGES, 0)
        #: for each prompt, how much had been said of each kind before it.
        self._prompts: list[dict[str, int]] = []
        self._room = _LIMIT
        self._cards: set[str] = set()
        self._at = dict.fromkeys(MESSAGES, 0)
        self._begun = False
        #: True once something of the conversation was repeated.
        self.repeated = False
        #: True once something else came: nothing counts as a replay any more.
        self.over = False
        #: a part came before the load was answered.
        self._early = False

    def note(self, params: Json) -> None:
        """Add the next recorded `session/update` to the conversation.

        What the bridge itself said or was told is left out: no agent knows it. So is what a
        subagent did, which is replayed in the subagent's own session.
        """
        update = params.get("update")
        own = _is_own(params) or "sessionId" in params
        if not isinstance(update, dict) or self._room <= 0 or own:
            return
        kind = update.get("sessionUpdate")
        if kind in self._at:
            self._add(kind, text := _text(update))
            self._room -= len(text)
        elif isinstance(card := update.get("toolCallId"), str):
            self._cards.add(card)

    def add_prompt(self, blocks: Iterable[Any]) -> None:
        """Add the prompt that is sent now, with which the replay may end."""
        self._end_if_whole()
        for block in blocks:
            self._add(USER_MESSAGE, _text({"content": block}))

    def _add(self, kind: str, text: str) -> None:
        if kind == USER_MESSAGE and text.strip():  # or there is nothing to repeat
            last = self._prompts[-1] if self._prompts else {}
            if any(self._sizes[each] != last.get(each) for each in MESSAGES if each != kind):
                self._prompts.append(dict(self._sizes))  # else it is one more block of the last one
        self._texts[kind].append(text)
        self._sizes[kind] += len(text)

    def note_early(self, update: Json) -> None:
        """Compare an update that came before the load was answered."""
        self._early = False
        self.covers(update)
        self._early = True

    def _end_if_whole(self) -> None:
        """End the replay if all of it came before the load was answered."""
        if self._early:
            left = (self._left(kind) for kind in (USER_MESSAGE, AGENT_MESSAGE))
            self.over |= not any(left)
            self._early = False

    def _left(self, kind: str) -> str:
        """Return what was not repeated yet of a kind, without space at its beginning."""
        return self._said(kind)[self._at[kind] :].lstrip()

    def covers(self, update: Json) -> bool:
        """Return True if the agent's next update goes on repeating the recorded conversation.

        After the first that does not, it is False for all.
        """
        self._end_if_whole()
        if self.over:
            return False
        kind = update.get("sessionUpdate")
        if kind in self._at:
            new = kind != USER_MESSAGE and self._lacks_prompt(str(kind))
            repeated = (self._begun or kind == USER_MESSAGE) and not new
            repeated = repeated and self._repeats(str(kind), update)
        else:
            card = update.get("toolCallId")
            repeated = self._begun and isinstance(card, str) and card in self._cards
        self._begun = repeated
        self.repeated |= repeated
        self.over = not repeated
        return repeated

    def _lacks_prompt(self, kind: str) -> bool:
        """Return True if the record has a prompt before the next text of this kind, and the agent
        has not repeated that prompt.
        """
        repeated = self._at[USER_MESSAGE]
        follows = next((each for each in self._prompts if each[USER_MESSAGE] >= repeated), None)
        if not repeated or follows is None:
            return False
        space = _SPACE.match(self._said(kind), self._at[kind])
        return space is not None and space.end() >= follows[kind]

    def _said(self, kind: str) -> str:
        self._texts[kind] = ["".join(self._texts[kind])]
        return self._texts[kind][0]

    def _repeats(self, kind: str, update: Json) -> bool:
        whole, at = _text(update), self._at[kind]
        said = self._said(kind)
        if whole and said.startswith(whole, at):
            self._at[kind] += len(whole)
            return True
        text = whole.strip()
        begins = _SPACE.match(said, at)
        at = begins.end() if begins else at
        if not (whole and said.startswith(text, at)) or at == len(said):
            return False
        self._at[kind] = at + len(text)
        return True


class Early:
    """Keeps what a process repeats before it has answered the load, up to the same limit."""

    def __init__(self) -> None:
        """Nothing was repeated yet."""
        self._updates: list[Json] = []
        self._room = _LIMIT
        #: the process has repeated something.
        self.some = False

    def note(self, update: Json, late: LateReplay | None) -> None:
        """Keep what the comparison needs of an update, or go on with one that has begun."""
        self.some = True
        if late:
            late.note_early(update)
            return
        kept: Json = {name: update[name] for name in _COMPARED if name in update}
        kept["content"] = {"type": "text", "text": _text(update)}
        self._room -= len(_text(update)) + 100
        if self._room > 0:
            self._updates.append(kept)

    def take_into(self, late: LateReplay) -> None:
        """Compare what was kept; of more than is kept, nothing more is expected."""
        updates, self._updates = self._updates, []
        for each in updates:
            late.note_early(each)
        late.over |= self._room <= 0


class Echo:
    """Compares an agent's user messages with the prompt that it was just given."""

    def __init__(self, prompt: Iterable[Any]) -> None:
        """`prompt`: its content blocks."""
        self._blocks = list(prompt)
        self._left = "".join([_text({"content": block}) for block in self._blocks])

    def covers(self, update: Json) -> bool:
        """Return True for a user message of the agent's that goes on repeating the prompt.

        The first that does not is the agent's own, and no later one is compared.
        """
        text = _text(update)
        repeats = self._left.startswith(text) if text else update.get("content") in self._blocks
        if repeats:
            self._left = self._left[len(text) :]
        return repeats


def _is_own(params: Json) -> bool:
    return not own_meta(params).keys().isdisjoint((NOTICE, "command"))


def _text(update: Json) -> str:
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""
