"""What a page still has of a session when it comes back, by digests. SANS-IO.

The page sends the numbers of its first and last piece, the digest of each of the last pieces, and
for the earlier ones one digest of each block of pieces: the digests of the pieces, each XORed to
the next. So a page with thousands of pieces tells in some hundred bytes what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from typing import Final, Self

from acp_bridge import __version__
from acp_bridge.core.protocol import Json, as_object
from acp_bridge.terminal.view.from_updates import card
from acp_bridge.terminal.view.pieces import Image, Message, Piece, Steps, ToolCall

#: bytes of a digest; a page XORs two halves of three bytes each.
_BYTES: Final = 6
#: the most blocks and single pieces of which a page tells, and the highest number of a piece.
_MOST_BLOCKS: Final = 128
_MOST_SINGLE: Final = 128
_HIGHEST: Final = 1 << 31


def digest(piece: Piece) -> str:
    """Return a digest, as hexadecimal text, of all that a page shows of a piece.

    Another version of this program may show it in another way, and has other digests.
    """
    match piece:
        case Message(voice=voice, left=left):
            shown: object = (voice.value, piece.digest, left)
        case ToolCall(_, call, decided):
            shown = (card(call), decided)
        case Steps(_, plan):
            shown = plan
        case Image(_, voice, picture):
            shown = (voice.value, picture)
    said = repr((__version__, piece.number, shown)).encode("utf-8", "surrogatepass")
    return blake2b(said, digest_size=_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Have:
    """The pieces of `session` that a page has: those with the numbers from `first` to `last`.

    `last` is 0 for a page that knows only from where on it wants to be shown the session.
    """

    session: str
    first: int
    last: int = 0
    #: how many numbers a block has, and the digest of each block by its number.
    step: int = 1
    blocks: Mapping[int, int] = field(default_factory=dict)
    #: the digests of the last pieces, each by its number.
    single: Mapping[int, str] = field(default_factory=dict)
    #: the user looks at the newest piece, and not at an earlier one.
    follows: bool = False

    @classmethod
    def read(cls, given: object) -> Self | None:
        """Read what a page has sent; None for anything else."""
        told = as_object(given)
        session, first, last = told.get("session"), _number(told.get("first")), told.get("last")
        if not isinstance(session, str) or not first:
            return None
        step, blocks, single = _number(told.get("step")), told.get("blocks"), told.get("single")
        if not (_number(last) and step and isinstance(blocks, dict) and isinstance(single, dict)):
            return cls(session, first)
        if len(blocks) > _MOST_BLOCKS or len(single) > _MOST_SINGLE:
            return cls(session, first)
        try:
            return cls(
                session,
                first,
                _number(last),
                step,
                {int(at): int(block, 16) for at, block in blocks.items()},
                {int(at): str(each) for at, each in single.items()},
                told.get("follows") is True,
            )
        except (ValueError, TypeError):
            return cls(session, first)

    def others(self, kept: int, last: int, digest_of: Callable[[int], str]) -> list[int]:
        """Return the numbers of the pieces that the page lacks or has otherwise, in order.

        `kept`, `last`: the numbers of the first and the last piece that can be sent; what the page
        has of earlier ones is not looked at. `digest_of` returns the digest of a piece.
        """
        found: list[int] = []
        begins = min(self.single, default=self.last + 1)
        for at in range(self.first // self.step, (min(begins, last + 1) - 1) // self.step + 1):
            low, high = max(self.first, at * self.step), min(begins, (at + 1) * self.step)
            if low < kept or low >= high:
                continue
            block = range(low, min(high, last + 1))
            whole = reduce(lambda before, each: before ^ int(digest_of(each), 16), block, 0)
            if self.blocks.get(at) != whole:
                found += block
        for number in range(max(begins, kept), last + 1):
            if number > self.last or self.single.get(number) != digest_of(number):
                found.append(number)
        return found


def _number(value: object) -> int:
    """Return a number of a piece, from 1 on; 0 for anything else."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _HIGHEST
    return value if is_one and isinstance(value, int) else 0


def read_have(message: Json) -> Have | None:
    """Return what the page says in `have` of a message."""
    return Have.read(message.get("have"))
