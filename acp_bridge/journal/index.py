"""The index of all sessions, in one small file that all bridges share; a listing reads only it.

Invariants
- It is used in worker threads only, one at a time, so nothing on the event loop waits for another
  bridge.
- A page begins after the last row of the one before, not at a count: a session made meanwhile
  shifts none, since it is newer than all that follows.
- Whatever is wrong with it is said in one sentence for the user (IndexUnusable).
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

from acp_bridge.journal.errors import BadCursor, IndexUnusable, JournalError, NewerVersion
from acp_bridge.journal.index_file import COLUMNS, IndexFile, is_damage, wipe
from acp_bridge.journal.records import Owns, SessionInfo, now
from acp_bridge.journal.reloads import Reloads
from acp_bridge.journal.schema import FAILURES, sync_file, wal_of
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
        self.reloads = Reloads(self._run)

    async def put(self, info: SessionInfo, *, durable: bool = False, late: bool = False) -> None:
        """Add or replace a session's row; if `durable`, it is on the disk on return.

        An id at the agent that it had before stays hidden: the agent may list it still. `late`: the
        session may have been deleted meanwhile, and stays so.

        Raises IndexUnusable.
        """
        values = [getattr(info, field.name) for field in fields(SessionInfo)]
        marks = ", ".join("?" * len(values))

        def work(db: sqlite3.Connection) -> None:
            gone = "SELECT 1 FROM sessions WHERE deleted AND prompted AND session_id = ?"
            if late and db.execute(gone, (info.session_id,)).fetchone():
                return
            had = db.execute(
                "SELECT agent, agent_session_id FROM sessions WHERE session_id = ?"
                " AND agent_session_id IS NOT NULL AND agent_session_id IS NOT ?",
                (info.session_id, info.agent_session_id),
            ).fetchone()
            if had:
                _hide(db, *had)
            db.execute(f"INSERT OR REPLACE INTO sessions({COLUMNS}) VALUES ({marks})", values)
            if durable:
                with wal_of(self._path).open("rb") as wal:
                    sync_file(wal.fileno())

        await self._run(work)

    async def remove(self, session_id: str, *, known: bool, agent: str | None = None) -> None:
        """Take a session out of the listing.

        If `known`, its id at the agent is kept: when the agent lists it, it is not a new one.
        `agent`: its name, so that also a session that only the agent knows can be hidden.

        Raises IndexUnusable.
        """

        def work(db: sqlite3.Connection) -> None:
            if not known:
                db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
            else:
                if agent is not None:
                    _hide(db, agent, session_id)
                db.execute(
                    "UPDATE sessions SET deleted = 1, prompted = 1, title = NULL"
                    " WHERE session_id = ?",
                    (session_id,),
                )
            wipe(db)

        await self._run(work)

    # -- sessions without a prompt -----------------------------------------------------------

    async def set_aside(self, session_id: str) -> None:
        """Remember a session that was removed without a prompt. Raises IndexUnusable."""
        await self._run(
            lambda db: db.execute(
                "UPDATE sessions SET deleted = 1, prompted = 0 WHERE session_id = ?", (session_id,)
            )
        )

    async def set_aside_session(self, session_id: str) -> SessionInfo | None:
        """Return what is known of a session that was set aside. Raises IndexUnusable."""
        return await self._one("deleted AND NOT prompted AND session_id = ?", session_id)

    async def unprompted(self, before: str) -> list[str]:
        """Return sessions not used since then that may have no prompt. Raises IndexUnusable."""
        return await self._ids("updated_at < ? AND (NOT prompted OR title IS NULL)", before)

    async def without_prompt(self) -> list[str]:
        """Return the sessions that are not listed yet, newest first. Raises IndexUnusable."""
        return await self._ids("NOT prompted")

    # -- what is listed -------------------------------------------------------------------

    async def session(self, session_id: str) -> tuple[SessionInfo | None, bool]:
        """Return a session's row, and True if it was deleted for good. Raises IndexUnusable."""
        gone = await self._one("deleted AND prompted AND session_id = ?", session_id)
        return gone or await self._one("session_id = ?", session_id), gone is not None

    async def page(
        self, cwd: str | None, agent: Owns | None, cursor: str | None
    ) -> tuple[list[SessionInfo], str | None]:
        """Return sessions of `cwd` and `agent` (None: of any), newest first, and the next cursor.

        Raises:
            BadCursor: the cursor is not one of ours.
            IndexUnusable: it can't be read.
        """
        time, last = _read_cursor(cursor)

        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            _set_owner(db, agent)
            return db.execute(
                f"SELECT {COLUMNS} FROM sessions WHERE NOT deleted AND prompted"
                " AND (:cwd IS NULL OR rtrim(cwd, '/') = rtrim(:cwd, '/'))"
                " AND owns(agent, agent_info)"
                " AND (:time IS NULL OR (updated_at, session_id) < (:time, :last))"
                " ORDER BY updated_at DESC, session_id DESC LIMIT :limit",
                {"cwd": cwd, "time": time, "last": last, "limit": PAGE_ROWS + 1},
            ).fetchall()

        rows = await self._run(work)
        found = [SessionInfo(*row) for row in rows[:PAGE_ROWS]]
        return found, _make_cursor(found[-1]) if len(rows) > PAGE_ROWS else None

    async def agent_ids(self, agent: Owns) -> frozenset[str]:
        """Return the agent's ids of all sessions, also of deleted ones. Raises IndexUnusable."""
        which = "agent_session_id FROM sessions WHERE agent_session_id IS NOT NULL"
        return frozenset(await self._of(agent, f"{which} AND owns(agent, agent_info)"))

    async def folders(self, agent: Owns, most: int) -> list[str]:
        """Return the working folders of the agent's sessions, the newest first, at most so many.

        Raises IndexUnusable.
        """
        return await self._of(
            agent,
            "cwd FROM sessions WHERE cwd <> '' AND owns(agent, agent_info)"
            " GROUP BY cwd ORDER BY max(updated_at) DESC LIMIT ?",
            most,
        )

    async def shares_agent_id(self, agent: Owns, agent_session_id: str, session_id: str) -> bool:
        """Return True when another session that is not deleted has this id at the agent.

        Raises IndexUnusable.
        """
        others = await self._of(
            agent,
            "session_id FROM sessions WHERE NOT deleted AND agent_session_id = ?"
            " AND session_id <> ? AND owns(agent, agent_info) LIMIT 1",
            agent_session_id,
            session_id,
        )
        return bool(others)

    async def _of(self, agent: Owns, what: str, *values: object) -> list[str]:
        def work(db: sqlite3.Connection) -> list[str]:
            _set_owner(db, agent)
            return [found for (found,) in db.execute(f"SELECT {what}", values)]

        return await self._run(work)

    async def _one(self, which: str, session_id: str) -> SessionInfo | None:
        row = await self._run(
            lambda db: db.execute(
                f"SELECT {COLUMNS} FROM sessions WHERE {which}", (session_id,)
            ).fetchone()
        )
        return SessionInfo(*row) if row else None

    async def _ids(self, which: str, *values: str) -> list[str]:
        rows = await self._run(
            lambda db: db.execute(
                f"SELECT session_id FROM sessions WHERE NOT deleted AND {which}"
                " ORDER BY updated_at DESC",
                values,
            ).fetchall()
        )
        return [session_id for (session_id,) in rows]

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
            try:
                try:
                    return use(self._opened())
                except FAILURES as error:
                    if not self._mended(error):
                        raise
                return use(self._opened())
            except (*FAILURES, JournalError) as error:
                raise IndexUnusable(_told(self._path.name, error)) from error

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


