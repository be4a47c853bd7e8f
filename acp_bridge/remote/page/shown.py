"""The pieces of a session that are on the page, and those that changed since. SANS-IO.

Invariant: the page has each piece once, in order; finished paragraphs are sent once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from acp_bridge.protocol import Json
from acp_bridge.view.block_text import one_line
from acp_bridge.view.blocks import Extent, Voice
from acp_bridge.view.html import article, rest, spoken
from acp_bridge.view.pieces import Message, Piece, Pieces

#: the most pieces that are kept, and that are put on the page at first.
_MOST: Final = 1_000
_FIRST: Final = 100
#: characters of HTML above which no further pieces are put on the page: at first, and at all.
_FIRST_LENGTH: Final = 500_000
_LENGTH: Final = 5_000_000
#: tool calls that may still change, and characters that are kept of a message.
_MOST_CALLS: Final = 200
_MOST_TEXT: Final = 400_000
#: characters of a message that a screen reader is given.
_READ_OUT: Final = 600


class SessionShown:
    """Turns the updates of one session into messages for the page."""

    def __init__(self) -> None:
        self._pieces = Pieces(_MOST_CALLS, _MOST_TEXT, images=True)
        self._kept: OrderedDict[int, Piece] = OrderedDict()
        self._changed: dict[int, Piece] = {}
        #: by number of a message that is on the page, how many of its paragraphs are there.
        self._there: dict[int, int] = {}
        #: the number of the first piece that is on the page.
        self._first = 0
        #: the message that is to be read out once it has ended.
        self._speaking: Message | None = None
        self._read_out: list[str] = []

    def on_update(self, params: Json) -> None:
        """Note the update in the params of a `session/update`."""
        piece = self._pieces.add(params)
        if piece is None:
            return
        if piece.number not in self._kept:
            self.end_message()
            self._kept[piece.number] = piece
            while len(self._kept) > _MOST:
                self._there.pop(self._kept.popitem(last=False)[0], None)
            if isinstance(piece, Message) and piece.voice in (Voice.AGENT, Voice.BRIDGE):
                self._speaking = piece
        self._changed[piece.number] = piece

    def end_message(self) -> None:
        """Note that the last message has ended: it is read out with the next changes."""
        if self._speaking is not None:
            self._read_out.append(one_line(self._speaking.text, _READ_OUT))
            self._speaking = None

    def whole(self, most: int = _FIRST, length: int = _FIRST_LENGTH) -> list[Json]:
        """Return messages that replace the page's pieces by the last ones, up to `most`.

        `length`: characters of HTML above which no further piece is added.
        """
        shown: list[Piece] = []
        html: list[str] = []
        for piece in reversed(self._kept.values()):
            if len(shown) == most or (html and sum(map(len, html)) > length):
                break
            shown.append(piece)
            html.append(article(piece, Extent.ASKED))
        self._first = shown[-1].number if shown else 0
        self._changed.clear()
        self._there = {
            each.number: len(each.finished) for each in shown if isinstance(each, Message)
        }
        self._read_out.clear()
        left = len(self._kept) - len(shown)
        more = f'<button data-do="earlier">Show {left} earlier</button>' if left else ""
        return [{"put": "earlier", "html": more}, {"put": "pieces", "html": "".join(html[::-1])}]

    def all(self) -> list[Json]:
        """Return messages that put all kept pieces on the page, up to `_LENGTH` characters."""
        return self.whole(_MOST, _LENGTH)

    def changes(self) -> list[Json]:
        """Return messages that bring the page up to date since the last call."""
        told: list[Json] = []
        for number, piece in self._changed.items():
            if number >= self._first:
                told += self._change(piece)
        self._changed.clear()
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
