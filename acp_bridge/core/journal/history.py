"""Reads a session's recorded updates in worker threads, each page by a connection of its own.

Invariants
- A page is bounded in rows and bytes: memory stays flat however long the session is
  (invariants R6, K4). A single row is never divided.
- A damaged row hides no other (invariant K2).
- No page keeps a transaction or a connection open: the writer is never held up.
"""

import logging
import sqlite3
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from acp_bridge.core.journal.connection import connect, is_damage, journal_errors
from acp_bridge.core.journal.merge import Entry, Merger, merged
from acp_bridge.core.journal.prompt_rows import with_short_words

PAGE_ROWS: Final = 256
PAGE_SIZE: Final = 32 * 1024
"""Bytes that a thread reads and merges at a time: a few ms, part of it under the GIL."""

#: If the last row's number can't be read, so many rows after the merged ones are looked through.
SALVAGED_ROWS: Final = 100_000

#: A value is NULL only where the file is damaged.
_SELECT: Final = (
    "SELECT id, coalesce(CAST(turn AS INTEGER), 0), coalesce(CAST(lines AS BLOB), x'') FROM updates"
)

logger = logging.getLogger(__name__)


class Extent(Struct, frozen=True, eq=False):
    """How far a transcript went at a moment, for a replay that ends there.

    `SessionJournal.extent` makes it.
    """

    #: the extents of the session that are not closed yet; this one is put among them.
    among: set["Extent"]
    last_row: int
    #: turn and lines of each row that was not in the file yet.
    unwritten: list[tuple[int, bytes]]

    def __post_init__(self) -> None:
        self.among.add(self)

    def close(self) -> None:
        """Note that no replay up to this extent goes on any more."""
        self.among.discard(self)


class Row(NamedTuple):
    """One recorded read of the agent's pipe; `lines` are JSON objects, one a line."""

    id: int
    turn: int
    lines: bytes


class Slice(NamedTuple):
    """Adjacent rows of one turn, `first` to `last`, and the merged lines that can replace them.

    `shorter`: the merged lines are fewer, or shorter, so that it is worth to replace the rows.
    """

    first: int
    last: int
    turn: int
    lines: bytes
    shorter: bool


def read_rows(path: Path, after: int, to: int, turn: int | None = None) -> tuple[list[Row], int]:
    """Return the next page of rows with after < id <= to, and the last id that it covers.

    `turn`: only the rows of this turn.

    Raises:
        JournalError: the file can't be opened.
    """
    with journal_errors(), closing(connect(path, wait=5)) as connection:
        try:
            rows = _page(connection, after, to, turn)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            rows, last = _salvage(connection, after, min(after + PAGE_ROWS, to))
            return [row for row in rows if turn in (None, row.turn)], last
        return rows, rows[-1].id if rows else to


def _page(connection: sqlite3.Connection, after: int, to: int, turn: int | None) -> list[Row]:
    rows: list[Row] = []
    size = 0
    which = "id > :after AND id <= :to AND (:turn IS NULL OR turn = :turn)"
    page = f"{_SELECT} WHERE {which} ORDER BY id LIMIT {PAGE_ROWS}"
    with closing(connection.execute(page, {"after": after, "to": to, "turn": turn})) as cursor:
        for row in cursor:
            rows.append(Row(*row))
            size += len(rows[-1].lines)
            if size >= PAGE_SIZE:
                break
    return rows


def _salvage(connection: sqlite3.Connection, after: int, to: int) -> tuple[list[Row], int]:
    """Read a page with a damaged row in it id by id; returns what `read_rows` does."""
    rows: list[Row] = []
    lost = 0
    for row_id in range(after + 1, to + 1):
        try:
            found = connection.execute(f"{_SELECT} WHERE id = ?", (row_id,)).fetchone()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            lost += 1
        else:
            rows += [Row(*found)] if found else []
    logger.warning("journal: %d updates of %d..%d are damaged", lost, after + 1, to)
    return rows, to


def read_entries(
    path: Path, merger: Merger, after: int, to: int, turn: int | None = None
) -> tuple[list[Entry], int]:
    """Return the entries of the next page of a replay, and the last id that it covers.

    The parameters are those of `read_rows`; `merger` carries a message that still grows from page
    to page.

    Raises:
        JournalError: the file can't be opened.
    """
    rows, last = read_rows(path, after, to, turn)
    entries = [entry for row in rows for entry in merger.feed(row.turn, row.lines)]
    if last >= to:
        entries += merger.flush()
    return with_short_words(path, entries), last


def snapshot(path: Path, after: int = 0) -> list[Row]:
    """Return all rows after the row `after`, as they are at one moment.

    It is for readers beside the bridge: that merges rows meanwhile, so pages that are read one by
    one would repeat some. Nothing of the file is changed. Raises JournalError: it can't be opened.
    """
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as connection:
        connection.execute("BEGIN")
        return all_rows(connection, after)


def all_rows(connection: sqlite3.Connection, after: int = 0) -> list[Row]:
    """Return all rows after the row `after`, as the open transaction sees them.

    Raises sqlite3.Error.
    """
    rows: list[Row] = []
    to = _last_row(connection)
    while after < to:
        try:
            page = _page(connection, after, to, None)
            after = page[-1].id if page else to
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            page, after = _salvage(connection, after, min(after + PAGE_ROWS, to))
        rows += page
    return rows


def _last_row(connection: sqlite3.Connection) -> int:
    for last, spare in (("max(id) FROM updates", 0), ("merged_to FROM session", SALVAGED_ROWS)):
        try:
            found = connection.execute(f"SELECT {last}").fetchone()
            return spare + int(found[0] or 0 if found else 0)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
    return SALVAGED_ROWS


def read_slice(path: Path, after: int, to: int, turn: int) -> Slice | None:
    """Return the next adjacent rows of one turn with after < id <= to, merged.

    None if there are none, or if they are of a turn after `turn`.

    Raises:
        JournalError: the file can't be opened.
    """
    rows, last = read_rows(path, after, to)
    while not rows and last < to:
        rows, last = read_rows(path, last, to)
    if not rows or rows[0].turn > turn:
        return None
    same = list(takewhile(lambda row: row.turn == rows[0].turn, rows))
    before = b"\n".join(row.lines for row in same)
    lines = b"\n".join(entry.line() for entry in merged((row.turn, row.lines) for row in same))
    shorter = len(same) > 1 or len(lines) < len(before)
    return Slice(same[0].id, same[-1].id, same[0].turn, lines, shorter)
