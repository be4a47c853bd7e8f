"""The index: what a listing of sessions needs, in one small file shared by all bridges.

Invariants
- Used in worker threads only, one at a time; nothing on the event loop waits for another bridge.
- Pages are told apart by the last row shown, not by a count: a session made meanwhile moves
  none (it is newer than all that follows).
- It is a copy: where there is none, it is made from the session files (not of what was deleted).
"""

import base64
import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import anyio

from acp_bridge.journal.errors import BadCursor
from acp_bridge.journal.records import SessionInfo, SessionRow
from acp_bridge.journal.schema import (
    INDEX_SCRIPTS,
    connect,
    journal_errors,
    make_file,
    make_folder,
    migrate,
    sync_file,
    sync_folder,
    wal_of,
)
from acp_bridge.journal.threads import in_thread

logger = logging.getLogger(__name__)
_COLUMNS: Final = ", ".join(field.name for field in fields(SessionRow))
T = TypeVar("T")


class Index:
    """`index.db`; opened, and made, when it is first used."""

    def __init__(self, path: Path) -> None:
        """Nothing is touched yet."""
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._lock = anyio.Lock()

    async def put(self, info: SessionInfo, *, durable: bool = False) -> None:
        """Add or replace a session's row; `durable`: it is on the disk on return.

        Raises JournalError.
        """
        values = [getattr(info, field.name) for field in fields(SessionRow)]
        marks = ", ".join("?" * len(values))

        def work(db: sqlite3.Connection) -> None:
            db.execute(f"INSERT OR REPLACE INTO sessions({_COLUMNS}) VALUES ({marks})", values)
            if durable:
                with wal_of(self._path).open("rb") as wal:
                    sync_file(wal.fileno())

        await self._run(work)

    async def remove(self, session_id: str, *, known: bool) -> None:
        """List a session no more; `known`: but keep the agent's id, which the agent may list still.

        Raises JournalError.
        """
        hide = "UPDATE sessions SET deleted = 1, title = NULL"
        change = hide if known else "DELETE FROM sessions"
        await self._run(lambda db: db.execute(f"{change} WHERE session_id = ?", (session_id,)))

    async def page(
        self, cwd: str | None, agent: str | None, cursor: str | None, limit: int
    ) -> tuple[list[SessionRow], str | None]:
        """Sessions (of `cwd`, of `agent`), newest first, and the cursor of the next page, if any.

        Raises:
            BadCursor: the cursor is not one of ours.
            JournalError: the index can't be read.
        """
        time, last = _read_cursor(cursor)
        rows = await self._run(
            lambda db: db.execute(
                f"SELECT {_COLUMNS} FROM sessions WHERE NOT deleted"
                " AND (?1 IS NULL OR cwd = ?1) AND (?2 IS NULL OR agent = ?2)"
                " AND (?3 IS NULL OR (updated_at, session_id) < (?3, ?4))"
                " ORDER BY updated_at DESC, session_id DESC LIMIT ?5",
                (cwd, agent, time, last, limit + 1),
            ).fetchall()
        )
        found = [SessionRow(*row) for row in rows[:limit]]
        return found, _make_cursor(found[-1]) if len(rows) > limit else None

    async def agent_ids(self, agent: str) -> dict[str, str]:
        """The agent's session ids that are mapped, to ours. Raises JournalError."""
        rows = await self._run(
            lambda db: db.execute(
                "SELECT agent_session_id, session_id FROM sessions"
                " WHERE agent = ? AND agent_session_id IS NOT NULL",
                (agent,),
            ).fetchall()
        )
        return dict(rows)

    async def close(self) -> None:
        """Close it. Never raises."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                db, self._db = self._db, None
                if db is not None:
                    with suppress(sqlite3.Error):
                        await in_thread(db.close)

    async def _run(self, use: Callable[[sqlite3.Connection], T]) -> T:
        def work() -> T:
            with journal_errors():
                if self._db is None:
                    self._db = _open(self._path)
                return use(self._db)

        async with self._lock:
            return await in_thread(work)


def _open(path: Path) -> sqlite3.Connection:
    if not path.exists():
        _make(path)
    connection = connect(path, wait=5)
    try:
        migrate(connection, INDEX_SCRIPTS)
        connection.execute("PRAGMA wal_autocheckpoint=1000").close()
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Make the file complete, then give it its name: several bridges may start at once, and
    SQLite waits for nobody when it switches a file to WAL."""
    make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{uuid4().hex}")
    make_file(draft)
    try:
        with closing(connect(draft, wait=1)) as connection:
            migrate(connection, INDEX_SCRIPTS)
            _fill(connection, path.with_name("sessions"))
        with suppress(FileExistsError):  # another was quicker
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def _fill(index: sqlite3.Connection, folder: Path) -> None:
    """Add a row for every session in the folder; one that can't be read hides no other (K2)."""
    marks = ", ".join("?" * len(fields(SessionRow)))
    for path in sorted(folder.glob("*.db")):
        try:
            with closing(connect(path, wait=1)) as session:
                rows = session.execute(f"SELECT {_COLUMNS} FROM session").fetchall()
            index.executemany(f"INSERT INTO sessions({_COLUMNS}) VALUES ({marks})", rows)
        except sqlite3.Error as error:
            logger.warning("journal: %s is not listed: %s", path.name, error)


def _read_cursor(cursor: str | None) -> tuple[str | None, str | None]:
    if cursor is None:
        return None, None
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii")
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadCursor("not a cursor of this listing") from error
    match value:
        case [str(time), str(last)]:
            return time, last
    raise BadCursor("not a cursor of this listing")


def _make_cursor(row: SessionRow) -> str:
    return base64.urlsafe_b64encode(json.dumps([row.updated_at, row.session_id]).encode()).decode()
