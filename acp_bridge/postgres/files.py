"""The sessions of a database for a journal: each is worked on in a copy on this machine."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.journal import left_queue
from acp_bridge.core.journal.connection import in_thread, journal_errors
from acp_bridge.core.journal.errors import JournalError, UnknownSession
from acp_bridge.core.journal.file import SessionFile
from acp_bridge.core.journal.files import make_draft, open_file, remove, take_name
from acp_bridge.core.journal.index import Index
from acp_bridge.core.journal.records import SessionInfo
from acp_bridge.core.journal.store import Files, Journal
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import log
from acp_bridge.postgres.again import repeated
from acp_bridge.postgres.connection import ALL, Database
from acp_bridge.postgres.file import CopiedFile
from acp_bridge.postgres.index import CopiedIndex
from acp_bridge.postgres.lease import Lease
from acp_bridge.postgres.memory import Memories, Saved

#: seconds for which a bridge that ends waits for the database to note that.
_END: Final = 2.0
_NONE: Final = Saved()

logger = logging.getLogger(__name__)


class DatabaseFiles(Files):
    """Sessions that are kept in a database; to open one is to fetch all of it into a copy."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        tasks: TaskGroup,
        memories: Memories | None = None,
    ) -> None:
        """`tasks` makes the writes of open sessions; `memories`: as for `CopiedFile`."""
        self._memories = memories
        self._database = database
        self._lease = lease
        self._tasks = tasks
        self._open: set[CopiedFile] = set()
        self._listing: CopiedIndex | None = None
        #: the sessions whose writes are made, or that are being summed up after their end.
        self._at_work = 0
        self._rest = anyio.Event()
        lease.on_half = self._tell_away
        lease.had = self._had

    def _had(self) -> dict[str, CopiedFile]:
        """Return the open sessions that this bridge has, as far as it knows, by file name."""
        self._open = {file for file in self._open if not (file.closed or file.is_taken)}
        return {file.path.stem: file for file in self._open}

    def _tell_away(self, seconds: float) -> None:
        for file in self._had().values():
            file.give_up()
            file.on_away(seconds)

    def index(self, home: Path) -> Index:
        """Return the index of all sessions of the database, whose copy is in `home`."""
        self._listing = CopiedIndex(home / "index.db", self._database, self._lease.owners)
        return self._listing

    async def create(self, path: Path, info: SessionInfo) -> SessionFile:
        """Make a session in the database, and its copy.

        Raises SessionExists, JournalError: it can't be made, and nothing is left of it.
        """
        await self._lease.begin()
        draft = await in_thread(make_draft, path, info)
        owner, fence = self._lease.owner, None
        try:
            fence = await repeated(partial(self._store, info, draft, owner))
            if self._listing:
                self._listing.stored[info.session_id] = info
            await in_thread(_replace, path, draft)
            file, _ = await in_thread(open_file, path, info.session_id, self._copied)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await in_thread(_remove, draft)
                if fence is not None:
                    await in_thread(_forget, path)
                    await self._lease.release(info.session_id, fence)
            raise
        return self._taken_up(file, log.Head(info, 0, 0, owner, fence))

    async def _store(self, info: SessionInfo, draft: Path, owner: str) -> int:
        async with self._database.connection(ALL) as connection:
            return await log.store(connection, info, draft, owner)

    async def open(self, path: Path, session_id: str) -> tuple[SessionFile, SessionInfo]:
        """Claim a session, fetch it into its copy, and open that; returns it and the session's row.

        Raises UnknownSession; HeldElsewhere: a bridge of another machine has it; JournalError.
        """
        head, saved = await self._lease.claim(session_id), Saved()
        try:
            async with self._database.connection(ALL) as connection:
                await log.fetch(connection, session_id, path)
                if self._memories:
                    saved = await self._memories.restore(connection, session_id)
            await in_thread(left_queue.clear, path)
            older = await in_thread(log.is_older, path)
            file, info = await in_thread(open_file, path, session_id, self._copied)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._lease.release(session_id, head.fence)
            raise
        copied = self._taken_up(file, head, saved)
        try:
            if older:  # what is written from now on belongs to the tables as they are now
                await copied.rebase()
        except BaseException:
            await copied.close()
            raise
        return copied, info

    def _copied(self, path: Path, connection: sqlite3.Connection) -> SessionFile:
        return CopiedFile(path, connection, self._database, self._lease, self._memories)

    def _taken_up(self, file: SessionFile, head: log.Head, saved: Saved = _NONE) -> CopiedFile:
        assert isinstance(file, CopiedFile)
        file.take_up(head, saved)
        self._open.add(file)
        self._tasks.start_soon(self._run, file, head)
        return file

    async def _run(self, file: CopiedFile, head: log.Head) -> None:
        """Make a session's writes until it is closed, and then sum it up if there were some."""
        self._at_work += 1
        try:
            await file.run()
            await self._sum_up(file.path, head)
        finally:
            self._at_work -= 1
            self._rest.set()

    async def _sum_up(self, path: Path, head: log.Head) -> None:
        from acp_bridge.postgres import summary  # no bridge needs it at its start

        try:
            summed = await in_thread(summary.sum_up, path)
            if summed.n != head.applied:
                async with self._database.connection() as connection:
                    await summary.put(connection, {path.stem: (head.fence, summed)})
        except JournalError:
            pass  # the first command that needs it sums it up
        except Exception:
            logger.exception("journal: a session can't be summed up")

    async def rest(self) -> None:
        """Wait until all sessions that were closed are summed up."""
        while self._at_work:
            self._rest = anyio.Event()
            await self._rest.wait()

    async def has(self, path: Path, session_id: str) -> bool:
        """Return whether the database has a session of this id."""
        return await self.info(path, session_id) is not None

    async def info(self, path: Path, session_id: str) -> SessionInfo | None:
        """Return a session's row; None if the database has none of this id."""
        async with self._database.connection() as connection:
            head = await log.head(connection, session_id)
        return head.info if head else None

    async def was_prompted(self, path: Path, session_id: str) -> bool:
        """Return whether a session has had a prompt."""
        info = await self.info(path, session_id)
        return info is not None and info.prompted

    async def take(self, session_id: str) -> None:
        """Claim a session, so that only this bridge may delete it; one not there is no error.

        Raises HeldElsewhere, JournalError.
        """
        with suppress(UnknownSession):
            await self._lease.claim(session_id)


