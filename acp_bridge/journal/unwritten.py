"""What a session's file could not take, kept in order until it can be written (invariant Q13).

Invariants
- The order is that of the calls. Of writes with the same key only the last one is kept.
- Transitions of prompts are always kept: they are small, and no prompt is accepted meanwhile.
- Updates are kept up to `LIMIT_BYTES`. What is beyond is lost, and a notice takes its place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, TypeAlias

from acp_bridge import notices
from acp_bridge.journal.left_queue import Went
from acp_bridge.journal.merge import dumps

Statement: TypeAlias = tuple[str, tuple[object, ...]]

#: bytes of updates that are kept for one session.
LIMIT_BYTES: Final = 8 * 1024 * 1024
#: bytes; shorter rows of one turn become one row.
_ROW_BYTES: Final = 64 * 1024
INSERT_ROW: Final = "INSERT INTO updates(turn, lines) VALUES (?, ?)"
#: No later try helps against these: a text or a value that SQLite can't take, a bug.
_FOR_EVER: Final = (
    UnicodeError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)


def may_pass(error: BaseException) -> bool:
    """Return whether a later try of the same write may work: the disk may have space by then."""
    cause = error.__cause__ or error
    return isinstance(cause, sqlite3.Error | OSError) and not isinstance(cause, _FOR_EVER)


@dataclass(slots=True)
class Write:
    """Statements that belong into one transaction."""

    statements: tuple[Statement, ...]
    #: the updates among them: their turn, and lines of one read each.
    turn: int = 0
    lines: tuple[bytes, ...] = ()
    #: what it says of the prompt with the number `turn`.
    went: Went = Went.NOTHING

    @property
    def row(self) -> bytes:
        """The lines as one row of updates."""
        return b"\n".join(self.lines)

    def all(self) -> tuple[Statement, ...]:
        """Return every statement, that of the updates last."""
        if not self.lines:
            return self.statements
        return (*self.statements, (INSERT_ROW, (self.turn, self.row)))


class Unwritten:
    """The writes of one session that wait for its file."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._writes: dict[object, Write] = {}
        self._keys = count()
        self._bytes = 0
        self._gap = False

    def __len__(self) -> int:
        return len(self._writes)

    def __iter__(self) -> Iterator[Write]:
        return iter(self._writes.values())

    @property
    def first(self) -> Write:
        """The write that is to be tried next; raises StopIteration when nothing waits."""
        return next(iter(self._writes.values()))

    def drop_first(self) -> None:
        """Forget the first write: it is in the file, or can never be."""
        write = self._writes.pop(next(iter(self._writes)))
        self._bytes -= sum(map(len, write.lines))
        if not self._writes:
            self._bytes, self._gap = 0, False

    def add(self, write: Write, key: object = None) -> None:
        """Keep a write; it takes the place of an earlier one with the same key."""
        size = sum(map(len, write.lines))
        if size and (self._gap or self._bytes + size > LIMIT_BYTES):
            lines = () if self._gap else (_missing(),)
            write = replace(write, lines=lines)
            self._gap = True
        else:
            self._bytes += size
        if not write.statements and not write.lines:
            return
        if not self._joined(write, size):
            self._writes.pop(key, None)
            self._writes[next(self._keys) if key is None else key] = write

    def _joined(self, write: Write, size: int) -> bool:
        """Add updates to the last write if it has nothing but updates of the same turn."""
        last = next(reversed(self._writes.values()), None)
        if last is None or last.statements or write.statements or last.turn != write.turn:
            return False
        if sum(map(len, last.lines)) + size > _ROW_BYTES:
            return False
        last.lines += write.lines
        return True

    def last_value(self, sql: str, key: str) -> object | None:
        """Return the second value of the last kept statement of this kind whose first is `key`."""
        for write in reversed(self._writes.values()):
            for statement, values in write.statements:
                if statement == sql and values[0] == key:
                    return values[1]
        return None


def _missing() -> bytes:
    return dumps(notices.notice(notices.MISSING))
