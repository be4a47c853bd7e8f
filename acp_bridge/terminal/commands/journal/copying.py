"""Copies all sessions of a data folder into a database, or those of a database into a data folder.

Invariants
- Nothing in the target is overwritten: a session that the target has in another state is refused by
  name, and one that was deleted there stays deleted.
- What was written is read back, out of the database into a file, and its checksum is compared with
  that of the source.
- A session is copied whole, while no bridge has it open, or not at all; one that can't be copied
  hinders no other. So a copy that was stopped goes on when the command is run again.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import (
    DatabaseAway,
    DatabaseRefuses,
    Journal,
    JournalError,
    SessionExists,
    SessionInfo,
    UnknownSession,
)
from acp_bridge.core.journal.connection import in_thread, journal_errors
from acp_bridge.core.journal.files import read_info
from acp_bridge.core.journal.reading import index_rows
from acp_bridge.postgres import listing, log, summary
from acp_bridge.postgres.connection import ALL, Database
from acp_bridge.postgres.digest import digest

_BUSY: Final = "a bridge has it open"
_DELETED_THERE: Final = "it was deleted where it would go"
_ONLY_DELETED_HERE: Final = "it was deleted, and is there still where that would go"
_DIFFERS: Final = "another state of it is there already, which stays"
_CHANGED: Final = "what was read back is not what was written"


class Result(StrEnum):
    """What the copy of one session came to."""

    COPIED = "copied"
    #: the target has the session already, with the same content.
    SAME = "same"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one session's copy; `why` tells the user why it is refused, if it is."""

    session_id: str
    result: Result
    why: str | None = None
    #: the session was deleted, hidden or set aside in the source.
    deleted: bool = False


class Told(Protocol):
    """What is told how far a copy is."""

    def begin(self, total: int) -> None:
        """Note that the copy begins; `total`: the number of sessions, deleted ones included."""

    def report(self, report: Report) -> None:
        """Note the report on one session that is done."""


class Refused(Exception):
    """A session is not copied; the text is for the user."""


class IntoDatabase:
    """Copies a data folder into a database."""

    def __init__(self, home: Path, database: Database) -> None:
        """`home`: the data folder. Nothing is read or written before `run`."""
        self._home, self._database = home, database
        self._journal = Journal(home)

    async def run(self, told: Told) -> None:
        """Copy every session that can be copied, and note the deleted ones; report each to `told`.

        Raises DatabaseAway, DatabaseRefuses; JournalError if nothing can be read or written.
        """
        found = await in_thread(sessions_of, self._home)
        async with self._database.connection():
            pass  # what is wrong with all of it is said once
        told.begin(len(found.ids) + len(found.broken) + len(found.deleted))
        for name, why in found.broken.items():
            told.report(Report(name, Result.REFUSED, why))
        for session_id in found.ids:
            told.report(await _reported(session_id, self._copy(session_id)))
        for info in found.deleted:
            told.report(await _buried(info, self._bury(info)))

    async def _copy(self, session_id: str) -> Result:
        path = self._journal.path(session_id)
        async with _locked(self._journal, session_id):
            info, here = await in_thread(digest, path)
            async with self._database.connection(ALL) as connection:
                before = after = await _digest_there(connection, session_id)
                if before is None:
                    if await listing.was_deleted(connection, session_id):
                        raise Refused(_DELETED_THERE)
                    fence = await log.store(connection, info, path)
                    summed = (await in_thread(summary.sum_up, path))._replace(n=0)
                    await summary.put(connection, {path.stem: (fence, summed)})
                    after = await _digest_there(connection, session_id)
        return _compared(here, before, after)

    async def _bury(self, info: SessionInfo) -> Result:
        async with self._database.connection() as connection:
            added = await listing.bury(connection, info)
        return Result.COPIED if added else Result.SAME


class IntoFolder:
    """Copies a database into a data folder, which may be a new one."""

    def __init__(self, database: Database, home: Path) -> None:
        """`home`: the data folder. Nothing is read or written before `run`."""
        self._database = database
        self._journal = Journal(home)

    async def run(self, told: Told) -> None:
        """Copy as `IntoDatabase.run` does, the other way; raises what that raises."""
        async with self._database.connection() as connection:
            alive = await listing.alive(connection)
            deleted = await listing.deleted(connection)
        try:
            await self._journal.prepare()
            told.begin(len(alive) + len(deleted))
            for session_id in alive:
                told.report(await _reported(session_id, self._copy(session_id)))
            for info in deleted:
                told.report(await _buried(info, self._bury(info)))
        finally:
            await self._journal.close()

    async def _copy(self, session_id: str) -> Result:
        path = self._journal.path(session_id)
        async with _locked(self._journal, session_id):
            is_there = await in_thread(read_info, path) is not None
            here = await in_thread(digest, path) if is_there else None
            async with self._database.connection(ALL) as connection:
                if (machine := await listing.holder(connection, session_id)) is not None:
                    raise Refused(f"a bridge on {machine} has it")
                there = await _digest_there(connection, session_id)
                if there is None:
                    raise UnknownSession("it was deleted meanwhile")
                if here is None:
                    if (await self._journal.known(session_id))[1]:
                        raise Refused(_DELETED_THERE)
                    await log.fetch(connection, session_id, path, copy=False)
            info, after = here if here is not None else await in_thread(digest, path)
            result = _compared(there, None if here is None else here[1], after)
            await self._journal.index.put(info, durable=True)
        return result

    async def _bury(self, info: SessionInfo) -> Result:
        added = await self._journal.index.bury(info)
        return Result.COPIED if added else Result.SAME


