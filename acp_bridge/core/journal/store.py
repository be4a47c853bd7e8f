"""The folder of journals: one file for each session, and one small index for the listing.

Invariants
- A session's file decides; the index is a copy of what a listing needs, and opening a session
  corrects its row. Bridges share nothing but the index: streaming in one never delays another.
- The index is used in worker threads only.
- What a session's file could not take before it was closed waits for its next opening here, unless
  another bridge has had it meanwhile (invariant Q13).
- Folders are made with mode 0700, files with 0600.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.core.journal.connection import in_thread
from acp_bridge.core.journal.errors import (
    IndexUnusable,
    JournalError,
    SessionExists,
    UnknownSession,
)
from acp_bridge.core.journal.file import SessionFile, Unwritten
from acp_bridge.core.journal.files import (
    create_file,
    make_folders,
    old_drafts,
    open_file,
    read_info,
    remove_draft,
    remove_files,
    stamp_of,
    was_prompted,
)
from acp_bridge.core.journal.index import Index
from acp_bridge.core.journal.records import UNSET, Owns, SessionInfo, Unset, file_name, now
from acp_bridge.core.journal.session import SessionJournal
from acp_bridge.core.runtime.keyed_locks import KeyedLocks

logger = logging.getLogger(__name__)


#: the most sessions without a prompt, the newest, into whose files the first listing looks.
_LOOKED_AT: Final = 100


class Files:
    """Makes, opens and looks at the files of sessions for a journal.

    All methods but `index` raise JournalError.
    """

    def index(self, home: Path) -> Index:
        """Return the index of the sessions in the data folder."""
        return Index(home / "index.db")

    async def create(self, path: Path, info: SessionInfo) -> SessionFile:
        """Make and open a session's file, as `create_file` does."""
        return await in_thread(create_file, path, info)

    async def open(self, path: Path, session_id: str) -> tuple[SessionFile, SessionInfo]:
        """Open a session's file; returns it and the session's row, as `open_file` does."""
        return await in_thread(open_file, path, session_id)

    async def has(self, path: Path, session_id: str) -> bool:
        """Return whether there is a session of this id, as far as it is seen without opening it."""
        return await in_thread(path.is_file)

    async def info(self, path: Path, session_id: str) -> SessionInfo | None:
        """Return a session's row from its file; None if there is none."""
        info = await in_thread(read_info, path)
        return info if info and info.session_id == session_id else None

    async def was_prompted(self, path: Path, session_id: str) -> bool:
        """Return whether a session has had a prompt, as `files.was_prompted` does."""
        return await in_thread(was_prompted, path)

    async def take(self, session_id: str) -> None:
        """Make this bridge the only one that may delete a session: for files its lock is enough.

        The caller holds that lock on this machine.
        """


class IndexRows:
    """Brings the rows of the index up to date with the sessions' own files.

    A row that could not be written is written with the next one, before the next listing, and at
    the end. An index that can't be used hinders nobody. A session that had its first prompt is
    listed, also if the bridge was killed before the index had that: the first listing looks into
    the files of sessions that have no prompt by the index.
    """

    def __init__(self, index: Index, info: Callable[[str], Awaitable[SessionInfo | None]]) -> None:
        """`info` reads a session's row from its file; it raises JournalError."""
        self._index = index
        self._info = info
        #: the rows that the index could not take yet, by session id.
        self._unwritten: dict[str, SessionInfo] = {}
        self._looked = False

    async def put(self, info: SessionInfo, *, durable: bool = False) -> None:
        """Bring the row of a session up to date, now or when the index can be used again.

        If `durable`, a row that is written now is on the disk on return.
        """
        self._unwritten.pop(info.session_id, None)
        try:
            await self._index.put(info, durable=durable)
        except IndexUnusable as error:
            logger.warning("journal: session %s: %s", info.session_id, error)
            self._unwritten.setdefault(info.session_id, info)
        else:
            await self.catch_up()

    def forget(self, session_id: str) -> None:
        """Drop the row that waits to be written of a session that was removed."""
        self._unwritten.pop(session_id, None)

    async def catch_up(self) -> None:
        """Write the rows that the index could not take before, as far as it can now."""
        with suppress(IndexUnusable):
            while self._unwritten:
                session_id, info = next(iter(self._unwritten.items()))
                await self._index.put(info, late=True)
                if self._unwritten.get(session_id) is info:
                    del self._unwritten[session_id]

    async def look(self) -> None:
        """Write the missing rows, and those of sessions whose first prompt the index does not have.

        It is called before a listing.

        Raises IndexUnusable.
        """
        await self.catch_up()
        if not self._looked:
            for session_id in (await self._index.without_prompt())[:_LOOKED_AT]:
                with suppress(JournalError):  # no file, or one that can't be read
                    info = await self._info(session_id)
                    if info and info.prompted:
                        await self._index.put(info, late=True)
            self._looked = True