def _set_owner(db: sqlite3.Connection, agent: Owns | None) -> None:
    """Let `owns(agent, agent_info)` in a statement say whose a session is."""
    db.create_function("owns", 2, agent.owns if agent else lambda name, info: True)


def _hide(db: sqlite3.Connection, agent: str, agent_session_id: str) -> None:
    """Add a row for a session of the agent that is not to be listed, if there is none."""
    db.execute(
        f"INSERT OR IGNORE INTO sessions({COLUMNS}, deleted)"
        " VALUES (?, '', ?, ?, NULL, ?, NULL, 1, 1)",
        (f"hidden:{agent}:{agent_session_id}", agent, agent_session_id, now()),
    )


def _told(name: str, error: Exception) -> str:
    """Return what the user is told; it holds no path."""
    if isinstance(error, NewerVersion):
        return (
            f"the list of sessions ({name} in the data folder) was {error}: use that one, or move"
            " the file away: it is made again from the sessions"
        )
    why = error.strerror if isinstance(error, OSError) else str(error)
    return (
        f"the list of sessions ({name} in the data folder) can't be used ({why}); if it stays so,"
        " move it away: it is made again from the sessions"
    )


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


def _make_cursor(row: SessionInfo) -> str:
    return base64.urlsafe_b64encode(json.dumps([row.updated_at, row.session_id]).encode()).decode()
