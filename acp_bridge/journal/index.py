"""The index of all sessions, in one small file that all bridges share; a listing reads only it.

Invariants
- It is used in worker threads only, one at a time, so nothing on the event loop waits for another
  bridge.
- A page begins after the last row of the one before, not at a count: a session made meanwhile
  shifts none, since it is newer than all that follows.
- It is a copy: where it is missing or damaged, it is made again from the session files. Only what
  it knew of deleted sessions is lost then.
"""

import base64
import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

from acp_bridge.journal.errors import BadCursor
from acp_bridge.journal.index_file import COLUMNS, IndexFile, is_damage
from acp_bridge.journal.records import SessionInfo, SessionRow
from acp_bridge.journal.schema import FAILURES, journal_errors, sync_file, wal_of
from acp_bridge.journal.threads import in_thread

#: sessions in one page of a listing.
PAGE_ROWS: Final = 50

T = TypeVar("T")


class Index:
    """The file `index.db`, opened, or made, when it is first used."""

    def __init__(self, path: Path) -> None:
        """Touches nothing yet."""
        self._path = path
        self._file: IndexFile | None = None
        self._lock = anyio.Lock()

    async def put(self, info: SessionInfo, *, durable: bool = False) -> None:
        """Add or replace a session's row; if `durable`, it is on the disk on return.

        Raises JournalError.
        """
        values = [getattr(info, field.name) for field in fields(SessionRow)]
        marks = ", ".join("?" * len(values))

        def work(db: sqlite3.Connection) -> None:
            db.execute(f"INSERT OR REPLACE INTO sessions({COLUMNS}) VALUES ({marks})", values)
            if durable:
                with wal_of(self._path).open("rb") as wal:
                    sync_file(wal.fileno())

        await self._run(work)

    async def remove(self, session_id: str, *, known: bool) -> None:
        """Take a session out of the listing.

        If `known`, its id at the agent is kept: when the agent lists it, it is not a new one.

        Raises JournalError.
        """
        hide = "UPDATE sessions SET deleted = 1, title = NULL"
        change = hide if known else "DELETE FROM sessions"
        await self._run(lambda db: db.execute(f"{change} WHERE session_id = ?", (session_id,)))

    async def page(
        self, cwd: str | None, agent: str | None, cursor: str | None
    ) -> tuple[list[SessionRow], str | None]:
        """Return sessions of `cwd` and `agent` (None: of any), newest first, and the next cursor.

        Raises:
            BadCursor: the cursor is not one of ours.
            JournalError: the index can't be read.
        """
        time, last = _read_cursor(cursor)
        rows = await self._run(
            lambda db: db.execute(
                f"SELECT {COLUMNS} FROM sessions WHERE NOT deleted"
                " AND (:cwd IS NULL OR cwd = :cwd) AND (:agent IS NULL OR agent = :agent)"
                " AND (:time IS NULL OR (updated_at, session_id) < (:time, :last))"
                " ORDER BY updated_at DESC, session_id DESC LIMIT :limit",
                {"cwd": cwd, "agent": agent, "time": time, "last": last, "limit": PAGE_ROWS + 1},
            ).fetchall()
        )
        found = [SessionRow(*row) for row in rows[:PAGE_ROWS]]
        return found, _make_cursor(found[-1]) if len(rows) > PAGE_ROWS else None

    async def agent_ids(self, agent: str) -> dict[str, str]:
        """Return the agent's session ids and for each the bridge's. Raises JournalError."""
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
                file, self._file = self._file, None
                if file is not None:
                    with suppress(*FAILURES):
                        await in_thread(file.close)

    async def _run(self, use: Callable[[sqlite3.Connection], T]) -> T:
        def work() -> T:
            with journal_errors():
                try:
                    return use(self._opened())
                except FAILURES as error:
                    if not self._mended(error):
                        raise
                return use(self._opened())

        async with self._lock:
            return await in_thread(work)

    def _opened(self) -> sqlite3.Connection:
        """Return a connection to the file that has the name now; a replaced one is closed."""
        if self._file is not None and self._file.replaced:
            self._file.close()
            self._file = None
        if self._file is None:
            self._file = IndexFile(self._path)
        return self._file.db

    def _mended(self, error: Exception) -> bool:
        """After a failure, return whether another try would use another file."""
        file = self._file
        if file is None:
            return False
        if is_damage(error):
            self._file = None
            file.discard(error)
            return True
        return file.replaced


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