def _forget(path: Path) -> None:
    """Remove the copy of a session that the database does not have any more."""
    with journal_errors():
        remove(path)
    left_queue.clear(path)


def _replace(path: Path, draft: Path) -> None:
    """Give a new session's file its name; the copy of a deleted session goes."""
    _forget(path)
    take_name(draft, path)


def _remove(draft: Path) -> None:
    with suppress(OSError):
        remove(draft)


@asynccontextmanager
async def opened(
    url: DatabaseUrl,
    home: Path,
    seconds: float,
    tasks: TaskGroup,
    follow: Callable[[float | None], None],
    memories: Path | None = None,
    address: str | None = None,
) -> AsyncIterator[Journal]:
    """Give the journal of a bridge whose sessions are kept in a database.

    `home`: the data folder, which has the copies. `seconds`: how long the lease lasts. `tasks` gets
    the tasks that work for the journal, and is cancelled by the caller after the end. `memories`:
    the folder in which the built-in agent remembers, if it is the agent. `follow` and `address`: as
    for `Lease`.
    """
    copies = home / "databases" / url.folder
    async with Database(url) as database:
        lease = Lease(database, copies, seconds, follow, address)
        tasks.start_soon(lease.run)
        try:
            kept = Memories(memories) if memories else None
            files = DatabaseFiles(database, lease, tasks, kept)
            yield Journal(copies, files)
        finally:
            with anyio.move_on_after(_END, shield=True):
                await lease.end()
                await files.rest()
