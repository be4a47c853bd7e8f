"""A session in the database: a base, and the log of the writes behind it.

The base is a whole session file as it was after write number `base`; the log has each write after
it, one a row, in the order in which they were made. The file that base and log make together is the
same wherever it is made, since each write is made in it by the same statements.

Invariants
- A file is whole, and on the disk, before it has its name; it is of one moment of the database.
- The database gets a base and loses the writes that the base holds in one transaction.
- A write changes the rows of a session's tables and nothing else, whoever has put it there: a
  statement that would attach a file, make a trigger or set a pragma is refused. So is a base whose
  tables are not those of a session.

psycopg.Error comes out as it is: `Database.connection` makes a JournalError of it.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import astuple, fields
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
from psycopg import AsyncConnection

from acp_bridge.core.journal.connection import (
    check_whole,
    connect,
    in_thread,
    journal_errors,
    transaction,
)
from acp_bridge.core.journal.errors import (
    UNKNOWN_THERE,
    JournalError,
    SessionExists,
    SessionTaken,
    UnknownSession,
)
from acp_bridge.core.journal.file import INSERT_ROW, Statement, Write
from acp_bridge.core.journal.files import draft_of, make_folders, remove, take_name
from acp_bridge.core.journal.prompt_rows import SET
from acp_bridge.core.journal.records import SessionInfo, file_name
from acp_bridge.core.journal.schema import SESSION_SCHEMA, make_file
from acp_bridge.core.runtime.log import event
from acp_bridge.core.wire.jsonrpc import dumps, loads
from acp_bridge.postgres import whole
from acp_bridge.postgres.tables import KNOWN

#: the setting of a copy that says which write was made in it last.
APPLIED: Final = "journal:applied"
#: the most bytes of a base in one row.
PART: Final = 256 * 1024
#: the most bytes of a base that is sent in one statement with its session.
_ONE_STATEMENT: Final = 1024 * 1024
#: the most writes, and bytes of them, that are made in a new copy in one transaction.
_PAGE: Final = 1000
_PAGE_BYTES: Final = 1024 * 1024
_COLUMNS: Final = ", ".join(field.name for field in fields(SessionInfo))
_MARKS: Final = ", ".join(["%s"] * len(fields(SessionInfo)))
#: the beginning of a statement that changes what is listed: `one.changes` is the change's number.
COUNT: Final = (
    f"WITH one AS (UPDATE acp_bridge.listing SET changes = changes + 1 WHERE {KNOWN}"
    " RETURNING changes)"
)
#: a beginning that counts nothing up: the session is listed by a later statement.
_UNLISTED: Final = f"WITH one AS (SELECT 0::bigint AS changes WHERE {KNOWN})"
#: stores a session with the parts of its base, unless it is there; returns its fence.
_STORE: Final = (
    f", new AS (INSERT INTO acp_bridge.sessions(name, {_COLUMNS}, owner, fence, changed)"
    f" SELECT %s, {_MARKS}, %s, 1, changes FROM one"
    " ON CONFLICT (name) DO UPDATE SET (cwd, agent, agent_session_id, title, updated_at,"
    " agent_info, prompted, changed, owner, fence, base, applied, deleted, dropped)"
    " = (excluded.cwd, excluded.agent, excluded.agent_session_id, excluded.title,"
    " excluded.updated_at, excluded.agent_info, excluded.prompted, excluded.changed,"
    " excluded.owner, sessions.fence + 1, 0, 0, false, false) WHERE sessions.deleted"
    " RETURNING name, fence),"
    " base AS (INSERT INTO acp_bridge.bases(name, part, data) SELECT name, at - 1, part FROM new,"
    " unnest(%s::bytea[]) WITH ORDINALITY AS one_part(part, at))"
    " SELECT fence FROM new"
)
#: takes what was summed up of a session out of its row, which so stays short while writes come.
UNSUMMED: Final = "summary_of = NULL, used = NULL, pieces = NULL, words = NULL"
#: the actions of SQLite that a write may do in a copy.
_ALLOWED: Final = {
    *(sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_READ),
    *(sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_TRANSACTION),
    sqlite3.SQLITE_SAVEPOINT,
}
_FOREIGN: Final = "the journal failed: what the database has of the session is no session"

Connection = AsyncConnection[Any]


class Row(NamedTuple):
    """A write as the log has it."""

    n: int
    statements: str
    turn: int
    lines: bytes | None

    @property
    def size(self) -> int:
        """The size of the write: the characters of its statements and the bytes of its lines."""
        return len(self.statements) + len(self.lines or b"")


class Head(NamedTuple):
    """What the database says of a session that was not deleted."""

    info: SessionInfo
    base: int
    applied: int
    owner: str | None
    fence: int


def row_of(n: int, write: Write) -> Row:
    """Return the log's row of a write, whose number is `n`."""
    statements = [[sql, [_json(value) for value in values]] for sql, values in write.statements]
    lines = write.row if write.lines else None
    return Row(n, dumps(statements).decode(), write.turn, lines)


