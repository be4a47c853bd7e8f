"""The rows of one session, the same out of its file and out of the database, in pages.

Invariants
- A page is bounded in rows and bytes, and a row is never divided: memory stays flat.
- A value of another kind than its column's, as only damage makes it, is refused.
- The same rows have the same sum, whichever side they were read from.

A text of PostgreSQL has no NUL, so U+FFFD stands for it on both sides. JSON as the journal writes
it has none.
"""

import sqlite3
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, fields, replace
from hashlib import sha256
from typing import Any, Final, TypeAlias

from psycopg import AsyncConnection

from acp_bridge.journal.connection import journal_errors
from acp_bridge.journal.errors import JournalError, UnknownSession
from acp_bridge.journal.files import info_in
from acp_bridge.journal.records import SessionInfo

Row: TypeAlias = tuple[Any, ...]

_PAGE_ROWS: Final = 1000
_PAGE_BYTES: Final = 1024 * 1024
DAMAGED: Final = "the journal failed: its file is damaged"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, what PostgreSQL calls its type, and the types of its values here."""

    name: str
    sql_type: str
    kinds: tuple[type, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a session; its rows are read in the order of the first column."""

    name: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> str:
        """The names of the columns."""
        return ", ".join(column.name for column in self.columns)

    @property
    def types(self) -> list[str]:
        """What PostgreSQL calls the types of the columns."""
        return [column.sql_type for column in self.columns]

    @property
    def insert(self) -> str:
        """The statement that adds a row to the table of a file."""
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {self.name}({self.names}) VALUES ({marks})"


def _number(name: str) -> Column:
    return Column(name, "int8", (int,))


def _text(name: str, *, may_lack: bool = False) -> Column:
    return Column(name, "text", (str, type(None)) if may_lack else (str,))


def _bytes(name: str) -> Column:
    return Column(name, "bytea", (bytes,))


_OUTCOMES: Final = (_text("outcome", may_lack=True), _text("agent_outcome", may_lack=True))
TABLES: Final = (
    Table("prompts", (_number("seq"), _text("prompt_id"), _text("state"), *_OUTCOMES)),
    Table("prompt_params", (_number("seq"), _text("params"))),
    Table("updates", (_number("id"), _number("turn"), _bytes("lines"))),
    Table("settings", (_text("key"), _text("value"))),
    Table("used_ids", (_bytes("id"),)),
)
_MAY_LACK: Final = ("agent_session_id", "title", "agent_info")
_TEXTS: Final = tuple(
    _text(field.name, may_lack=field.name in _MAY_LACK)
    for field in fields(SessionInfo)
    if field.name != "prompted"
)
_HEAD: Final = (*(field.name for field in fields(SessionInfo)), "merged_to")


@dataclass(frozen=True, slots=True)
class Head:
    """The session's own row."""

    info: SessionInfo
    #: the last row of the transcript whose chunks have been merged.
    merged_to: int


class Sum:
    """A sum of rows; it is compared within one process, and never kept."""

    def __init__(self, head: Head) -> None:
        """No rows yet."""
        self._hash = sha256(repr(astuple(head)).encode())

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Add the next rows of a table."""
        for row in rows:
            self._hash.update(repr((table.name, *row)).encode())

    @property
    def value(self) -> str:
        """The sum of all that was added."""
        return self._hash.hexdigest()


# -- a file ----------------------------------------------------------------------------------


def head_of_file(db: sqlite3.Connection) -> Head:
    """Return the row of the session in its file, of an earlier version, too.

    Raises JournalError; UnknownSession: it holds none.
    """
    with journal_errors():
        info = info_in(db)
        if info is None:
            raise UnknownSession
        (merged_to,) = db.execute("SELECT merged_to FROM session").fetchone()
    *texts, prompted = astuple(info)
    if not (_are(texts, _TEXTS) and type(merged_to) is int):
        raise JournalError(DAMAGED)
    return Head(replace(SessionInfo(*map(plain, texts)), prompted=bool(prompted)), merged_to)


def pages_of_file(db: sqlite3.Connection, table: Table) -> Iterator[list[Row]]:
    """Give the rows of a table of a session's file. Raises JournalError."""
    sql = f"SELECT {table.names} FROM {table.name} ORDER BY {table.columns[0].name}"
    page: list[Row] = []
    size = 0
    with journal_errors(), closing(db.execute(sql)) as rows:
        for row in rows:
            if not _are(row, table.columns):
                raise JournalError(DAMAGED)
            page.append(tuple(map(plain, row)))
            size += _size(row)
            if len(page) >= _PAGE_ROWS or size >= _PAGE_BYTES:
                yield page
                page, size = [], 0
    if page:
        yield page


# -- the database ----------------------------------------------------------------------------


async def head_of_database(connection: AsyncConnection[Any], session_id: str) -> Head | None:
    """Return the row of a session; None if there is none, or it was deleted.

    Raises psycopg.Error.
    """
    sql = (
        f"SELECT {', '.join(_HEAD)} FROM acp_bridge.sessions WHERE session_id = %s AND NOT deleted"
    )
    cursor = await connection.execute(sql.encode(), (plain(session_id),))
    row = await cursor.fetchone()
    return None if row is None else Head(SessionInfo(*row[:-1]), row[-1])


async def add_head(connection: AsyncConnection[Any], head: Head) -> bool:
    """Add the row of a new session, in the place of one that was set aside.

    False if there is one of its id, also of a session that was deleted for good. Raises
    psycopg.Error.
    """
    names, marks = ", ".join(_HEAD), ", ".join(["%s"] * len(_HEAD))
    sql = (
        f"INSERT INTO acp_bridge.sessions AS kept({names}, deleted) VALUES ({marks}, false)"
        f" ON CONFLICT (session_id) DO UPDATE SET ({names}, deleted) ="
        f" ({', '.join(f'excluded.{name}' for name in _HEAD)}, false)"
        " WHERE kept.deleted AND NOT kept.prompted"
    )
    cursor = await connection.execute(sql.encode(), (*astuple(head.info), head.merged_to))
    return cursor.rowcount == 1


async def pages_of_database(
    connection: AsyncConnection[Any], session_id: str, table: Table
) -> AsyncGenerator[list[Row], None]:
    """Give the rows of a table of a session. Raises psycopg.Error."""
    sql = (
        f"COPY (SELECT {table.names} FROM acp_bridge.{table.name} WHERE session_id = %s"
        f" ORDER BY {table.columns[0].name}) TO STDOUT (FORMAT BINARY)"
    )
    page: list[Row] = []
    size = 0
    async with connection.cursor() as cursor, cursor.copy(sql.encode(), (session_id,)) as copy:
        copy.set_types(table.types)
        async for row in copy.rows():
            page.append(row)
            size += _size(row)
            if len(page) >= _PAGE_ROWS or size >= _PAGE_BYTES:
                yield page
                page, size = [], 0
    if page:
        yield page


def _are(values: Sequence[object], columns: Sequence[Column]) -> bool:
    return all(type(value) in each.kinds for value, each in zip(values, columns, strict=True))


def plain(value: Any) -> Any:
    """Return a value as PostgreSQL can keep it."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _size(row: Row) -> int:
    return sum(len(value) for value in row if isinstance(value, str | bytes))