class Journal:
    """All sessions under one data folder. The folder is not touched before the first call."""

    def __init__(self, home: Path, files: Files | None = None) -> None:
        """`home` is made when it is needed. `files`: if sessions are not in that folder alone."""
        self._home = home.absolute()
        self._files = files or Files()
        #: the rows of all sessions, also of those that were removed.
        self.index = self._files.index(self._home)
        self._rows = IndexRows(self.index, self._info)
        self._open: dict[str, SessionJournal] = {}
        self._locks = KeyedLocks()
        #: by session id, the writes that a closed file lacks, and a stamp of the file at its close.
        self._unwritten: dict[str, tuple[object, Unwritten]] = {}

    def path(self, session_id: str) -> Path:
        """Return the path of a session's file."""
        return self._home / "sessions" / f"{file_name(session_id)}.db"

    def lock_path(self, session_id: str) -> Path:
        """Return the file to lock before a session is created, opened or deleted (invariant K3)."""
        return self.path(session_id).with_suffix(".lock")

    async def has(self, session_id: str) -> bool:
        """Return whether there is a session of this id. Raises JournalError."""
        return await self._files.has(self.path(session_id), session_id)

    async def _info(self, session_id: str) -> SessionInfo | None:
        return await self._files.info(self.path(session_id), session_id)

    async def prepare(self) -> None:
        """Make the folders before there is a session, for its lock file. Raises JournalError."""
        await in_thread(make_folders, self._home)

    async def create(
        self,
        session_id: str,
        *,
        cwd: str,
        agent: str,
        agent_session_id: str | None = None,
        agent_info: str | None = None,
        prompted: bool = True,
    ) -> SessionJournal:
        """Make a new session; on return it is on disk, and in the index if that can be used.

        If it is not `prompted` yet, it is listed from its first prompt on.

        Raises:
            JournalError: it exists already, or can't be written.
        """
        info = SessionInfo(
            session_id,
            cwd,
            agent,
            agent_session_id,
            title=None,
            updated_at=now(),
            agent_info=agent_info,
            prompted=prompted,
        )
        path = self.path(session_id)
        async with self._locks.hold(session_id):
            if self._live(session_id) is not None:
                raise SessionExists
            file = await self._files.create(path, info)
            try:
                await self._rows.put(info, durable=True)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await file.close()
                    await in_thread(remove_files, path)
                raise
            return self._opened(file, info)

    async def open(self, session_id: str) -> SessionJournal:
        """Return the journal of a session; one that is open already is returned again.

        Raises:
            UnknownSession: there is none of this id.
            JournalError: it can't be read, or was written by a newer acp-bridge.
        """
        async with self._locks.hold(session_id):
            if (session := self._live(session_id)) is not None:
                return session
            path = self.path(session_id)
            stamp, unwritten = self._unwritten.get(session_id, (None, None))
            same = unwritten is not None and stamp == await in_thread(stamp_of, path)
            file, info = await self._files.open(path, session_id)
            self._unwritten.pop(session_id, None)
            if unwritten is not None and same:
                file.unwritten = unwritten
            session = self._opened(file, info)
            try:
                session.catch_up()
                await session.settle_left()
                await self._rows.put(info)
            except BaseException:
                await session.close()
                raise
            return session

    async def known(self, session_id: str) -> tuple[SessionInfo | None, bool]:
        """Return a session's row, None if there is none, and True if it was deleted for good.

        Where the file is gone or can't be read, the index says it. Raises IndexUnusable.
        """
        if (session := self._live(session_id)) is not None:
            return session.info, False
        with suppress(JournalError):
            if info := await self._info(session_id):
                return info, False
        return await self.index.session(session_id)

    async def list(
        self, *, cwd: str | None = None, agent: Owns | None = None, cursor: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """Return a page of sessions, newest first, and the cursor of the next one, if any.

        Raises:
            BadCursor: the cursor is not one of ours.
            IndexUnusable: why, and what to do.
        """
        await self._rows.look()
        return await self.index.page(cwd, agent, cursor)

    async def known_agent_ids(self, agent: Owns) -> frozenset[str]:
        """Return the ids at the agent of all sessions, also of those that were deleted.

        Raises IndexUnusable.
        """
        return await self.index.agent_ids(agent)

    async def touch(
        self,
        session_id: str,
        *,
        title: str | Unset | None = UNSET,
        cwd: str | Unset = UNSET,
        agent: str | Unset = UNSET,
        agent_session_id: str | Unset | None = UNSET,
        agent_info: str | Unset | None = UNSET,
    ) -> None:
        """Change the row of an open session, in its file at once, then in the listing.

        The session becomes the newest of the listing. Raises JournalError as
        `SessionJournal.record` does; UnknownSession if the session is not open here.
        """
        session = self._live(session_id)
        if session is None:
            raise UnknownSession("the session is not open")
        given = {"title": title, "cwd": cwd, "agent": agent, "agent_info": agent_info}
        given["agent_session_id"] = agent_session_id
        changes = {key: value for key, value in given.items() if not isinstance(value, Unset)}
        session.change_info(**changes, updated_at=now())
        if not session.gone:  # the row would make a removed folder again, or be of another file
            await self._rows.put(session.info)

    async def note_agent(self, session_id: str, agent_session_id: str | None, agent: Owns) -> None:
        """Note which agent has an open session now, and under which id; raises as `touch` does.

        A session that was kept under a former name of the agent has its name from now on.
        """
        session = self._live(session_id)
        if session is None:
            raise UnknownSession("the session is not open")
        info = session.info
        says = info.agent_info or agent.info
        if (info.agent_session_id, info.agent, info.agent_info) != (
            agent_session_id,
            agent.name,
            says,
        ):
            await self.touch(
                session_id, agent_session_id=agent_session_id, agent=agent.name, agent_info=says
            )

    async def end(self, session_id: str) -> None:
        """Close a session, and remove its files if it never had a prompt. Never raises."""
        session = self._live(session_id)
        if session is None:
            return
        if not session.info.prompted and not session.gone:
            try:
                await self.set_aside(session_id)
            except JournalError as error:
                logger.warning("journal: session %s is not removed: %s", session_id, error)
        await session.close()

    async def delete(self, session_id: str, *, known: bool, agent: str | None = None) -> None:
        """Delete a session; an unknown one is no error. Raises JournalError, IndexUnusable.

        `known`: remember that the agent's session was ours, so that it is not listed as a new one;
        with `agent`, the agent's name, that is so for a session that only the agent knows, too. The
        caller holds the session's lock (`lock_path`), so no other bridge has it open.
        """
        async with self._locks.hold(session_id):
            await self._close_one(session_id)
            await self._files.take(session_id)
            await self.index.remove(session_id, known=known, agent=agent)
            await self._remove(session_id)

    # -- sessions without a prompt ---------------------------------------------------------

    async def set_aside(self, session_id: str) -> None:
        """Remove the files of a session that never had a prompt; one that had is left alone.

        The session can be made anew under its id. The caller holds its lock. Raises JournalError.
        """
        async with self._locks.hold(session_id):
            if (session := self._live(session_id)) is not None:
                prompted = session.info.prompted
            else:
                path = self.path(session_id)
                prompted = await self._files.was_prompted(path, session_id)
            if not prompted:
                await self._close_one(session_id)
                await self._files.take(session_id)
                await self.index.set_aside(session_id)
                await self._remove(session_id)

    async def old_drafts(self) -> tuple[Path, ...]:
        """Return the lock files of sessions whose making was cut off, a day ago or more.

        Raises JournalError.
        """
        found = await in_thread(old_drafts, self._home / "sessions")
        return tuple(path.with_suffix(".lock") for path in found)

    async def remove_draft(self, lock: Path) -> None:
        """Remove what is left of a session whose making was cut off; the caller holds its `lock`.

        Raises JournalError.
        """
        await in_thread(remove_draft, lock.with_suffix(".db"))

    async def _close_one(self, session_id: str) -> None:
        if (session := self._open.get(session_id)) is not None:
            await session.close()

    async def _remove(self, session_id: str) -> None:
        from acp_bridge.core.journal.search import (  # no bridge needs it at its start
            SEARCHED,
            forget,
        )

        self._rows.forget(session_id)
        await in_thread(remove_files, self.path(session_id))
        await in_thread(forget, self._home / SEARCHED, self.path(session_id))
        self._unwritten.pop(session_id, None)  # not before: what can't be removed is used again

    async def close(self) -> None:
        """Close all open sessions and the index. Never raises."""
        with anyio.CancelScope(shield=True):
            for session in [*self._open.values()]:
                await session.close()
            await self._rows.catch_up()
            await self.index.close()

    def _opened(self, file: SessionFile, info: SessionInfo) -> SessionJournal:
        session = SessionJournal(file, info, self._closed)
        self._open[info.session_id] = session
        return session

    def _closed(self, session_id: str, unwritten: Unwritten) -> None:
        self._open.pop(session_id, None)
        if unwritten:
            with suppress(JournalError):
                self._unwritten[session_id] = stamp_of(self.path(session_id)), unwritten

    def _live(self, session_id: str) -> SessionJournal | None:
        session = self._open.get(session_id)
        return None if session is None or session.closed else session
