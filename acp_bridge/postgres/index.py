"""The index of a database's sessions: a copy on this machine, brought up to date at each use."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from acp_bridge.core.journal.errors import IndexUnusable, JournalError
from acp_bridge.core.journal.index import COLUMNS, UNPROMPTED, Index
from acp_bridge.core.journal.records import SessionInfo, file_name, now
from acp_bridge.postgres.again import repeated
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.log import COUNT, UNSUMMED, values_of
from acp_bridge.postgres.tables import KNOWN

T = TypeVar("T")

_FIELDS = "cwd, agent, agent_session_id, title, updated_at, agent_info, prompted"


class CopiedIndex(Index):
    """The index of all sessions of a database; each change is made there, then in the copy."""

    def __init__(self, path: Path, database: Database, owners: list[str]) -> None:
        """`path`: the copy. `owners`: the names that this bridge has had in the database."""
        super().__init__(path)
        self._database = database
        self._owners = owners
        #: rows that the database was given with their sessions, by the sessions' ids.
        self.stored: dict[str, SessionInfo] = {}
        #: the number of the last change that this copy has.
        self._changes = 0

    async def put(self, info: SessionInfo, *, durable: bool = False, late: bool = False) -> None:
        """Replace a session's row, as `Index.put` does.

        The row stays as it is if the session was deleted, or is another bridge's by now.
        """
        if self.stored.pop(info.session_id, None) == info or await self._change(
            f"{COUNT} UPDATE acp_bridge.sessions SET (changed, {_FIELDS}) ="
            " (one.changes, %s, %s, %s, %s, %s, %s, %s) FROM one WHERE name = %s AND NOT deleted"
            " AND updated_at <= %s AND (owner IS NULL OR owner = ANY(%s))",
            (
                *values_of(info)[1:],
                *(file_name(info.session_id), info.updated_at, self._owners),
            ),
        ):
            await super().put(info, durable=durable)

    async def remove(self, session_id: str, *, known: bool, agent: str | None = None) -> None:
        """Take a session out of the listing, as `Index.remove` does.

        Its content leaves the database.
        """
        await self._take_out(session_id, prompted=known, dropped=not known)
        if known and agent is not None:
            hidden = f"hidden:{agent}:{session_id}"
            await self._change(
                f"{COUNT} INSERT INTO acp_bridge.sessions(name, session_id, {_FIELDS}, changed,"
                " deleted) SELECT %s, %s, '', %s, %s, NULL, %s, NULL, true, changes, true FROM one"
                " ON CONFLICT (name) DO NOTHING",
                (file_name(hidden), hidden, agent, session_id, now()),
            )
        await super().remove(session_id, known=known, agent=agent)

    async def set_aside(self, session_id: str) -> None:
        """Mark a session as removed before it had a prompt, as `Index.set_aside` does.

        Its content leaves the database.
        """
        await self._take_out(session_id, prompted=False, dropped=False)
        await super().set_aside(session_id)

    async def _take_out(self, session_id: str, *, prompted: bool, dropped: bool) -> None:
        await self._change(
            f"{COUNT}, gone AS (UPDATE acp_bridge.sessions SET deleted = true,"
            " prompted = %(prompted)s, dropped = %(dropped)s, owner = NULL, base = 0, applied = 0,"
            f" changed = changes, {UNSUMMED},"
            " title = CASE WHEN %(prompted)s OR %(dropped)s THEN NULL ELSE title END"
            " FROM one WHERE name = %(name)s AND (owner IS NULL OR owner = ANY(%(owners)s))"
            " RETURNING name),"
            " base AS (DELETE FROM acp_bridge.bases USING gone WHERE bases.name = gone.name),"
            " log AS (DELETE FROM acp_bridge.writes USING gone WHERE writes.name = gone.name),"
            " memory AS (DELETE FROM acp_bridge.memories USING gone"
            " WHERE memories.name = gone.name)"
            " SELECT 1 FROM gone",
            {
                "name": file_name(session_id),
                "prompted": prompted,
                "dropped": dropped,
                "owners": self._owners,
            },
        )

    async def unprompted(self, before: str) -> list[str]:
        """Return what `Index.unprompted` does; the database is asked if this copy has some."""
        has = f"SELECT 1 FROM sessions WHERE NOT deleted AND {UNPROMPTED}"
        some = await self._use(lambda db: db.execute(has, (before,)).fetchone())
        return await super().unprompted(before) if some else []

    async def without_prompt(self) -> list[str]:
        """Return nothing: the database lists a session in the write of its first prompt."""
        return []

    async def _change(self, sql: str, values: Any) -> bool:
        """Execute a statement that changes what is listed; returns whether it changed a row."""
        try:
            return await repeated(partial(self._execute, sql, values))
        except JournalError as error:
            raise IndexUnusable(_told(error)) from error

    async def _execute(self, sql: str, values: Any) -> bool:
        async with self._database.connection() as connection:
            cursor = await connection.execute(sql.encode(), values)
            return bool(cursor.rowcount)

    async def _run(self, use: Callable[[sqlite3.Connection], T]) -> T:
        try:
            async with self._database.connection() as connection:
                cursor = await connection.execute(
                    f"SELECT {COLUMNS}, deleted, dropped, changed FROM acp_bridge.sessions"
                    f" WHERE changed > %s AND {KNOWN} ORDER BY changed",
                    (self._changes,),
                )
                rows = await cursor.fetchall()
        except JournalError as error:
            raise IndexUnusable(_told(error)) from error
        if rows:
            await self._use(lambda db: _take_in(db, rows))
            self._changes = rows[-1][-1]
        return await self._use(use)


def _take_in(db: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        for *values, deleted, dropped, _ in rows:
            if dropped:
                db.execute("DELETE FROM sessions WHERE session_id = ?", (values[0],))
            else:
                marks = ", ".join("?" * (len(values) + 1))
                db.execute(
                    f"INSERT OR REPLACE INTO sessions({COLUMNS}, deleted) VALUES ({marks})",
                    (*values, deleted),
                )
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _told(error: JournalError) -> str:
    return f"the list of sessions can't be used: {str(error).removeprefix('the journal failed: ')}"
