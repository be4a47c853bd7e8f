"""A session on a terminal, as finished blocks and a tail of blocks that may still change.

Invariants:
- Blocks are finished in the order in which they began, each once, and then never change. Later
  updates of a finished tool call make another card.
- The tail is bounded: an unfinished card is finished as it is when too many blocks wait behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import Json
from acp_bridge.core.records import replace
from acp_bridge.core.updates import tool_calls
from acp_bridge.terminal.view.block_text import harmless, words
from acp_bridge.terminal.view.blocks import (
    Block,
    Call,
    Card,
    Extent,
    Line,
    Paragraph,
    Plan,
    Said,
    Voice,
)
from acp_bridge.terminal.view.from_updates import Updates, card, content
from acp_bridge.terminal.view.paragraphs import Paragraphs

#: how many blocks may wait behind an unfinished one.
_MOST_WAITING: Final = 30
#: how many tool calls are remembered.
_MOST_CALLS: Final = 200


@dataclass(slots=True)
class _Message:
    #: the last piece.
    said: Said
    paragraphs: Paragraphs = field(default_factory=Paragraphs)
    first: bool = True


@dataclass(slots=True)
class _Call:
    call_id: str
    call: Json
    #: the content shown by the call's earlier, finished card.
    seen: object = None


_Open = _Message | _Call | Paragraph | Line


class Transcript:
    """Makes the blocks of a session from its updates."""

    def __init__(self) -> None:
        #: the current plan; it becomes a block at the end of the turn.
        self.plan: Plan | None = None
        self._finished: list[Block] = []
        self._open: list[_Open] = []
        self._updates = Updates(_MOST_CALLS)
        #: the content of the last finished card of each call, by its id.
        self._seen: dict[str, object] = {}
        #: the ids of the ended calls that were opened since the last turn began or ended.
        self._opened: set[str] = set()

    # -- input

    def add_update(self, params: Json) -> None:
        """Add the params of a `session/update`.

        Updates of state and of unknown kinds show nothing.
        """
        match self._updates.read(params):
            case Said() as said:
                self._say(said)
            case Call() as call:
                self._on_call(call)
            case Plan(entries) as plan:
                self.plan = plan if entries else None

    def say(self, line: Line) -> None:
        """Add a line of this program's own."""
        self._end_message()
        self._add(line)
        self._settle()

    def say_above(self, line: Line) -> None:
        """Add a line of this program's own above what is unfinished, which goes on."""
        self._finished.append(line)

    def forget(self) -> None:
        """Finish all blocks, and forget all tool calls: the session is shown anew."""
        self.end_turn()
        self._updates = Updates(_MOST_CALLS)
        self._seen.clear()

    def begin_turn(self, prompt: Iterable[object]) -> None:
        """Add the content blocks of a prompt of this terminal, whose turn begins."""
        self.end_turn()
        self.say_aside(prompt)

    def say_aside(self, prompt: Iterable[object]) -> None:
        """Add the content blocks of a prompt without ending the turn that runs."""
        self._end_message()
        text = "".join(words(content(block)) for block in prompt)
        self._add(Paragraph(Voice.USER, harmless(text)))
        self._settle()

    def end_turn(self) -> None:
        """Finish all blocks at the end of a turn."""
        self._opened.clear()
        while self._open:
            self._finish_first()
        if self.plan is not None:
            self._finished.append(self.plan)
            self.plan = None

    def ask(self, call: Json) -> str:
        """Finish all blocks, then add the whole call that a permission is about.

        Returns its title.
        """
        asked = self._updates.on_call(call)
        self._open = [
            each
            for each in self._open
            if not isinstance(each, _Call) or each.call_id != asked.call_id
        ]
        while self._open:
            self._finish_first()
        title = tool_calls.title(asked.now)
        whole = card(tool_calls.shown(asked.now))
        self._finished.append(replace(whole, title=title, locations=(), extent=Extent.ASKED))
        self._note_seen(asked.call_id, asked.now.get("content"))
        return title

    def open_call(self) -> bool:
        """Add the whole of the last tool call with output, or the one before it if called again.

        Returns False if there is none. A call that runs is opened again at each call.
        """
        for call_id, call in self._updates.newest_calls():
            whole = card(call)
            if call_id not in self._opened and (whole.content or whole.output):
                if call.get("status") in acp.ENDED:
                    self._opened.add(call_id)
                self._finished.append(replace(whole, extent=Extent.WHOLE))
                return True
        return False

    # -- output

    def take_finished(self) -> list[Block]:
        """Return the blocks that were finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def tail(self) -> list[Block]:
        """Return the blocks that may still change; they come after all finished ones."""
        shown = [block for each in self._open if (block := _shown(each))]
        return [*shown, self.plan] if self.plan else shown

    # -- messages

    def _say(self, said: Said) -> None:
        text = harmless(words(said.content))
        if not text:
            return
        last = self._open[-1] if self._open else None
        if not isinstance(last, _Message) or not said.goes_on(last.said):
            self._end_message()
            if said.voice in (Voice.USER, Voice.HOOK):
                self.end_turn()
            last = _Message(said)
            self._add(last)
        last.said = said
        self._finish_paragraphs(last, text)

    def _finish_paragraphs(self, message: _Message, piece: str) -> None:
        for paragraph in message.paragraphs.add(piece):
            text = Paragraph(message.said.voice, paragraph, first=message.first)
            message.first = False
            self._open.insert(len(self._open) - 1, text)
        self._settle()

    def _end_message(self) -> None:
        if self._open and isinstance(last := self._open[-1], _Message):
            self._open.pop()
            if rest := last.paragraphs.take_rest():
                self._open.append(Paragraph(last.said.voice, rest, first=last.first))
        self._settle()

    # -- tool calls

    def _on_call(self, call: Call) -> None:
        for each in self._open:
            if isinstance(each, _Call) and each.call_id == call.call_id:
                each.call = call.now
                self._settle()
                return
        if call.before is None or _differs(call.before, call.now):
            self._end_message()
            self._add(_Call(call.call_id, call.now, seen=self._seen.get(call.call_id)))
            self._settle()

    def _note_seen(self, call_id: str, content: object) -> None:
        self._seen[call_id] = content
        while len(self._seen) > _MOST_CALLS:
            del self._seen[next(iter(self._seen))]

    # -- order

    def _add(self, entry: _Open) -> None:
        self._open.append(entry)

    def _settle(self) -> None:
        """Finish blocks from the front; an unfinished card only if too many wait behind it."""
        while self._open:
            first = self._open[0]
            waits = isinstance(first, _Message) or (
                isinstance(first, _Call) and first.call.get("status") not in acp.ENDED
            )
            if waits and len(self._open) <= _MOST_WAITING:
                return
            self._finish_first()

    def _finish_first(self) -> None:
        first = self._open.pop(0)
        if isinstance(first, _Message):
            rest = first.paragraphs.take_rest()
            if rest:
                self._finished.append(Paragraph(first.said.voice, rest, first=first.first))
            return
        if isinstance(first, _Call):
            self._note_seen(first.call_id, first.call.get("content"))
        if block := _shown(first):
            self._finished.append(block)


def _shown(entry: _Open) -> Block | None:
    match entry:
        case _Message(said, paragraphs, first):
            rest = paragraphs.rest
            return Paragraph(said.voice, rest, first=first) if rest.strip() else None
        case _Call(_, call, seen):
            return _card(call, seen)
        case block:
            return block


def _card(call: Json, seen: object) -> Card:
    """Return the card of a tool call, without its content if an earlier card showed the same."""
    shown = card(call)
    return replace(shown, content=()) if call.get("content") == seen else shown


def _differs(before: Json, now: Json) -> bool:
    """Return True if a call has changed visibly since its card was finished."""
    return any(before.get(key) != now.get(key) for key in ("status", "content", "title"))
