"""Makes, opens and removes the file of a session; everything here runs in worker threads."""

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, fields
from pathlib import Path
from time import time, time_ns
from typing import Final, TypeAlias

from acp_bridge.core.journal import left_queue
from acp_bridge.core.journal.connection import connect, journal_errors, wal_of
from acp_bridge.core.journal.errors import JournalError, SessionExists, UnknownSession
from acp_bridge.core.journal.file import SessionFile, begin_wal
from acp_bridge.core.journal.records import SessionInfo
from acp_bridge.core.journal.schema import (
    SESSION_SCHEMA,
    make_folder,
    making,
    migrate,
    sync_path,
)

#: the SQL in the place of a column that files of earlier versions lack.
_EARLIER: Final = {"agent_info": "NULL", "prompted": "EXISTS (SELECT 1 FROM prompts)"}
#: A file that was changed so short ago may be changed again without another stamp.
_UNSURE_NS: Final = 2_000_000_000
_INFO: Final = tuple(field.name for field in fields(SessionInfo))


def stamp_of(path: Path) -> object:
    """Return a stamp that changes whenever anybody opens a session's file for writing."""
    with journal_errors():
        return _stamp(_stats(path))


def sure_stamp(path: Path) -> str | None:
    """Return the stamp of a session's file as text; None if there is no file.

    It is empty if the file was changed so lately that another change might not change the stamp.
    Raises JournalError.
    """
    with journal_errors():
        stats = _stats(path)
    newest = max((each.st_mtime_ns for each in stats if each), default=None)
    if newest is None:
        return None
    return str(_stamp(stats)) if time_ns() - newest > _UNSURE_NS else ""


def _stats(path: Path) -> list[os.stat_result | None]:
    """Return the status of a session's file, and of its WAL; None for a file that is missing."""
    stats: list[os.stat_result | None] = []
    for each in (path, f"{path}-wal"):
        try:
            stats.append(os.stat(each))
        except (FileNotFoundError, NotADirectoryError):
            stats.append(None)
    return stats


def _stamp(stats: list[os.stat_result | None]) -> list[tuple[int, int, int] | None]:
    return [each and (each.st_mtime_ns, each.st_size, each.st_ino) for each in stats]


def make_folders(home: Path) -> None:
    """Make the data folder and the folder of all sessions in it, with mode 0700.

    Raises JournalError, also if nothing can be made in the folder of the sessions.
    """
    sessions = home / "sessions"
    with journal_errors(sessions):
        make_folder(home)
        make_folder(sessions)
        if not os.access(sessions, os.W_OK | os.X_OK):
            read_only = os.statvfs(sessions).f_flag & os.ST_RDONLY
            raise OSError(errno.EROFS if read_only else errno.EACCES, "not writable")


#: makes the object for an open file of its path and its connection; by default a SessionFile.
Make: TypeAlias = Callable[[Path, sqlite3.Connection], SessionFile]


def create_file(path: Path, info: SessionInfo, file: Make | None = None) -> SessionFile:
    """Make the file of a new session and open it with `file`; it is on disk on return.

    It is complete before it gets its name, since no connection of this process may be open to it
    while we close a descriptor of it: that drops SQLite's POSIX locks, and another process that
    looks into the file would take itself for the last one, and remove the WAL.

    Raises:
        JournalError: it is there already, or can't be written, and nothing is left of it.
    """
    there = path.exists()
    try:
        return _create(path, info, file)
    except JournalError:
        if not there:
            with suppress(JournalError):
                remove_files(path)
        raise


def make_draft(path: Path, info: SessionInfo) -> Path:
    """Make the file of a new session under the name of its draft; returns that path.

    Raises JournalError, and nothing is left of it.
    """
    make_folders(path.parent.parent)
    draft = draft_of(path)
    with journal_errors(path):
        remove(draft)
        try:
            with making(draft, SESSION_SCHEMA) as connection:
                _insert(connection, info)
        except BaseException:
            with suppress(OSError):
                remove(draft)
            raise
    return draft


def _create(path: Path, info: SessionInfo, file: Make | None) -> SessionFile:
    draft = make_draft(path, info)
    with journal_errors():
        try:
            if path.exists() and read_info(path) is not None:
                raise SessionExists
            take_name(draft, path)
        except BaseException:
            with suppress(OSError):
                remove(draft)
            raise
        connection = connect(path, wait=1)
        try:
            begin_wal(connection)
            return (file or SessionFile)(path, connection)
        except BaseException:
            connection.close()
            raise


