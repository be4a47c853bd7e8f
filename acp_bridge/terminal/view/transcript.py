"""The transcript of a session as blocks: those that are finished, and the tail that still changes.

Invariants:
- Blocks are finished in the order in which they began, each once; a finished block never changes.
  What comes later of a tool call whose card was finished is a card of its own.
- The tail is bounded: what waits behind a card for too long lets that card be finished as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from acp_bridge import protocol as acp
from acp_bridge.json_values import objects
from acp_bridge.protocol import Json
from acp_bridge.terminal.view import tool_calls
from acp_bridge.terminal.view.block_text import harmless, one_line
from acp_bridge.terminal.view.blocks import Block, Line, Plan, Step, Text, Voice
from acp_bridge.terminal.view.content import text_of
from acp_bridge.terminal.view.paragraphs import Paragraphs

_VOICES: Final = {
    acp.USER_MESSAGE: Voice.USER,
    acp.AGENT_MESSAGE: Voice.AGENT,
    acp.AGENT_THOUGHT: Voice.THOUGHT,
}
#: blocks that may wait behind one that is not finished.
_MOST_WAITING: Final = 30
#: tool calls that are remembered after their card was finished.
_MOST_CALLS: Final = 200
_MOST_ENTRIES: Final = 50


@dataclass(slots=True)
class _Message:
    voice: Voice
    #: the last that was said of it.
    update: Json
    paragraphs: Paragraphs = field(default_factory=Paragraphs)
    first: bool = True


@dataclass(slots=True)
class _Call:
    call_id: str
    call: Json
    #: the content of the card of it that was finished before.
    seen: object = None


_Open = _Message | _Call | Text | Plan | Line


class Transcript:
    """What was said and done in a session, from its updates."""

    def __init__(self) -> None:
        #: the plan as it stands; it becomes a block when the turn ends.
        self.plan: Plan | None = None
        self._finished: list[Block] = []
        self._open: list[_Open] = []
        #: tool calls by id; those whose card was finished are here, too.
        self._calls: OrderedDict[str, Json] = OrderedDict()
        #: the content of each card that was finished, by the id of its call.
        self._seen: dict[str, object] = {}

    # -- what comes in

    def take(self, params: Json) -> None:
        """Take the parameters of a `session/update`; states and unknown kinds show nothing."""
        update = params.get("update")
        if not isinstance(update, dict):
            return
        match update.get("sessionUpdate"):
            case acp.USER_MESSAGE | acp.AGENT_MESSAGE | acp.AGENT_THOUGHT as kind:
                notice = acp.own_meta(params).get("notice") is True
                self._say(Voice.BRIDGE if notice else _VOICES[kind], update)
            case acp.TOOL_CALL | acp.TOOL_CALL_UPDATE:
                self._on_call(update)
            case acp.PLAN:
                self.plan = _plan(update)

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
        self._add(Text(Voice.USER, harmless("".join(text_of(block) for block in prompt))))
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
        call_id = str(call.get("toolCallId"))
        call = self._calls[call_id] = tool_calls.merged(self._calls.get(call_id, {}), call)
        self._open = [
            each for each in self._open if not isinstance(each, _Call) or each.call_id != call_id
        ]
        while self._open:
            self._finish_first()
        card = tool_calls.card(call, asked=True)
        self._finished.append(card)
        self._seen[call_id] = call.get("content")
        return card.title

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

    def _say(self, voice: Voice, update: Json) -> None:
        text = harmless(text_of(update.get("content")))
        if not text:
            return
        last = self._open[-1] if self._open else None
        if (
            not isinstance(last, _Message)
            or last.voice is not voice
            or acp.follows_apart(last.update, update)
        ):
            self._end_message()
            if voice is Voice.USER:
                self.end_turn()
            last = _Message(voice, update)
            self._add(last)
        last.update = update
        self._finish_paragraphs(last, text)

    def _finish_paragraphs(self, message: _Message, piece: str) -> None:
        for paragraph in message.paragraphs.add(piece):
            text = Text(message.voice, paragraph, first=message.first)
            message.first = False
            self._open.insert(len(self._open) - 1, text)
        self._settle()

    def _end_message(self) -> None:
        if self._open and isinstance(last := self._open[-1], _Message):
            self._open.pop()
            if rest := last.paragraphs.take_rest():
                self._open.append(Text(last.voice, rest, first=last.first))
        self._settle()

    # -- tool calls

    def _on_call(self, update: Json) -> None:
        call_id = str(update.get("toolCallId"))
        call = tool_calls.merged(self._calls.get(call_id, {}), update)
        before = self._calls.get(call_id)
        self._calls[call_id] = call
        for each in self._open:
            if isinstance(each, _Call) and each.call_id == call_id:
                each.call = call
                self._settle()
                return
        if before is None or _differs(before, call):
            self._end_message()
            self._add(_Call(call_id, call, seen=self._seen.get(call_id)))
            self._settle()
        while len(self._calls) > _MOST_CALLS:
            self._seen.pop(self._calls.popitem(last=False)[0], None)

    # -- the order

    def _add(self, entry: _Open) -> None:
        self._open.append(entry)

    def _settle(self) -> None:
        """Move what is finished from the front; a card that holds up too much is let go."""
        while self._open:
            first = self._open[0]
            waits = isinstance(first, _Message) or (
                isinstance(first, _Call) and not tool_calls.has_ended(first.call)
            )
            if waits and len(self._open) <= _MOST_WAITING:
                return
            self._finish_first()

    def _finish_first(self) -> None:
        first = self._open.pop(0)
        if isinstance(first, _Message):
            rest = first.paragraphs.take_rest()
            if rest:
                self._finished.append(Text(first.voice, rest, first=first.first))
            return
        if isinstance(first, _Call):
            self._seen[first.call_id] = first.call.get("content")
        if block := _shown(first):
            self._finished.append(block)


def _shown(entry: _Open) -> Block | None:
    match entry:
        case _Message(voice, _, paragraphs, first):
            rest = paragraphs.rest
            return Text(voice, rest, first=first) if rest.strip() else None
        case _Call(_, call, seen):
            return tool_calls.card(call, seen=seen)
        case block:
            return block


def _differs(before: Json, now: Json) -> bool:
    """Return True when a call whose card was finished has changed in what a card shows."""
    return any(before.get(key) != now.get(key) for key in ("status", "content", "title"))


def _plan(update: Json) -> Plan | None:
    entries = [
        (_step(entry.get("status")), one_line(entry.get("content")))
        for entry in objects(update.get("entries"))[:_MOST_ENTRIES]
    ]
    return Plan(tuple(entries)) if entries else None


def _step(status: object) -> Step:
    return next((step for step in Step if step.value == status), Step.PENDING)
