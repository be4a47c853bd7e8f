"""The blocks of a transcript on their way to the terminal.

Invariant: each is given once. While a transcript is replayed only its newest blocks are kept,
however long it is, and nothing is shown.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

import anyio

from acp_bridge.commands.terminal.view.blocks import Block, Line
from acp_bridge.commands.terminal.view.transcript import Transcript

#: blocks of a replayed transcript that are shown.
_MOST_REPLAYED: Final = 60
#: blocks that may wait to be printed before nothing more is read.
_MOST: Final = 200
#: blocks that are drawn at once.
_AT_ONCE: Final = 40


class Unprinted:
    """The blocks that are not in the scrollback yet."""

    def __init__(self, transcript: Transcript) -> None:
        """A replay may come first; `begin` marks its end."""
        self._transcript = transcript
        self._blocks: deque[Block] = deque()
        self._begun = False
        self._left_out = 0
        self._taken = anyio.Event()

    def begin(self, session_id: str) -> None:
        """Show blocks from now on, and say how many of the replay were left out."""
        self.collect()
        self._begun = True
        if self._left_out:
            text = f"{self._left_out} earlier blocks are not shown here"
            self._blocks.appendleft(Line(f"{text}: acp-bridge show {session_id[:8]}"))

    def collect(self) -> None:
        """Take over the finished blocks; of a replay, the newest alone."""
        self._blocks += self._transcript.take_finished()
        while not self._begun and len(self._blocks) > _MOST_REPLAYED:
            self._blocks.popleft()
            self._left_out += 1

    def take(self) -> list[Block]:
        """Return the next blocks to print, so few that drawing them takes no noticeable time."""
        if not self._begun:
            return []
        blocks = [self._blocks.popleft() for _ in range(min(_AT_ONCE, len(self._blocks)))]
        self._taken.set()
        return blocks

    @property
    def more(self) -> bool:
        """True if there is a block to print."""
        return self._begun and bool(self._blocks)

    def tail(self) -> list[Block]:
        """Return the blocks to draw below everything that was printed.

        Finished blocks are among them until they are printed, since a key may draw before that.
        """
        if not self._begun:
            return []
        newest = islice(self._blocks, max(0, len(self._blocks) - _AT_ONCE), None)
        return [*newest, *self._transcript.tail()]

    async def room(self) -> None:
        """Return when most of what was given is printed."""
        while self._begun and len(self._blocks) > _MOST:
            self._taken = anyio.Event()
            await self._taken.wait()
