"""The pieces of a session that are on the page, and those that changed since. SANS-IO.

Invariants
- The page has each piece once, in order; finished paragraphs are sent once.
- From the first piece that is on the page to the last one none is missing. What is before the first
  one can be asked for step by step, and what is not kept is counted.
- What is sent at once is bounded: the rest follows with the next call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from acp_bridge.core.protocol import Json
from acp_bridge.remote.page.have import Have, digest
from acp_bridge.remote.page.parts import earlier
from acp_bridge.terminal.view.block_text import one_line
from acp_bridge.terminal.view.blocks import Extent, Voice
from acp_bridge.terminal.view.html import article, rest, spoken
from acp_bridge.terminal.view.pieces import Image, Message, Piece, Pieces, Steps, ToolCall

#: pieces, and characters of HTML, above which no further pieces are sent at once.
_STEP: Final = 100
_LENGTH: Final = 500_000
#: the same for a page that was loaded anew, and wants to be where it was.
_STEP_AGAIN: Final = 1_000
_LENGTH_AGAIN: Final = 5_000_000
#: characters of a session that are kept for the page, and what each piece counts besides.
_MOST: Final = 32_000_000
_PIECE: Final = 500
#: notices that are kept which are not recorded, and digests that are computed at once.
_MOST_NOTICES: Final = 50
_AT_ONCE: Final = 200
#: tool calls that may still change, and characters that are kept of a message.
_MOST_CALLS: Final = 200
_MOST_TEXT: Final = 400_000
#: characters of a message that a screen reader is given.
_READ_OUT: Final = 600


class SessionShown:
    """Turns the updates of one session into messages for the page."""

    def __init__(self) -> None:
        self._pieces = Pieces(_MOST_CALLS, _MOST_TEXT, page=True)
        #: the pieces by their numbers, which follow one another without a gap.
        self._kept: OrderedDict[int, Piece] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._size = 0
        self._notices: OrderedDict[int, Piece] = OrderedDict()
        self._digests: dict[int, str] = {}
        self._changed: dict[int, Piece] = {}
        #: by number of a message that is on the page, how many of its paragraphs are there.
        self._there: dict[int, int] = {}
        #: the number of the first piece that is on the page.
        self._first = 1
        #: the message that is to be read out once it has ended.
        self._speaking: Message | None = None
        self._read_out: list[str] = []

    def on_update(self, params: Json) -> None:
        """Note the update in the params of a `session/update`."""
        piece = self._pieces.add(params)
        if piece is None:
            return
        number = piece.number
        known = self._notices if number < 0 else self._kept
        if number not in known:
            self.end_message()
            known[number] = piece
            if isinstance(piece, Message) and piece.voice in (Voice.AGENT, Voice.BRIDGE):
                self._speaking = piece
        self._digests.pop(number, None)
        self._changed[number] = piece
        self._bound(piece)

    def _bound(self, piece: Piece) -> None:
        """Forget the earliest pieces if all together are too long with this one."""
        while len(self._notices) > _MOST_NOTICES:
            self._forget(self._notices.popitem(last=False)[0])
        if piece.number < 0:
            return
        size = _PIECE + _size(piece)
        self._size += size - self._sizes.get(piece.number, 0)
        self._sizes[piece.number] = size
        while self._size > _MOST and len(self._kept) > 1:
            number, _ = self._kept.popitem(last=False)
            self._size -= self._sizes.pop(number)
            self._forget(number)

    def _forget(self, number: int) -> None:
        for each in (self._there, self._changed, self._digests):
            each.pop(number, None)

    def end_message(self) -> None:
        """Note that the last message has ended: it is read out with the next changes."""
        if self._speaking is not None:
            self._read_out.append(one_line(self._speaking.text, _READ_OUT))
            self._speaking = None

    # -- when the page has opened the session --------------------------------------------------

    def digests(self, have: Have | None) -> Iterator[None]:
        """Compute the digests that `begin` needs; may be left and taken up between two of them."""
        if have is None or not have.last:
            return
        for count, number in enumerate([each for each in self._kept if each >= have.first]):
            if number in self._kept:
                self._digest(number)
            if count % _AT_ONCE == 0:
                yield

    def begin(self, have: Have | None = None) -> list[Json]:
        """Return messages after which the page shows the session, from some piece to the last one.

        `have`: what the page has already. Where that is of use, `changes` returns the rest.
        """
        kept_first, last = next(iter(self._kept), 1), next(reversed(self._kept), 0)
        if have is None or not have.last or have.last > last or have.last < kept_first:
            return self._whole(have.first if have else None)
        others = have.others(kept_first, last, self._digest)
        if have.follows and len(others) > _STEP:
            return self._whole(None)
        self._first = have.first
        self._changed = {number: self._kept[number] for number in others}
        self._changed |= self._notices
        self._there = {
            number: len(piece.finished)
            for number, piece in self._kept.items()
            if number >= have.first and number != last and isinstance(piece, Message)
        }
        for number in others:
            self._there.pop(number, None)
        self._read_out.clear()
        return [{"range": [have.first, have.last]}, self._earlier()]

    def _whole(self, first: int | None) -> list[Json]:
        """Return messages that replace the page's pieces by the last ones.

        `first`: the number of the piece from which on a page was at that is loaded again.
        """
        most, length = (_STEP, _LENGTH) if first is None else (_STEP_AGAIN, _LENGTH_AGAIN)
        html: list[str] = []
        self._first = next(reversed(self._kept), 0) + 1
        self._there.clear()
        shown = self._add_before(html, most, length, first if first is not None else 1)
        html += [article(each, Extent.ASKED) for each in self._notices.values()]
        self._changed.clear()
        self._read_out.clear()
        put: Json = {"put": "pieces", "html": "".join(html)}
        return [self._earlier(), put | self._told(shown)]

    def earlier(self) -> list[Json]:
        """Return messages that put some earlier pieces before those on the page."""
        html: list[str] = []
        shown = self._add_before(html, _STEP, _LENGTH, 1)
        put: Json = {"before": "pieces", "html": "".join(html)}
        return [put | self._told(shown), self._earlier()]

    def _add_before(self, html: list[str], most: int, length: int, first: int) -> list[int]:
        """Add pieces before those on the page, up to `most`, from the number `first` on.

        Their HTML is added to `html`, in order, until it is longer than `length`; returns their
        numbers.
        """
        shown: list[int] = []
        size = 0
        while len(shown) < most and size <= length and self._first > first:
            if (piece := self._kept.get(self._first - 1)) is None:
                break
            self._first -= 1
            shown.append(self._first)
            html.insert(0, article(piece, Extent.ASKED))
            size += len(html[0])
            if isinstance(piece, Message):
                self._there[self._first] = len(piece.finished)
        return shown

    def _earlier(self) -> Json:
        kept = next(iter(self._kept), 1)
        left, lost = max(0, self._first - kept), min(self._first, kept) - 1
        return {"put": "earlier", "html": earlier(min(left, _STEP), left, lost)}

    # -- while the page shows it ---------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """True if there are changes that `changes` has not returned yet."""
        return bool(self._changed)

    def changes(self) -> list[Json]:
        """Return messages that bring the page up to date since the last call, or a part of them."""
        told: list[Json] = []
        count = length = 0
        for number in sorted(self._changed, key=lambda each: (each < 0, abs(each))):
            if count >= _STEP or length > _LENGTH:
                break
            piece = self._changed.pop(number)
            if 0 < number < self._first:
                continue
            change = self._change(piece)
            length += sum(len(str(each.get("html", ""))) for each in change)
            told += [*change[:-1], change[-1] | self._told([number])]
            count += 1
        told += [{"say": each} for each in self._read_out]
        self._read_out.clear()
        return told

    def _change(self, piece: Piece) -> list[Json]:
        at = f"p{piece.number}"
        there = self._there.get(piece.number)
        if not isinstance(piece, Message) or there is None:
            if isinstance(piece, Message):
                self._there[piece.number] = len(piece.finished)
            return [{"add": "pieces", "id": at, "html": article(piece, Extent.ASKED)}]
        more = piece.finished[there:]
        self._there[piece.number] = len(piece.finished)
        told: list[Json] = []
        if more:
            told.append({"append": f"{at}-said", "html": spoken(piece.voice, more)})
        return [*told, {"put": f"{at}-rest", "html": rest(piece)}]

    def _told(self, numbers: Iterable[int]) -> Json:
        """Return the member that gives the page the digests of pieces that it has now."""
        recorded = [number for number in numbers if number > 0]
        return {"digests": {each: self._digest(each) for each in recorded}} if recorded else {}

    def _digest(self, number: int) -> str:
        if (found := self._digests.get(number)) is None:
            found = self._digests[number] = digest(self._kept[number])
        return found


def _size(piece: Piece) -> int:
    """Return about how many characters a piece has."""
    match piece:
        case Message():
            return piece.size
        case ToolCall(_, call, decided):
            return _characters(call) + _characters(decided)
        case Steps(_, plan):
            return sum(len(each) for _, each in plan.entries)
        case Image(_, _, picture):
            return len(picture.data)


def _characters(value: object) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            return sum(map(_characters, value.values()))
        case list():
            return sum(map(_characters, value))
    return 8