def statements_of(row: Row) -> Iterator[Statement]:
    """Give the statements of the write in a row. Raises JournalError for a row that holds none."""
    try:
        for sql, values in loads(row.statements):
            yield str(sql), tuple(_value(value) for value in values)
    except (ValueError, TypeError, KeyError) as error:
        raise JournalError(_FOREIGN) from error
    if row.lines is not None:
        yield INSERT_ROW, (row.turn, bytes(row.lines))


def _json(value: object) -> object:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _value(value: Any) -> object:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def applied(n: int) -> Statement:
    """Return the statement that notes in a copy that the last write in it has the number `n`."""
    return SET, (APPLIED, str(n))


def values_of(info: SessionInfo) -> tuple[Any, ...]:
    """Return the columns of a session as PostgreSQL takes them.

    PostgreSQL's texts have no NUL, so U+FFFD stands for it; the session's file keeps it. `prompted`
    may be a number, as SQLite has it, and becomes a bool.
    """
    session_id, *texts, prompted = astuple(info)
    plain = (text if text is None else text.replace("\0", "\ufffd") for text in texts)
    return session_id, *plain, bool(prompted)


# --- one session in the database -----------------------------------------------------------------


async def head(connection: Connection, session_id: str) -> Head | None:
    """Return what the database says of a session; None if it has none, or that was deleted."""
    cursor = await connection.execute(
        f"SELECT {_COLUMNS}, base, applied, owner, fence FROM acp_bridge.sessions"
        f" WHERE name = %s AND NOT deleted AND {KNOWN}",
        (file_name(session_id),),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    count = len(fields(SessionInfo))
    return Head(SessionInfo(*row[:count]), *row[count:])


async def put(
    connection: Connection,
    session_id: str,
    owner: str,
    fence: int,
    rows: Sequence[Row],
    *,
    sure: bool,
    prompted: bool,
) -> bool:
    """Put writes into the log, in one statement; returns False, and puts none, if they don't fit.

    Their numbers must follow that of the last write in the log, and the session must be this
    owner's under this fence. `sure`: they, and all writes before, are on the disk on return.
    `prompted`: the session is listed from now on. Raises psycopg.Error.
    """
    listed = ", prompted = true, changed = changes FROM one" if prompted else ""
    cursor = await connection.execute(
        f"{COUNT if prompted else 'WITH one AS (SELECT 1)'}, session AS"
        f" (UPDATE acp_bridge.sessions SET applied = %(last)s, {UNSUMMED}{listed}"
        " WHERE name = %(name)s AND owner = %(owner)s AND fence = %(fence)s"
        f" AND applied = %(before)s AND NOT deleted AND {KNOWN} RETURNING name),"
        " put AS (INSERT INTO acp_bridge.writes(name, n, statements, turn, lines)"
        " SELECT session.name, new.* FROM session, unnest(%(ns)s::bigint[],"
        " %(statements)s::text[], %(turns)s::bigint[], %(lines)s::bytea[])"
        " AS new(n, statements, turn, lines))"
        " SELECT set_config('synchronous_commit', %(sure)s, true) FROM session",
        {
            "last": rows[-1].n,
            "before": rows[0].n - 1,
            "name": file_name(session_id),
            "owner": owner,
            "fence": fence,
            "ns": [row.n for row in rows],
            "statements": [row.statements for row in rows],
            "turns": [row.turn for row in rows],
            "lines": [row.lines for row in rows],
            "sure": "on" if sure else "off",
        },
    )
    return bool(cursor.rowcount)


async def takes(connection: Connection, session_id: str, owner: str, fence: int, n: int) -> bool:
    """Return whether a write with nothing in it could have the number `n`; it is not made.

    Raises psycopg.Error.
    """
    async with connection.transaction(force_rollback=True):
        empty = [row_of(n, Write(()))]
        return await put(connection, session_id, owner, fence, empty, sure=False, prompted=False)


async def fence(connection: Connection, session_id: str, owners: Sequence[str]) -> tuple[int, int]:
    """Give a session of one of `owners` to the last of them, under a new fence.

    A write that was sent under an earlier fence can't get into the log any more. Returns the new
    fence and the number of the last write. Raises SessionTaken: the session is not theirs;
    psycopg.Error.
    """
    cursor = await connection.execute(
        "UPDATE acp_bridge.sessions SET owner = %s, fence = fence + 1"
        f" WHERE name = %s AND owner = ANY(%s) AND NOT deleted AND {KNOWN}"
        " RETURNING fence, applied",
        (owners[-1], file_name(session_id), list(owners)),
    )
    if row := await cursor.fetchone():
        return row[0], row[1]
    found = await head(connection, session_id)
    raise SessionTaken() if found and found.owner else SessionTaken(UNKNOWN_THERE)


async def named(connection: Connection, names: Sequence[str], owner: str) -> set[str]:
    """Return those of `names`, which are file names, whose sessions have this owner.

    Raises psycopg.Error.
    """
    cursor = await connection.execute(
        "SELECT name FROM acp_bridge.sessions WHERE name = ANY(%s) AND owner = %s AND NOT deleted",
        (list(names), owner),
    )
    return {name for (name,) in await cursor.fetchall()}


async def store(
    connection: Connection, info: SessionInfo, path: Path, owner: str | None = None
) -> int:
    """Put a session file into the database, as the base of a session that `owner` has.

    The numbers of its writes begin anew, whatever number the file has of another log. Returns the
    session's fence.

    Raises:
        SessionExists: the database has one of this id, and nothing is changed.
        JournalError: the file can't be read.
        psycopg.Error: the database failed.
    """
    async with _copy_of(path) as copy:
        await in_thread(_forget_applied, copy)
        parts = await in_thread(_parts_of, copy)
        given = (file_name(info.session_id), *values_of(info), owner, parts or [])
        if parts is not None:
            cursor = await connection.execute(f"{COUNT}{_STORE}".encode(), given)
            return _fence_of(await cursor.fetchone())
        async with connection.transaction():
            cursor = await connection.execute(f"{_UNLISTED}{_STORE}".encode(), given)
            new_fence = _fence_of(await cursor.fetchone())
            await _put_base(connection, file_name(info.session_id), copy)
            # The last of all: nobody else's listing can be changed until this is committed.
            await connection.execute(
                f"{COUNT} UPDATE acp_bridge.sessions SET changed = changes FROM one"
                " WHERE name = %s",
                (file_name(info.session_id),),
            )
        return new_fence


def _parts_of(file: Path) -> list[bytes] | None:
    """Return the parts of a base that goes into one statement; None if it is too long for that."""
    with journal_errors():
        if file.stat().st_size > _ONE_STATEMENT:
            return None
        data = file.read_bytes()
    return [data[at : at + PART] for at in range(0, len(data), PART)]


def _fence_of(stored: tuple[Any, ...] | None) -> int:
    """Return the fence of a session that `_STORE` has stored. Raises SessionExists."""
    if stored is None:
        raise SessionExists
    return int(stored[0])


async def rebase(
    connection: Connection, session_id: str, path: Path, owner: str, fence: int
) -> int:
    """Put a copy, as it is now, in the place of the base and of the writes that the copy holds.

    Returns the number of the copy's last write. Raises as `store` does; JournalError if the session
    is not this owner's, and nothing is changed.
    """
    name = file_name(session_id)
    async with _copy_of(path) as copy:
        n = await in_thread(applied_in_file, copy)
        async with connection.transaction():
            cursor = await connection.execute(
                "UPDATE acp_bridge.sessions SET base = %s, applied = greatest(applied, %s)"
                f" WHERE name = %s AND owner = %s AND fence = %s AND {KNOWN}",
                (n, n, name, owner, fence),
            )
            if not cursor.rowcount:
                raise JournalError("the journal failed: another bridge has the session")
            await connection.execute("DELETE FROM acp_bridge.bases WHERE name = %s", (name,))
            await _put_base(connection, name, copy)
            await connection.execute(
                "DELETE FROM acp_bridge.writes WHERE name = %s AND n <= %s", (name, n)
            )
        return n


async def _put_base(connection: Connection, name: str, file: Path) -> None:
    into = "COPY acp_bridge.bases(name, part, data) FROM STDIN"
    async with connection.cursor().copy(into) as copy:
        with file.open("rb") as source:
            part = 0
            while data := await in_thread(source.read, PART):
                await copy.write_row((name, part, data))
                part += 1


@asynccontextmanager
async def _copy_of(path: Path) -> AsyncIterator[Path]:
    copy = await in_thread(_copied, path)
    try:
        yield copy
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(copy.unlink, True)


def _copied(path: Path) -> Path:
    """Copy a session file, as it is at one moment, into one beside it without a WAL; returns that.

    Raises JournalError, also for one that is damaged.
    """
    copy = path.with_suffix(".base")
    with journal_errors():
        copy.unlink(missing_ok=True)
        make_file(copy)
        try:
            with (
                closing(connect(path, wait=5, read_only=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
                target.execute("PRAGMA journal_mode=DELETE").close()
                check_whole(target)
        except BaseException:
            copy.unlink(missing_ok=True)
            raise
    return copy


def applied_in_file(path: Path) -> int:
    """Return the number of the write that was made last in a copy. Raises JournalError."""
    with journal_errors(), closing(connect(path, wait=1)) as db:
        row = db.execute("SELECT value FROM settings WHERE key = ?", (APPLIED,)).fetchone()
        return int(row[0]) if row else 0


def _forget_applied(path: Path) -> None:
    with journal_errors(), closing(connect(path, wait=1)) as db:
        db.execute("DELETE FROM settings WHERE key = ?", (APPLIED,)).close()


# --- a copy of it --------------------------------------------------------------------------------


async def fetch(connection: Connection, session_id: str, path: Path, *, copy: bool = True) -> int:
    """Make a session's file of what the database has; returns the number of its last write.

    A file that has the name is replaced. The caller holds the session's lock. `copy`: the file is a
    copy to work on, and keeps that number; else it has nothing to do with the database any more.

    Raises:
        UnknownSession: the database has none of this id, or it was deleted.
        JournalError: the file can't be written, or what the database has is no session.
        psycopg.Error: the database failed.
    """
    draft = draft_of(path)
    await in_thread(_begin, draft)
    try:
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if (found := await head(connection, session_id)) is None:
                raise UnknownSession("the database has no such session")
            await _fetch_base(connection, session_id, draft)
            await in_thread(whole.check_base, draft)
            with closing(await in_thread(_opened, draft, session_id)) as made:
                await _fetch_writes(connection, found, made)
        if copy:
            await in_thread(set_aside_if_ahead, path, found.applied)
        else:
            await in_thread(_forget_applied, draft)
        await in_thread(take_name, draft, path)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await in_thread(_remove, draft)
        raise
    return found.applied


def set_aside(path: Path, applied: int) -> None:
    """Save a copy, as it is now, under another name, for it has writes the database does not have.

    The name tells `applied`, the number of the last write that both have. Raises JournalError.
    """
    copy = _copied(path)
    with journal_errors():
        aside = name_aside(path, applied)
        copy.rename(aside)
    event("journal.set_aside", session=path.stem, what=aside.name)


def name_aside(path: Path, applied: int) -> Path:
    """Return the name, which no file has yet, for what the database does not have of a session.

    `path`: that of the session's copy. `applied`: as for `set_aside`.
    """
    name = path.with_suffix(f".lost-{applied}")
    more = (name.with_name(f"{name.name}.{number}") for number in count(2))
    while name.exists():
        name = next(more)
    return name


def set_aside_if_ahead(path: Path, applied: int) -> None:
    """Save a copy by `set_aside` if it has writes after `applied`. Raises JournalError."""
    if path.exists() and applied_in_file(path) > applied:
        set_aside(path, applied)


def is_older(path: Path) -> bool:
    """Return whether a copy has the tables of an earlier version. Raises JournalError."""
    with journal_errors(), closing(connect(path, wait=1)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        return bool(version < SESSION_SCHEMA.version)


def _begin(draft: Path) -> None:
    make_folders(draft.parent.parent)
    with journal_errors():
        remove(draft)
        make_file(draft)


def _remove(draft: Path) -> None:
    with suppress(OSError):
        remove(draft)


async def _fetch_base(connection: Connection, session_id: str, draft: Path) -> None:
    async with connection.cursor("base") as cursor:
        cursor.itersize = 4
        await cursor.execute(
            "SELECT part, data FROM acp_bridge.bases WHERE name = %s ORDER BY part",
            (file_name(session_id),),
        )
        with journal_errors(), draft.open("ab") as file:
            parts = 0
            async for part, data in cursor:
                whole.part_follows(part, parts)
                await in_thread(file.write, data)
                parts += 1


async def _fetch_writes(connection: Connection, found: Head, copy: sqlite3.Connection) -> None:
    page: list[Row] = []
    size, last = 0, found.base
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            "COPY (SELECT n, statements, turn, lines FROM acp_bridge.writes"
            " WHERE name = %s AND n > %s ORDER BY n) TO STDOUT (FORMAT BINARY)",
            (file_name(found.info.session_id), found.base),
        ) as rows,
    ):
        rows.set_types(("int8", "text", "int8", "bytea"))
        async for values in rows.rows():
            page.append(row := Row(*values))
            last = whole.follow([row.n], last)
            size += row.size
            if len(page) >= _PAGE or size >= _PAGE_BYTES:
                await in_thread(_make, copy, page)
                page, size = [], 0
    if page:
        await in_thread(_make, copy, page)
    whole.check_last(last, found.applied)


def _opened(draft: Path, session_id: str, mode: str = "WAL") -> sqlite3.Connection:
    """Open a base so that nothing but its rows can be changed. `mode`: SQLite's journal_mode.

    Raises JournalError, also if it is no base of the session.
    """
    with journal_errors():
        copy = connect(draft, wait=1)
        try:
            copy.execute(f"PRAGMA journal_mode={mode}").close()
            copy.execute("PRAGMA synchronous=OFF").close()  # once, at the end, is enough
            foreign = copy.execute(
                "SELECT 1 FROM sqlite_master WHERE type NOT IN ('table', 'index')"
                " OR sql LIKE 'CREATE VIRTUAL%'"
            ).fetchone()
            named = copy.execute("SELECT session_id FROM session").fetchone()
            if foreign or named != (session_id,):
                raise JournalError(_FOREIGN)
            copy.set_authorizer(_authorize)
        except BaseException:
            copy.close()
            raise
        return copy


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _make(copy: sqlite3.Connection, rows: list[Row]) -> None:
    """Make the writes of some rows in a copy, in one transaction. Raises JournalError."""
    with transaction(copy):
        for row in rows:
            make(copy, tuple(statements_of(row)))
        copy.execute(*applied(rows[-1].n))


def make(copy: sqlite3.Connection, statements: Sequence[Statement]) -> sqlite3.Error | None:
    """Execute all statements of a write or none, inside the caller's transaction.

    Returns the error if the tables refuse the write, as they do in each copy; else None. Raises
    sqlite3.Error.
    """
    try:
        if len(statements) == 1:
            copy.execute(*statements[0])
            return None
        copy.execute("SAVEPOINT one")
        try:
            for sql, values in statements:
                copy.execute(sql, values)
        except sqlite3.IntegrityError:
            copy.execute("ROLLBACK TO one")
            raise
        finally:
            copy.execute("RELEASE one")
    except sqlite3.IntegrityError as error:
        return error
    return None
