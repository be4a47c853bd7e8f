"""A folder in which commands read the sessions of a database as they read those of a data folder.

Invariants
- Neither a session in the database nor a bridge's copy of one is changed.
- One command at a time brings the folder up to date, and what was deleted leaves it then.
- A session that a bridge of any machine has is locked here, too, while a command reads it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.agents import lease
from acp_bridge.commands.terminal.stored import Holder, Kept
from acp_bridge.journal import DatabaseError, Journal, JournalError
from acp_bridge.journal.connection import in_thread, journal_errors
from acp_bridge.journal.files import make_folders, remove_files
from acp_bridge.journal.postgres import log
from acp_bridge.journal.postgres.connection import ALL, Database
from acp_bridge.journal.postgres.index import CopiedIndex
from acp_bridge.journal.postgres.memory import Memories
from acp_bridge.journal.search import SEARCHED, forget
from acp_bridge.settings import DatabaseUrl

#: seconds for which a command waits for another one that brings the folder up to date.
_WAIT: Final = 60.0
_HOLDERS: Final = (
    "SELECT session_id, machine, ceil(extract(epoch FROM until - clock_timestamp()))::int"
    " FROM acp_bridge.sessions JOIN acp_bridge.bridges USING (owner)"
    " WHERE NOT deleted AND until > clock_timestamp()"
)


@contextmanager
def copied(url: DatabaseUrl, home: Path) -> Iterator[Copies]:
    """Give copies of a database's sessions for the block, their listing as it is now.

    `home`: the data folder, which has the copies. Raises JournalError.
    """
    copies = Copies(url, home)
    try:
        anyio.run(copies.bring_up_to_date)
        yield copies
    finally:
        copies.close()


class Copies(Kept):
    """Copies of a database's sessions, each fetched when it is asked for."""

    def __init__(self, url: DatabaseUrl, home: Path) -> None:
        """`home`: the data folder. Touches nothing yet."""
        super().__init__(home / "databases" / url.folder / "read")
        self._url = url
        self._journal = Journal(self.home)
        self._locks: list[int] = []

    def close(self) -> None:
        """Remove the copies of the agent's memory, and unlock the sessions that bridges have."""
        shutil.rmtree(self.home / "agent", ignore_errors=True)
        while self._locks:
            os.close(self._locks.pop())

    async def bring_up_to_date(self) -> None:
        """Fetch the listing and the holders, and remove deleted sessions. Raises JournalError."""
        async with self._alone() as database:
            async with database.connection() as connection:
                rows = await (await connection.execute(_HOLDERS)).fetchall()
                self.holders = {session_id: Holder(*row) for session_id, *row in rows}
                cursor = await connection.execute(
                    "SELECT name FROM acp_bridge.sessions WHERE NOT deleted"
                )
                names = {name for (name,) in await cursor.fetchall()}
            await in_thread(self._keep_only, names)
            index = CopiedIndex(self.home / "index.db", database, [])
            try:
                await index.page(None, None, None)
            finally:
                await index.close()

    def fetch(self, session_id: str, *, memory: bool = False) -> None:
        """Bring a session's file up to date. Raises JournalError.

        `memory`: fetch also what the built-in agent remembers, and keep it until `close`.
        """

        async def fetch() -> None:
            async with self._alone() as database:
                await self._fetch(database, session_id)
                if memory:
                    async with database.connection(ALL) as connection:
                        await Memories(self.home / "agent").restore(connection, session_id)

        anyio.run(fetch)

    def fetch_all(self, ids: Iterable[str]) -> None:
        """Bring the files of sessions up to date; the file of one that can't be fetched is removed.

        Raises JournalError if the database can't be used.
        """

        async def fetch() -> None:
            async with self._alone() as database:
                for session_id in ids:
                    try:
                        await self._fetch(database, session_id)
                    except DatabaseError:
                        raise
                    except JournalError:
                        await in_thread(remove_files, self._journal.path(session_id))

        anyio.run(fetch)

    async def _fetch(self, database: Database, session_id: str) -> None:
        path = self._journal.path(session_id)
        async with database.connection(ALL) as connection:
            head = await log.head(connection, session_id)
            if head is None or not await in_thread(_is_as_new, path, head.applied):
                await log.fetch(connection, session_id, path)
        if session_id in self.holders:
            with suppress(lease.Busy):  # by another command
                lock = self._journal.lock_path(session_id)
                self._locks.append(await lease.acquire(lock, 0))

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[Database]:
        await in_thread(make_folders, self.home)
        try:
            lock = await lease.acquire(self.home / "lock", _WAIT)
        except lease.Busy as error:
            raise JournalError("another command just fetches sessions: try again") from error
        try:
            async with Database(self._url) as database:
                yield database
        finally:
            os.close(lock)

    def _keep_only(self, names: set[str]) -> None:
        """Remove the copies of all sessions but `names`: they were deleted."""
        with journal_errors():
            gone = [
                path
                for path in (self.home / "sessions").glob("*.db")
                if path.name.removesuffix(".db") not in names
            ]
            for path in gone:
                remove_files(path)
                forget(self.home / SEARCHED, path)


def _is_as_new(path: Path, applied: int) -> bool:
    return path.exists() and log.applied_in_file(path) == applied