def draft_of(path: Path) -> Path:
    """Return the path under which a session's file is made; a kill may leave it."""
    return path.with_suffix(".new")


def old_drafts(sessions: Path) -> list[Path]:
    """Return the paths of sessions' files whose making was cut off by a kill, a day ago or more.

    Raises JournalError.
    """
    found, before = [], time() - 86400
    with journal_errors():
        for draft in sessions.glob(draft_of(Path("*.db")).name):
            with suppress(FileNotFoundError):  # another bridge has removed it
                if draft.lstat().st_mtime < before:
                    found.append(draft.with_suffix(".db"))
    return found


def remove_draft(path: Path) -> None:
    """Remove the draft of a session's file whose making was cut off. Raises JournalError.

    The caller holds the session's lock, whose file goes too if there is no such session.
    """
    with journal_errors():
        remove(draft_of(path))
        if not path.exists():
            path.with_suffix(".lock").unlink(missing_ok=True)


def take_name(draft: Path, path: Path) -> None:
    """Rename `draft`, a session's file that nobody has open, to `path`; a file there is removed.

    The file is on disk on return. Raises JournalError.
    """
    with journal_errors():
        if wal_of(draft).exists():
            with closing(connect(draft, wait=1)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        sync_path(draft)
        remove(path)
        draft.rename(path)
        sync_path(path.parent)


def _insert(connection: sqlite3.Connection, info: SessionInfo) -> None:
    connection.execute(
        f"INSERT INTO session(id, {', '.join(_INFO)})"
        f" VALUES (1, {', '.join(f':{name}' for name in _INFO)})",
        asdict(info),
    )


def open_file(
    path: Path, session_id: str, file: Make | None = None
) -> tuple[SessionFile, SessionInfo]:
    """Open a session's file with `file`; returns it and the session's row.

    Raises:
        UnknownSession: it is not there, or is another session's.
        JournalError: it can't be read or written, or is of a newer version.
    """
    if not path.is_file():
        raise UnknownSession
    with journal_errors():
        connection = connect(path, wait=1)
        try:
            if not connection.execute("SELECT name FROM pragma_table_info('session')").fetchone():
                raise UnknownSession  # nothing is written into an empty file
            migrate(connection, SESSION_SCHEMA)
            row = connection.execute(f"SELECT {', '.join(_INFO)} FROM session").fetchone()
            if row is None or row[0] != session_id:
                raise UnknownSession
            begin_wal(connection)
            return (file or SessionFile)(path, connection), SessionInfo(*row)
        except BaseException:
            connection.close()
            raise


def was_prompted(path: Path) -> bool:
    """Return whether a session's file has a prompt; True if it can't be said.

    Raises:
        JournalError: the file can't be read.
    """
    if not path.is_file():
        return False
    with journal_errors(), closing(connect(path, wait=1)) as connection:
        migrate(connection, SESSION_SCHEMA)
        row = connection.execute("SELECT prompted FROM session").fetchone()
        return row is None or bool(row[0])


def read_info(path: Path, *, read_only: bool = False) -> SessionInfo | None:
    """Return the session's row from its own file, also one of an earlier version.

    None if there is no file, or no session in it yet. `read_only`: as for `connect`.

    Raises:
        JournalError: the file can't be read.
    """
    if not path.is_file():
        return None
    with journal_errors(), closing(connect(path, wait=1, read_only=read_only)) as session:
        return info_in(session)


def info_in(session: sqlite3.Connection) -> SessionInfo | None:
    """Return the row of the session in an open file; None if it has none. Raises sqlite3.Error."""
    there = {name for (name,) in session.execute("SELECT name FROM pragma_table_info('session')")}
    if not there:  # it is being made
        return None
    columns = ", ".join(name if name in there else _EARLIER.get(name, name) for name in _INFO)
    row = session.execute(f"SELECT {columns} FROM session").fetchone()
    return SessionInfo(*row) if row else None


def remove_files(path: Path) -> None:
    """Remove a session's file, its lock file and all else beside it. Raises JournalError."""
    with journal_errors():
        remove(path)
        links = (left_queue.link_of(path), left_queue.draft_of(path))
        for each in (*links, path.with_suffix(".lock")):
            each.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove a database file, its logs first: they'd be played into a later file of its name."""
    for end in ("-wal", "-journal", "", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{end}")
