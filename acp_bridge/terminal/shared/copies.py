"""A folder in which commands read the sessions of a database as they read those of a data folder.

Invariants
- Neither a session in the database nor a bridge's copy of one is changed.
- One command at a time brings the folder up to date, and what was deleted leaves it then.
- A session that a bridge of any machine has is locked here, too, while a command reads its copy.
- What all sessions are asked for comes from their summaries in the database
  (`postgres/summary.py`). A session without one is fetched, and summed up by the command
  unless a bridge has it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import psycopg

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, JournalError, SessionInfo
from acp_bridge.core.journal.connection import in_thread, journal_errors
from acp_bridge.core.journal.files import make_folders, remove_files
from acp_bridge.core.journal.reading import used
from acp_bridge.core.journal.records import file_name
from acp_bridge.core.journal.search import SEARCHED, Asked, forget
from acp_bridge.core.journal.turns import Used
from acp_bridge.core.runtime.log import event
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import log, many, summary
from acp_bridge.postgres.connection import ALL, Database
from acp_bridge.postgres.failures import failure
from acp_bridge.postgres.index import CopiedIndex
from acp_bridge.postgres.memory import Memories
from acp_bridge.terminal.shared.searching import Progress, places
from acp_bridge.terminal.shared.stored import Holder, Kept

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
#: the most sessions, or characters, that are summed up in one statement.
_AT_ONCE: Final = 250
_CHARACTERS: Final = 4_000_000

#: asks the summaries for something.
Ask = Callable[[log.Connection], Awaitable[summary.Found]]


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

    def usage(self, ids: Iterable[str]) -> Callable[[str], Used]:
        """Return what reads a session's usage, as `Kept.usage` does: in its summary or its copy."""
        told = anyio.run(self._asked, [*ids], summary.used)

        def used_in(session_id: str) -> Used:
            found = told.get(file_name(session_id))
            return used(self.home, session_id) if found is None else found

        return used_in

    def said(self, sessions: Sequence[SessionInfo], text: str) -> dict[str, str]:
        """Return in which sessions a text was said, as `Kept.said` does."""
        asked = Asked.read(text)
        if not asked.query:
            return {}
        ids = [info.session_id for info in sessions]
        told = anyio.run(self._asked, ids, partial(summary.said, asked=asked))
        untold = [info for info in sessions if file_name(info.session_id) not in told]
        found = {each: told.get(file_name(each)) for each in ids}
        said = {each: asked.place(piece) for each, piece in found.items() if piece is not None}
        return {**said, **places(self.home, untold, text)}

    async def _asked(self, ids: list[str], ask: Ask) -> Mapping[str, Any]:
        """Return what the summaries of sessions tell, by the names of their files.

        The copy of a session that is not in it is up to date, or missing if the session can't be
        fetched. Raises JournalError if the database can't be used.
        """
        names = {file_name(each): each for each in ids}
        async with self._alone() as database, database.connection(ALL) as connection:
            found = await ask(connection)
            if untold := [each for name, each in names.items() if name not in found.told]:
                states = await self._fetch_all(connection, untold)
                # Those that a bridge has it will sum up itself, and write before.
                done = {*found.summed, *map(file_name, self.holders)}
                new = {name: states[name] for name in states.keys() - done}
                if new and await self._sum_up(connection, new):
                    found = await ask(connection)
        return found.told

    async def _sum_up(self, connection: log.Connection, states: dict[str, list[int]]) -> bool:
        """Sum up the copies of sessions, of which `states` has fence and last write by file name.

        Returns whether the database has taken the summaries.
        """
        progress = Progress("reads sessions that nobody has summed up yet")
        rest = [*states.items()]
        try:
            await summary.put(connection, {})  # who may only read is refused before all the work
            while rest:
                made = await in_thread(self._summaries, rest)
                progress.tell(len(states) - len(rest), len(states))
                await summary.put(connection, made)
        except psycopg.Error as error:
            event("journal.failed", what=failure(error))
            return False
        finally:
            progress.end()
        return True

    def _summaries(self, rest: list[tuple[str, list[int]]]) -> dict[str, summary.Put]:
        """Sum up as many copies as go into one statement, and take them out of `rest`."""
        made: dict[str, summary.Put] = {}
        size = 0
        while rest and len(made) < _AT_ONCE and size < _CHARACTERS:
            name, (fence, _) = rest.pop()
            with suppress(JournalError):
                one = summary.sum_up(self.home / "sessions" / f"{name}.db")
                made[name] = fence, one
                size += one.size
        return made

    async def _fetch_all(
        self, connection: log.Connection, ids: Iterable[str]
    ) -> dict[str, list[int]]:
        """Fetch the sessions that have changed since they were fetched together with others.

        Returns fence and last write of each copy, by its name. The copy of a session that can't be
        fetched is removed. Raises psycopg.Error, JournalError.
        """
        known = await in_thread(_read, self.home / _FETCHED)
        paths = {each: self._journal.path(each) for each in ids}
        changed = {
            each: path
            for each, path in paths.items()
            if known.get(path.stem, ()) != self._states.get(path.stem) or not path.exists()
        }
        if changed:
            fetched = await many.fetch(connection, changed)
            now = {paths[each].stem: [*state] for each, state in fetched.items()}
            gone = {path.stem for path in changed.values()} - now.keys()
            still = {name: known[name] for name in (known.keys() & self._states.keys()) - gone}
            known = {**still, **now}
            await in_thread(_write, self.home / _FETCHED, known)
        for session_id in paths.keys() & self.holders.keys():
            await self._lock(session_id)
        return {path.stem: known[path.stem] for path in paths.values() if path.stem in known}

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
