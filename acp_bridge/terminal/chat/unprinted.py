"""The blocks of a transcript that the terminal has not printed yet.

Invariant: each block is given out once. During a replay nothing of the transcript is, and only its
newest blocks are kept, however long it is; what the program itself says is given out at once.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

import anyio

from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.terminal.view.blocks import Block, Line
from acp_bridge.terminal.view.transcript import Transcript

#: blocks of a replayed transcript that are shown.
_MOST_REPLAYED: Final = 60
#: blocks that may wait to be printed before reading from the bridge stops.
_MOST: Final = 200
#: blocks that are printed in one step.
_AT_ONCE: Final = 40


class Unprinted:
    """The blocks that are not in the scrollback yet."""

    def __init__(self, transcript: Transcript) -> None:
        """Until `begin` is called, blocks belong to a replay."""
        self._transcript = transcript
        self._blocks: deque[Block] = deque()
        #: what the program said before `begin`.
        self._early: deque[Block] = deque()
        self._begun = False
        self._left_out = 0
        self._taken = anyio.Event()
        #: the block that was collected last.
        self.newest: Block | None = None

    def begin(self, session_id: str) -> None:
        """End the replay: blocks are printed from now on, the first telling how many were left out.

        Any further call after the same replay only collects blocks.
        """
        self.collect()
        if self._begun:
            return
        self._begun = True
        if self._left_out:
            text = f"{self._left_out} earlier blocks are not shown here"
            how = OWN_COMMANDS.line("show", session_id[:8])
            self._blocks.appendleft(Line(f"{text}: {how}"))
        self._blocks.extendleft(reversed(self._early))
        self._early.clear()

    def begin_anew(self) -> None:
        """Begin another replay, up to the next `begin`."""
        self.collect()
        self._early, self._blocks = self._blocks, deque()
        self._begun, self._left_out = False, 0

    def say(self, line: Line) -> None:
        """Print a line of the program's own: below what was said before, or above a replay."""
        if self._begun:
            self._transcript.say(line)
            self.collect()
        else:
            self._early.append(line)

    def collect(self) -> None:
        """Fetch the finished blocks from the transcript; during a replay keep the newest only."""
        if finished := self._transcript.take_finished():
            self.newest = finished[-1]
        self._blocks += finished
        while not self._begun and len(self._blocks) > _MOST_REPLAYED:
            self._blocks.popleft()
            self._left_out += 1

    def pop_next(self) -> list[Block]:
        """Remove and return the next blocks to print, few enough to be drawn without a pause."""
        ready = self._ready
        blocks = [ready.popleft() for _ in range(min(_AT_ONCE, len(ready)))]
        self._taken.set()
        return blocks

    @property
    def more(self) -> bool:
        """True if there are blocks to print."""
        return bool(self._ready)

    @property
    def _ready(self) -> deque[Block]:
        return self._blocks if self._begun else self._early

    def tail(self) -> list[Block]:
        """Return the newest unprinted and the unfinished blocks, to draw below the printed.

        Unprinted finished blocks are included since a key press may redraw before they are printed.
        """
        ready = self._ready
        newest = islice(ready, max(0, len(ready) - _AT_ONCE), None)
        return [*newest, *(self._transcript.tail() if self._begun else ())]

    async def room(self) -> None:
        """Wait until most of the blocks are printed."""
        while self._begun and len(self._blocks) > _MOST:
            self._taken = anyio.Event()
            await self._taken.wait()
