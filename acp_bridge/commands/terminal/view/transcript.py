"""A session on a terminal: the blocks that are finished, and the tail that still changes.

Invariants:
- Blocks are finished in the order in which they began, each once; a finished block never changes.
  What comes later of a tool call whose card was finished is a card of its own.
- The tail is bounded: what waits behind a card for too long lets that card be finished as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from acp_bridge import protocol as acp
from acp_bridge.commands.terminal.view.block_text import harmless, words
from acp_bridge.commands.terminal.view.blocks import (
    Block,
    Call,
    Card,
    Line,
    Paragraph,
    Plan,
    Said,
    Voice,
)
from acp_bridge.commands.terminal.view.from_updates import Updates, card, content
from acp_bridge.commands.terminal.view.paragraphs import Paragraphs
from acp_bridge.protocol import Json
from acp_bridge.updates import tool_calls

#: blocks that may wait behind one that is not finished.
_MOST_WAITING: Final = 30
#: tool calls that are remembered after their card was finished.
_MOST_CALLS: Final = 200


@dataclass(slots=True)
class _Message:
    #: the piece that was said last.
    said: Said
    paragraphs: Paragraphs = field(default_factory=Paragraphs)
    first: bool = True


@dataclass(slots=True)
class _Call:
    call_id: str
    call: Json
    #: the content of the card of it that was finished before.
    seen: object = None


_Open = _Message | _Call | Paragraph | Line


class Transcript:
    """What was said and done in a session, from its updates."""

    def __init__(self) -> None:
        #: the plan as it stands; it becomes a block when the turn ends.
        self.plan: Plan | None = None
        self._finished: list[Block] = []
        self._open: list[_Open] = []
        self._updates = Updates(_MOST_CALLS)
        #: the content of each card that was finished, by the id of its call.
        self._seen: dict[str, object] = {}

    # -- what comes in

    def take(self, params: Json) -> None:
        """Take the parameters of a `session/update`; states and unknown kinds show nothing."""
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

    def begin_turn(self, prompt: Iterable[object]) -> None:
        """Show the content blocks of a prompt from this terminal, whose turn begins."""
        self.end_turn()
        self.say_aside(prompt)

    def say_aside(self, prompt: Iterable[object]) -> None:
        """Show the content blocks of a prompt that has no turn of its own."""
        self._end_message()
        text = "".join(words(content(block)) for block in prompt)
        self._add(Paragraph(Voice.USER, harmless(text)))
        self._settle()

    def end_turn(self) -> None:
        """Finish everything: nothing more of this turn is to come."""
        while self._open:
            self._finish_first()
        if self.plan is not None:
            self._finished.append(self.plan)
            self.plan = None

    def ask(self, call: Json) -> str:
        """Show at once the whole of what a permission is asked for; returns its title."""
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
        self._finished.append(replace(whole, title=title, locations=(), whole=True))
        self._note_seen(asked.call_id, asked.now.get("content"))
        return title

    # -- what is shown

    def take_finished(self) -> list[Block]:
        """Return the blocks that were finished since the last time."""
        finished, self._finished = self._finished, []
        return finished

    def tail(self) -> list[Block]:
        """Return the blocks that may still change, after all finished ones."""
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

    # -- the order

    def _add(self, entry: _Open) -> None:
        self._open.append(entry)

    def _settle(self) -> None:
        """Move what is finished from the front; a card that holds up too much is let go."""
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
    """Return the card of a tool call, without the content that an earlier card has shown."""
    shown = card(call)
    return replace(shown, content=()) if call.get("content") == seen else shown


def _differs(before: Json, now: Json) -> bool:
    """Return True if a call has changed since its card was finished, and a card shows that."""
    return any(before.get(key) != now.get(key) for key in ("status", "content", "title"))
