"""The folder of journals: one file for each session, and one small index for the listing.

Invariants
- A session's file decides; the index is a copy of what a listing needs, and opening a session
  corrects its row. Bridges share nothing but the index: streaming in one never delays another.
- The index is used in worker threads only.
- Folders are made with mode 0700, files with 0600.
"""

import hashlib
import logging
import re
from collections import defaultdict
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.journal.errors import JournalError, UnknownSession
from acp_bridge.journal.file import SessionFile, begin_wal
from acp_bridge.journal.index import Index
from acp_bridge.journal.records import UNSET, SessionInfo, SessionRow, Unset, now
from acp_bridge.journal.schema import (
    SESSION_SCHEMA,
    connect,
    journal_errors,
    make_file,
    make_folder,
    migrate,
    sync_folder,
    wal_of,
)
from acp_bridge.journal.session import SessionJournal
from acp_bridge.journal.threads import in_thread

_OWN_ID: Final = re.compile(r"[0-9a-f]{32}")
_INFO: Final = tuple(field.name for field in fields(SessionInfo))


logger = logging.getLogger(__name__)


def file_name(session_id: str) -> str:
    """Return a safe file name for any session id; the bridge's own ids are used as they are."""
    if _OWN_ID.fullmatch(session_id):
        return session_id
    return "x" + hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class Journal:
    """All sessions under one home folder. The folder is not touched before the first call."""

    def __init__(self, home: Path) -> None:
        """`home` is made when it is needed."""
        self._home = home.absolute()
        self._index = Index(self._home / "index.db")
        self._open: dict[str, SessionJournal] = {}
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    def path(self, session_id: str) -> Path:
        """Return the path of a session's file."""
        return self._home / "sessions" / f"{file_name(session_id)}.db"

    def lock_path(self, session_id: str) -> Path:
        """Return the file to lock before a session is created, opened or deleted (invariant K3)."""
        return self.path(session_id).with_suffix(".lock")

    async def prepare(self) -> None:
        """Make the folders before there is a session, for its lock file. Raises JournalError."""
        await in_thread(_make_folders, self._home)

    async def create(
        self,
        session_id: str,
        *,
        cwd: str,
        agent: str,
        agent_session_id: str | None = None,
    ) -> SessionJournal:
        """Make a new session; it is on disk and in the listing when this returns.

        Raises:
            JournalError: it exists already, or can't be written.
        """
        info = SessionInfo(session_id, cwd, agent, agent_session_id, title=None, updated_at=now())
        path = self.path(session_id)
        async with self._locks[session_id]:
            if self._live(session_id) is not None:
                raise JournalError("the session exists already")
            file = await in_thread(_create_file, path, info)
            try:
                await self._index.put(info, durable=True)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await file.close()
                    await in_thread(_remove_files, path)
                raise
            return self._opened(file, info)

    async def open(self, session_id: str) -> SessionJournal:
        """Return the journal of a session; one that is open already is returned again.

        Raises:
            UnknownSession: there is none of this id.
            JournalError: it can't be read, or was written by a newer acp-bridge.
        """
        async with self._locks[session_id]:
            if (session := self._live(session_id)) is not None:
                return session
            file, info = await in_thread(_open_file, self.path(session_id), session_id)
            session = self._opened(file, info)
            try:
                await self._index.put(info)
            except JournalError:
                logger.exception("journal: the listing can't be written")
            except BaseException:
                await session.close()
                raise
            return session

    async def list(
        self,
        *,
        cwd: str | None = None,
        agent: str | None = None,
        cursor: str | None = None,
    ) -> tuple[list[SessionRow], str | None]:
        """Return a page of sessions, newest first, and the cursor of the next one, if any.

        Raises:
            BadCursor: the cursor is not one of ours.
            JournalError: the index can't be read.
        """
        return await self._index.page(cwd, agent, cursor)

    async def known_agent_ids(self, agent: str) -> dict[str, str]:
        """Return the agent's session ids and for each the bridge's. Raises JournalError."""
        return await self._index.agent_ids(agent)

    async def touch(
        self,
        session_id: str,
        *,
        title: str | Unset | None = UNSET,
        cwd: str | Unset = UNSET,
        agent_session_id: str | Unset | None = UNSET,
    ) -> None:
        """Change what is known of an open session, in its file at once, then in the listing.

        It becomes the newest of the listing. Raises JournalError; UnknownSession if the session
        is not open here.
        """
        session = self._live(session_id)
        if session is None:
            raise UnknownSession("the session is not open")
        given = {"title": title, "cwd": cwd, "agent_session_id": agent_session_id}
        changes = {key: value for key, value in given.items() if not isinstance(value, Unset)}
        session.change_info(**changes, updated_at=now())
        await self._index.put(session.info)

    async def delete(self, session_id: str, *, known: bool) -> None:
        """Delete a session; an unknown one is no error. Raises JournalError.

        `known`: remember that the agent's session was ours. The caller holds the session's lock
        (`lock_path`), so no other bridge has it open.
        """
        async with self._locks[session_id]:
            if (session := self._open.pop(session_id, None)) is not None:
                await session.close()
            await self._index.remove(session_id, known=known)
            await in_thread(_remove_files, self.path(session_id))

    async def close(self) -> None:
        """Close everything. Never raises."""
        with anyio.CancelScope(shield=True):
            for session in [*self._open.values()]:
                await session.close()
            await self._index.close()

    def _opened(self, file: SessionFile, info: SessionInfo) -> SessionJournal:
        session = self._open[info.session_id] = SessionJournal(file, info)
        return session

    def _live(self, session_id: str) -> SessionJournal | None:
        session = self._open.get(session_id)
        return None if session is None or session.closed else session


def _make_folders(home: Path) -> None:
    with journal_errors():
        make_folder(home)
        make_folder(home / "sessions")


def _create_file(path: Path, info: SessionInfo) -> SessionFile:
    _make_folders(path.parent.parent)
    with journal_errors():
        make_file(path)
        connection = connect(path, wait=1)
        try:
            migrate(connection, SESSION_SCHEMA)
            created = connection.execute(
                f"INSERT INTO session(id, {', '.join(_INFO)})"
                f" VALUES (1, {', '.join(f':{name}' for name in _INFO)}) ON CONFLICT DO NOTHING",
                asdict(info),
            )
            if created.rowcount == 0:
                raise JournalError("the session exists already")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
            begin_wal(connection)
            sync_folder(path.parent)
            return SessionFile(path, connection)
        except BaseException:
            connection.close()
            raise


def _open_file(path: Path, session_id: str) -> tuple[SessionFile, SessionInfo]:
    if not path.is_file():
        raise UnknownSession("no such session")
    with journal_errors():
        connection = connect(path, wait=1)
        try:
            migrate(connection, SESSION_SCHEMA)
            row = connection.execute(f"SELECT {', '.join(_INFO)} FROM session").fetchone()
            if row is None or row[0] != session_id:
                raise UnknownSession("no such session")
            begin_wal(connection)
            return SessionFile(path, connection), SessionInfo(*row)
        except BaseException:
            connection.close()
            raise


def _remove_files(path: Path) -> None:
    """Remove the WAL before its file, as it would otherwise be played into a later file."""
    with journal_errors():
        shm = path.with_name(path.name + "-shm")
        for each in (wal_of(path), path, shm, path.with_suffix(".lock")):
            each.unlink(missing_ok=True)
