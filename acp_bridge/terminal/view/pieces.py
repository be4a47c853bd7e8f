"""A session as the pieces of a page, in the order of their beginning. SANS-IO.

Invariants
- A tool call is one piece, where it began, in its present state. So is the plan of a turn.
- A piece keeps its number; what is added to a message leaves its finished paragraphs as they are.
- A notice that is not recorded has a number below zero, and neither ends a message nor shifts the
  numbers of others: a session has the same numbers each time that it is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

from acp_bridge.core.protocol import CONTEXT, CURSOR, Json, as_object, own_meta
from acp_bridge.terminal.view.block_text import harmless, words
from acp_bridge.terminal.view.blocks import Call, Plan, Said, Voice
from acp_bridge.terminal.view.from_updates import Updates
from acp_bridge.terminal.view.images import Picture, picture
from acp_bridge.terminal.view.paragraphs import Paragraphs


@dataclass(slots=True, eq=False)
class Message:
    """What one speaker says: paragraphs that no further text changes, and the rest."""

    number: int
    voice: Voice
    #: characters that are kept; None: all.
    most: int | None = None
    finished: list[str] = field(default_factory=list)
    #: how many characters were said beyond `most`, and are not kept.
    left: int = 0
    _said: int = 0
    _paragraphs: Paragraphs = field(default_factory=Paragraphs)
    _digest: blake2b = field(default_factory=lambda: blake2b(digest_size=16))

    @property
    def rest(self) -> str:
        """The text behind the finished paragraphs."""
        return self._paragraphs.rest

    @property
    def text(self) -> str:
        """The text that is kept: the finished paragraphs and the rest."""
        return "\n".join([*self.finished, self.rest])

    @property
    def size(self) -> int:
        """The number of characters that are kept."""
        return self._said

    @property
    def digest(self) -> str:
        """A digest of the text that is kept, however it came in parts."""
        return self._digest.hexdigest()

    def add(self, text: str) -> None:
        """Add text to the message; characters beyond `most` are only counted, in `left`."""
        room = len(text) if self.most is None else max(0, self.most - self._said)
        kept = text[:room]
        self.left += len(text) - len(kept)
        self._said += len(kept)
        self._digest.update(kept.encode("utf-8", "surrogatepass"))
        self.finished += self._paragraphs.add(kept)


@dataclass(slots=True, eq=False)
class ToolCall:
    """All that is known of a tool call, and what was decided about its permissions."""

    number: int
    call: Json
    decided: list[Json] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Steps:
    """The plan of a turn."""

    number: int
    plan: Plan


@dataclass(slots=True, eq=False)
class Image:
    """A picture in what a speaker says; the text around it is in other pieces."""

    number: int
    voice: Voice
    picture: Picture


Piece: TypeAlias = Message | ToolCall | Steps | Image


class Pieces:
    """Makes pieces of the updates of one session."""

    def __init__(
        self,
        most_calls: int | None = None,
        most_text: int | None = None,
        *,
        page: bool = False,
    ) -> None:
        """`most_calls`: how many tool calls may still change, the newest; None: all.

        `most_text`: how many characters of a message are kept; None: all. `page`: a picture in a
        message is a piece, and a notice without a cursor is one that is not recorded.
        """
        self._page = page
        self._most_text = most_text
        self._updates = Updates(most_calls)
        self._most_calls = most_calls
        self._calls: dict[str, ToolCall] = {}
        self._steps: Steps | None = None
        self._count = 0
        self._passing = 0
        #: the message that goes on, with its last piece; None behind any other piece.
        self._message: Message | None = None
        self._last: Said | None = None

    def add(self, params: Json) -> Piece | None:
        """Return the piece that an update has begun or changed; None if it shows nothing."""
        own = own_meta(params)
        if own.get(CONTEXT):
            return None
        match self._updates.read(params):
            case Said() as said:
                if self._page and said.voice is Voice.BRIDGE and CURSOR not in own:
                    return self._pass(said)
                return self._say(said)
            case Call() as call:
                return self._on_call(call, as_object(own.get("decided")))
            case Plan() as plan:
                return self._on_plan(plan)
        return None

    def _say(self, said: Said) -> Message | Image | None:
        data = said.content.data if self._page and said.content else ""
        if data and (found := picture(data)):
            self._message, self._last = None, said
            return Image(self._next(), said.voice, found)
        text = harmless(words(said.content))
        if not text:
            return None
        if self._message is None or not said.goes_on(self._last):
            if said.voice in (Voice.USER, Voice.HOOK):
                self._steps = None
            self._message = Message(self._next(), said.voice, self._most_text)
        self._last = said
        self._message.add(text)
        return self._message

    def _pass(self, said: Said) -> Message | None:
        """Return the piece of a notice that is not recorded."""
        if not (text := harmless(words(said.content))):
            return None
        self._passing -= 1
        notice = Message(self._passing, said.voice, self._most_text)
        notice.add(text)
        return notice

    def _on_call(self, call: Call, decided: Json) -> ToolCall:
        found = self._calls.get(call.call_id)
        if found is None:
            found = self._calls[call.call_id] = ToolCall(self._next(), call.now)
            while self._most_calls is not None and len(self._calls) > self._most_calls:
                del self._calls[next(iter(self._calls))]
            self._message = None
        found.call = call.now
        if decided:
            found.decided.append(decided)
        return found

    def _on_plan(self, plan: Plan) -> Steps:
        if self._steps is None:
            self._steps = Steps(self._next(), plan)
            self._message = None
        self._steps.plan = plan
        return self._steps

    def _next(self) -> int:
        self._count += 1
        return self._count
