"""What a client has not been sent that reads more slowly than the agent speaks: the journal has it.

The journal's rows are read on from where the client is. What is in no row, an answer say, waits
for the row behind which it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from acp_bridge.journal.errors import JournalError
from acp_bridge.journal.place import Place

#: the bytes that are counted for a waiting action whose size is not given.
_ACTION = 512


@dataclass(frozen=True, slots=True)
class _Waiting:
    row: int
    size: int
    action: Callable[[], None]


class Lag:
    """How far behind one client is in one session."""

    def __init__(self, last_row: Callable[[], int]) -> None:
        """The client has all that is recorded.

        `last_row` returns the number of the row that was recorded last.
        """
        #: the place in the transcript up to which the client has it, if that is known.
        self.place: Place | None = None
        self.row = last_row()
        #: an action that has waited is being run.
        self.does = False
        #: the row that is read now is not shown to the client.
        self.hides = False
        self.over = anyio.Event()
        self.waiting_bytes = 0
        self._last_row = last_row
        self._waiting: deque[_Waiting] = deque()

    def wait(self, action: Callable[[], None], size: int = _ACTION) -> None:
        """Call `action` once the client has all that is recorded by now; `size`: its bytes."""
        self._wait(self._now(), size, action)

    def hide(self) -> None:
        """Leave out, for this client, the row that was recorded last: it shows that by itself."""
        row = self._now()
        self._wait(row - 1, _ACTION, lambda: self._hide(True))
        self._wait(row, _ACTION, lambda: self._hide(False))

    def _hide(self, hides: bool) -> None:
        self.hides = hides

    def _now(self) -> int:
        """Return the last recorded row's number, or the last known if the journal can't say."""
        try:
            return self._last_row()
        except JournalError:
            return max([self.row, *(each.row for each in self._waiting)])

    def _wait(self, row: int, size: int, action: Callable[[], None]) -> None:
        self.waiting_bytes += size
        self._waiting.append(_Waiting(row, size, action))

    @property
    def until(self) -> int:
        """The row up to which to read the journal next: where something waits, else the last."""
        return self._waiting[0].row if self._waiting else self._last_row()

    def go_on(self) -> bool:
        """Run the actions that wait for rows which the client has; False if there are none."""
        done = False
        while self._waiting and self._waiting[0].row <= self.row:
            waiting = self._waiting.popleft()
            self.waiting_bytes -= waiting.size
            self.does = done = True
            try:
                waiting.action()
            finally:
                self.does = False
        return done

    def give_up(self) -> None:
        """Run all actions that wait, without the rows before them, and set `over`."""
        while self._waiting:
            self.row = max(self.row, self._waiting[0].row)
            self.go_on()
        self.over.set()
