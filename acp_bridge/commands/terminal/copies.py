"""A folder in which commands read the sessions of a database as they read those of a data folder.

Invariants
- Neither a session in the database nor a bridge's copy of one is changed.
- One command at a time brings the folder up to date, and what was deleted leaves it then.
- A session that a bridge of any machine has is locked here, too, while a command reads it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.agents import lease
from acp_bridge.commands.terminal import usages
from acp_bridge.commands.terminal.stored import Holder, Kept
from acp_bridge.journal import Journal, JournalError
from acp_bridge.journal.connection import in_thread, journal_errors
from acp_bridge.journal.files import make_folders, remove_files
from acp_bridge.journal.postgres import log, many
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

_STATES: Final = "SELECT name, fence, applied FROM acp_bridge.sessions WHERE NOT deleted"
#: the file that has, as JSON, the states of the sessions that were fetched with others.
_FETCHED: Final = "fetched.json"
#: the file that has what the copies have of usage.
_USAGES: Final = "usages.jsonl"


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
        self.usages = self.home / _USAGES
        self._url = url
        self._journal = Journal(self.home)
        self._locks: list[int] = []
        #: fence and last write of each session, by the name of its file.
        self._states: dict[str, list[int]] = {}

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
                rows = await (await connection.execute(_STATES)).fetchall()
                self._states = {name: [*state] for name, *state in rows}
            await in_thread(self._keep_only, self._states.keys())
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
                await self._fetch_all(database, ids)

        anyio.run(fetch)

    async def _fetch_all(self, database: Database, ids: Iterable[str]) -> None:
        """Fetch the sessions that have changed since they were fetched together with others."""
        known = await in_thread(_read, self.home / _FETCHED)
        paths = {each: self._journal.path(each) for each in ids}
        changed = {
            each: path
            for each, path in paths.items()
            if known.get(path.stem, ()) != self._states.get(path.stem) or not path.exists()
        }
        if changed:
            async with database.connection(ALL) as connection:
                fetched = await many.fetch(connection, changed)
            now = {paths[each].stem: [*state] for each, state in fetched.items()}
            still = {name: known[name] for name in known.keys() & self._states.keys()}
            await in_thread(_write, self.home / _FETCHED, {**still, **now})
        for session_id in paths.keys() & self.holders.keys():
            await self._lock(session_id)

    async def _fetch(self, database: Database, session_id: str) -> None:
        path = self._journal.path(session_id)
        async with database.connection(ALL) as connection:
            head = await log.head(connection, session_id)
            if head is None or not await in_thread(_is_as_new, path, head.applied):
                await log.fetch(connection, session_id, path)
        if session_id in self.holders:
            await self._lock(session_id)

    async def _lock(self, session_id: str) -> None:
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

    def _keep_only(self, names: Collection[str]) -> None:
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
            usages.forget(self.home / _USAGES, [path.stem for path in gone])


def _is_as_new(path: Path, applied: int) -> bool:
    return path.exists() and log.applied_in_file(path) == applied


def _read(file: Path) -> dict[str, list[int]]:
    """Return the states of sessions that a file has; none if it is missing or damaged."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, states: dict[str, list[int]]) -> None:
    draft = file.with_suffix(".new")
    with journal_errors():
        draft.write_text(json.dumps(states))
        draft.replace(file)
