"""A whole session out of the database into a file, and the other way.

Invariants
- A file is read, and the database, as it is at one moment; a file is whole before it has its name,
  and the database gets all of a session in one transaction or nothing.
- Both keep what the session has to the byte, rows with their numbers (but for NUL: see `rows`).
- A file that is damaged, or of which a killed bridge has left something to settle, is refused.

Whoever calls these holds the session's lock. psycopg.Error comes out as it is: with a connection of
`Database.connection` that makes a JournalError of it.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
from psycopg import AsyncConnection

from acp_bridge.journal import left_queue
from acp_bridge.journal.connection import connect, in_thread, journal_errors
from acp_bridge.journal.errors import JournalError, SessionExists, UnknownSession
from acp_bridge.journal.files import Draft, make_folders
from acp_bridge.journal.postgres.rows import (
    DAMAGED,
    TABLES,
    Head,
    Sum,
    Table,
    add_head,
    head_of_database,
    head_of_file,
    pages_of_database,
    pages_of_file,
)
from acp_bridge.journal.records import SessionInfo
from acp_bridge.journal.schema import SESSION_SCHEMA, known_version


async def fetch(connection: AsyncConnection[Any], session_id: str, path: Path) -> SessionInfo:
    """Make a session's file, which is on disk on return, of what the database has.

    Raises:
        UnknownSession: the database has none of this id, or it was deleted.
        JournalError: there is a file already (SessionExists), or it can't be written.
        psycopg.Error: the database failed.
    """
    await in_thread(make_folders, path.parent.parent)
    draft = await in_thread(Draft, path)
    try:
        async with _snapshot(connection):
            head = await head_of_database(connection, session_id)
            if head is None:
                raise UnknownSession("the database has no such session")
            await _fill(draft, connection, head)
        await in_thread(draft.take_name)  # no transaction waits for the disk
    except BaseException:
        with anyio.CancelScope(shield=True):
            await in_thread(draft.remove)
        raise
    return head.info


async def _fill(draft: Draft, connection: AsyncConnection[Any], head: Head) -> None:
    await in_thread(draft.insert, head.info, head.merged_to)
    for table in TABLES:
        async with aclosing(pages_of_database(connection, head.info.session_id, table)) as pages:
            async for page in pages:
                await in_thread(draft.fill, table.insert, page)


async def store(connection: AsyncConnection[Any], path: Path) -> None:
    """Put what a session's file has into the database, which has no session of its id yet.

    Raises:
        UnknownSession: there is no session in the file.
        JournalError: it can't be read, is damaged, or of a newer version; or the database has the
            session, also as one that was deleted for good (SessionExists).
        psycopg.Error: the database failed.
    """
    with closing(await in_thread(_opened, path)) as db:
        head = await in_thread(head_of_file, db)
        async with connection.transaction():
            if not await add_head(connection, head):
                raise SessionExists
            for table in TABLES:
                await _copy(db, table, connection, head.info.session_id)


async def _copy(
    db: sqlite3.Connection, table: Table, connection: AsyncConnection[Any], session_id: str
) -> None:
    sql = f"COPY acp_bridge.{table.name}(session_id, {table.names}) FROM STDIN (FORMAT BINARY)"
    pages = pages_of_file(db, table)
    async with connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
        copy.set_types(["text", *table.types])
        while page := await in_thread(next, pages, None):
            for row in page:
                await copy.write_row((session_id, *row))


async def sum_of_database(connection: AsyncConnection[Any], session_id: str) -> str | None:
    """Return the sum of what the database has of a session; None: none, or a deleted one.

    Raises psycopg.Error.
    """
    async with _snapshot(connection):
        head = await head_of_database(connection, session_id)
        if head is None:
            return None
        total = Sum(head)
        for table in TABLES:
            async with aclosing(pages_of_database(connection, session_id, table)) as pages:
                async for page in pages:
                    total.add(table, page)
    return total.value


def sum_of_file(path: Path) -> str:
    """Return the sum of what a session's file has. Raises JournalError as `store` does."""
    with closing(_opened(path)) as db:
        total = Sum(head_of_file(db))
        for table in TABLES:
            for page in pages_of_file(db, table):
                total.add(table, page)
    return total.value


@asynccontextmanager
async def _snapshot(connection: AsyncConnection[Any]) -> AsyncIterator[None]:
    async with connection.transaction():
        await connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _opened(path: Path) -> sqlite3.Connection:
    """Open a session's file for reading, as it is now. Raises JournalError."""
    if left_queue.read(path):
        raise JournalError(
            "a killed bridge has left something to settle in it: load the session once"
        )
    if not path.is_file():
        raise UnknownSession
    with journal_errors():
        db = connect(path, wait=5, read_only=True)
        try:
            known_version(db, SESSION_SCHEMA)
            db.execute("BEGIN")
            if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise JournalError(DAMAGED)
        except BaseException:
            db.close()
            raise
    return db