async def _digest_there(connection: log.Connection, session_id: str) -> str | None:
    """Fetch a session from the database into a temporary file; return the file's checksum.

    None if the database does not have the session.
    """
    with journal_errors(), TemporaryDirectory() as folder:
        path = Journal(Path(folder)).path(session_id)
        try:
            await log.fetch(connection, session_id, path, copy=False)
        except UnknownSession:
            return None
        return (await in_thread(digest, path))[1]


async def _reported(session_id: str, copy: Coroutine[None, None, Result]) -> Report:
    """Await `copy`, the copy of one session, and return the report on it.

    Raises DatabaseAway, DatabaseRefuses.
    """
    try:
        return Report(session_id, await copy)
    except (DatabaseAway, DatabaseRefuses):
        raise
    except SessionExists:
        return Report(session_id, Result.REFUSED, _DIFFERS)
    except (Refused, JournalError) as error:
        return Report(session_id, Result.REFUSED, str(error))


async def _buried(info: SessionInfo, bury: Coroutine[None, None, Result]) -> Report:
    """Await `bury`, which notes a deleted session in the target, and return the report on it.

    Raises DatabaseAway, DatabaseRefuses.
    """
    try:
        return Report(info.session_id, await bury, deleted=True)
    except (DatabaseAway, DatabaseRefuses):
        raise
    except SessionExists:
        if not info.prompted:  # it was set aside, and has been made anew there
            return Report(info.session_id, Result.SAME, deleted=True)
        return Report(info.session_id, Result.REFUSED, _ONLY_DELETED_HERE, deleted=True)
    except JournalError as error:
        return Report(info.session_id, Result.REFUSED, str(error), deleted=True)


def _compared(source: str, before: str | None, after: str | None) -> Result:
    """Return the result of a session's copy, from checksums; raises Refused if they differ.

    `source`: of the source; `before` and `after`: of the target before the copy, None if it lacked
    the session, and after it.
    """
    if before is not None and before != source:
        raise Refused(_DIFFERS)
    if after != source:
        raise Refused(_CHANGED)
    return Result.COPIED if before is None else Result.SAME


@asynccontextmanager
async def _locked(journal: Journal, session_id: str) -> AsyncIterator[None]:
    """Hold the session's lock for the block, so that no bridge of this machine opens the session.

    Raises Refused if a bridge has it open.
    """
    with journal_errors():
        try:
            lock = await lease.acquire(journal.lock_path(session_id), 0)
        except lease.Busy:
            raise Refused(_BUSY) from None
    try:
        yield
    finally:
        _release(journal, session_id, lock)


def _release(journal: Journal, session_id: str, lock: int) -> None:
    """Release the session's lock; if the session has no file, remove the lock file too."""
    if not journal.path(session_id).exists():
        journal.lock_path(session_id).unlink(missing_ok=True)
    os.close(lock)


# -- a data folder ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a data folder, for a copy."""

    ids: list[str]
    #: why a session, or a file, can't be copied, by the id or name of it.
    broken: dict[str, str]
    deleted: list[SessionInfo]


def sessions_of(home: Path) -> Sessions:
    """Return the sessions of a data folder, in which nothing is changed. Raises JournalError."""
    journal = Journal(home)
    broken: dict[str, str] = {}
    try:
        listed_rows, deleted = index_rows(home)
    except JournalError as error:
        listed_rows, deleted = [], []
        broken["index.db"] = f"{error}: what was deleted is not known"
    listed = {journal.path(info.session_id): info.session_id for info in listed_rows}
    with journal_errors():
        paths = sorted((home / "sessions").glob("*.db"))
    ids = []
    for path in paths:
        try:
            info = read_info(path, read_only=True)
        except JournalError as error:
            broken[listed.get(path, path.stem)] = str(error)
            continue
        if info is None:
            continue
        if journal.path(info.session_id) == path:
            ids.append(info.session_id)
        else:
            broken[path.stem] = "its file has the name of another session's"
    for path in listed.keys() - set(paths):
        broken[listed[path]] = str(UnknownSession())
    return Sessions(ids, broken, deleted)
