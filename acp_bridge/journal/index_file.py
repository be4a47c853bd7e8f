"""Opens the file of the index, makes it from the session files, puts a damaged one aside.

Invariants
- `index.lock` is held while the file is opened, replaced or closed. SQLite finds a WAL by its name:
  the one of a file that was replaced must never meet its successor, nor be deleted in its place.
- A new file is complete before it gets its name.
- A file counts as damaged only if SQLite says so. One that is busy, unreadable or newer stays, and
  so does one on a full disk.
"""

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Final
from uuid import uuid4

from acp_bridge import waits
from acp_bridge.journal.errors import JournalError
from acp_bridge.journal.files import read_info
from acp_bridge.journal.records import SessionInfo
from acp_bridge.journal.schema import (
    connect,
    make_file,
    make_folder,
    migrate,
    sync_path,
    wal_of,
)
from acp_bridge.journal.tables import INDEX_SCHEMA

logger = logging.getLogger(__name__)
COLUMNS: Final = ", ".join(field.name for field in fields(SessionInfo))
#: seconds for another bridge to open, replace or close the index.
_LOCK_WAIT: Final = 5.0
_LOCK_INTERVAL: Final = 0.01
#: One try for a damaged file and one for the new file; a third if another bridge interferes.
_TRIES: Final = 3


class _Unfit(sqlite3.DatabaseError):
    """The file is a database, but not a whole index."""


def is_damage(error: Exception) -> bool:
    """Return whether the file itself is at fault, so that another try would fail too."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    return isinstance(error, _Unfit) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class IndexFile:
    """An open index; used in worker threads."""

    def __init__(self, path: Path) -> None:
        """Open the index; where it is missing or damaged, make a new one first.

        Raises sqlite3.Error, OSError, JournalError (a newer version).
        """
        self._path = path
        for _ in range(_TRIES):
            if not path.exists():
                _make(path)
            with _locked(path):
                if not path.exists():
                    continue  # put aside meanwhile
                try:
                    self.db = _open(path)
                except sqlite3.Error as error:
                    if not is_damage(error):
                        raise
                    _put_aside(path, error)
                else:
                    self._file = path.stat()
                    return
        raise JournalError("the index is damaged again and again")

    @property
    def replaced(self) -> bool:
        """Another file has taken its name, or none has it any more."""
        try:
            return not os.path.samestat(self._path.stat(), self._file)
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Close it. Raises sqlite3.Error."""
        with ExitStack() as lock:
            with suppress(OSError):  # then SQLite's own look, whether the file has moved, must do
                lock.enter_context(_locked(self._path, waits.INDEX_CLOSE))
            self.db.close()

    def discard(self, error: Exception) -> None:
        """Close it and put it aside, unless another bridge has. Raises sqlite3.Error, OSError."""
        with _locked(self._path):
            with suppress(sqlite3.Error):
                self.db.close()
            if not self.replaced:
                _put_aside(self._path, error)


def _open(path: Path) -> sqlite3.Connection:
    connection = connect(path, wait=5)
    try:
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            raise _Unfit("empty")
        if not _columns(connection):
            raise _Unfit("without its table")
        _bring_up_to_date(connection)
        # 10,000 sessions take 10 ms. What was damaged may be what is written next.
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _Unfit(verdict)
        if not {field.name for field in fields(SessionInfo)} <= _columns(connection):
            raise _Unfit("without its table")
        connection.execute("PRAGMA wal_autocheckpoint=1000").close()
        # A title is the beginning of a prompt: what was deleted stays in no free space.
        connection.execute("PRAGMA secure_delete=ON").close()
    except BaseException:
        connection.close()
        raise
    return connection


def wipe(connection: sqlite3.Connection) -> None:
    """Empty the WAL, which has every row as it was before; what can't be done now waits.

    While another bridge reads, or the disk is full, the end of the last bridge does it.
    """
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def _columns(connection: sqlite3.Connection) -> set[str]:
    found = connection.execute("SELECT name FROM pragma_table_info('sessions')").fetchall()
    return {name for (name,) in found}


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    try:
        migrate(connection, INDEX_SCHEMA)
    except JournalError as error:
        if isinstance(error.__cause__, sqlite3.Error):
            raise error.__cause__ from None  # it may be damage
        raise


def _put_aside(path: Path, error: Exception) -> None:
    """Rename a damaged file, so that it can be looked at. The caller holds the lock."""
    aside = path.with_name(f"{path.name}.damaged")
    logger.warning("journal: %s is damaged (%s): kept as %s", path.name, error, aside.name)
    wal_of(aside).unlink(missing_ok=True)
    _shm_of(path).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        wal_of(path).replace(wal_of(aside))
    path.replace(aside)


def _make(path: Path) -> None:
    """Make a complete index and give it its name, unless another bridge was quicker."""
    make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{uuid4().hex}")
    make_file(draft)
    try:
        with closing(connect(draft, wait=1)) as connection:
            migrate(connection, INDEX_SCHEMA)
            _fill(connection, path.with_name("sessions"))
        with _locked(path):
            if not path.exists():
                wal_of(path).unlink(missing_ok=True)  # the file was deleted by hand
                _shm_of(path).unlink(missing_ok=True)
                draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_path(path.parent)


def _fill(index: sqlite3.Connection, folder: Path) -> None:
    """Add a row for every session in the folder; one that can't be read hides no other (K2)."""
    marks = ", ".join("?" * len(fields(SessionInfo)))
    for path in sorted(folder.glob("*.db")):
        try:
            if info := read_info(path):  # else it is being made: its bridge lists it
                values = [getattr(info, field.name) for field in fields(SessionInfo)]
                index.execute(f"INSERT INTO sessions({COLUMNS}) VALUES ({marks})", values)
        except JournalError as error:
            logger.warning("journal: %s is not listed: %s", path.name, error.__cause__)
        except sqlite3.Error as error:
            logger.warning("journal: %s is not listed: %s", path.name, error)


@contextmanager
def _locked(path: Path, wait: float = _LOCK_WAIT) -> Iterator[None]:
    """Hold the lock of the index; raises BlockingIOError if another does for `wait` seconds."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOCK_INTERVAL)
        yield
    finally:
        os.close(descriptor)


def _shm_of(path: Path) -> Path:
    return path.with_name(path.name + "-shm")
