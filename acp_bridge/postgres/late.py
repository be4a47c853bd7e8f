"""Writes on their way to the database, and what waits for them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import anyio

from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.file import LIMIT_BYTES, Write
from acp_bridge.postgres.log import Row

logger = logging.getLogger(__name__)

Action = Callable[[JournalError | None], None]

#: the most writes, and bytes of them, that go to the database in one statement.
_BATCH: Final = 500
_BATCH_BYTES: Final = 1024 * 1024
#: bytes of writes on their way, from which on more are kept, as if the database were away. No
#: session with a client gets there: an agent is not read while so much waits for the client.
_MOST_BYTES: Final = 4 * LIMIT_BYTES


@dataclass(slots=True, eq=False)
class Late:
    """A write on its way to the database. `must`: if it can't be made now, it is not kept."""

    write: Write
    row: Row
    key: object
    must: bool
    actions: list[Action] = field(default_factory=list)

    def ended(self, error: JournalError | None) -> None:
        """Call each action with the error of a refused write, or None."""
        for action in self.actions:
            try:
                action(error)
            except Exception:
                logger.exception("journal: what waited for a write has failed")

    async def wait(self) -> JournalError | None:
        """Wait until the write was made, refused or kept; returns the error if it was refused."""
        refused: list[JournalError | None] = []
        over = anyio.Event()

        def ended(error: JournalError | None) -> None:
            refused.append(error)
            over.set()

        self.actions.append(ended)
        await over.wait()
        return refused[0]


class Queue:
    """The writes of a session on their way, the oldest first."""

    def __init__(self) -> None:
        """Start without any write."""
        self._writes: deque[Late] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._writes)

    def __iter__(self) -> Iterator[Late]:
        return iter(self._writes)

    def __reversed__(self) -> Iterator[Late]:
        return reversed(self._writes)

    @property
    def first(self) -> Late:
        """The oldest write; raises IndexError if there is none."""
        return self._writes[0]

    @property
    def last(self) -> Late:
        """The newest write; raises IndexError if there is none."""
        return self._writes[-1]

    @property
    def is_full(self) -> bool:
        """True if more writes are to be kept, as if the database were away."""
        return self._bytes > _MOST_BYTES

    @property
    def rows(self) -> int:
        """The number of rows of updates."""
        return sum(bool(late.write.lines) for late in self._writes)

    def add(self, late: Late) -> None:
        """Add a write as the newest."""
        self._writes.append(late)
        self._bytes += late.row.size

    def take_first(self) -> Late:
        """Take out the oldest write; raises IndexError if there is none."""
        late = self._writes.popleft()
        self._bytes -= late.row.size
        return late

    def batch(self) -> list[Late]:
        """Return the oldest writes, as many as go into one statement."""
        batch: list[Late] = []
        size = 0
        for late in self._writes:
            size += late.row.size
            if batch and (len(batch) >= _BATCH or size > _BATCH_BYTES):
                break
            batch.append(late)
        return batch
