"""How the journal uses SQLite: connections, transactions, errors, and worker threads of its own.

- No connection checkpoints by itself, because that is slow: worker threads do it.
- The threads have a limiter of their own: anyio's default one is shared, and a few dozen threads
  that wait for processes to end would keep a prompt from being accepted.
- Every failure of SQLite, the file system or the threads becomes a JournalError.
"""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from acp_bridge.core.journal.errors import GONE, WAL_GONE, DiskTrouble, JournalError
from acp_bridge.core.runtime import threads

WAL_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""A WAL that is longer is worth a checkpoint; it is cut back to this when it starts again."""

FAILURES: Final = (sqlite3.Error, OSError, UnicodeError)
"""The errors of SQLite, of the file system, and of text that is no Unicode (lone surrogates)."""

THREADS: Final = 8
_PRAGMAS: Final = ("cache_size=-512", "trusted_schema=OFF")
_TO_WRITE: Final = (
    "synchronous=NORMAL",
    "wal_autocheckpoint=0",
    f"journal_size_limit={WAL_LIMIT_BYTES}",
    "secure_delete=OFF",
)

_limiter: RunVar[CapacityLimiter] = RunVar("_limiter")
T = TypeVar("T")
Args = TypeVarTuple("Args")


#: what a person is told of an error of SQLite, and of one of the file system, by its code.
_OF_SQLITE: Final = {
    sqlite3.SQLITE_CORRUPT: "its file is damaged",
    sqlite3.SQLITE_NOTADB: "its file is damaged",
    sqlite3.SQLITE_READONLY: "its file can't be written",
    sqlite3.SQLITE_CANTOPEN: "its file can't be opened",
    sqlite3.SQLITE_BUSY: "its file is in use",
}
_OF_SYSTEM: Final = {
    errno.EROFS: "its file can't be written",
    errno.EACCES: "its file can't be opened",
}


def failure(error: Exception, path: Path | None = None) -> JournalError:
    """Return the JournalError to raise for one of FAILURES.

    It leaves out the text of `error`, which may hold a path. `path`: the file that was worked on,
    whose folder is named if its disk is full or fails.
    """
    if (trouble := _of_disk(error)) is not None:
        return DiskTrouble(f"the journal failed: {_place(trouble, path or _named(error))}")
    if isinstance(error, FileNotFoundError):
        return JournalError(WAL_GONE if str(error.filename).endswith("-wal") else GONE)
    why = None
    if isinstance(error, sqlite3.Error):
        why = _OF_SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    elif isinstance(error, OSError) and error.errno is not None:
        why = _OF_SYSTEM.get(error.errno)
    return JournalError(f"the journal failed: {why or type(error).__name__}")


def _of_disk(error: Exception) -> str | None:
    """Return what is wrong with the disk, "full" or "failing"; None if it is something else."""
    match error:
        case sqlite3.Error():
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            return {sqlite3.SQLITE_FULL: "full", sqlite3.SQLITE_IOERR: "failing"}.get(code)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG):
            return "full"
        case OSError(errno=errno.EIO):
            return "failing"
    return None


def _named(error: Exception) -> Path | None:
    name = error.filename if isinstance(error, OSError) else None
    return Path(name) if isinstance(name, str) else None


def _place(trouble: str, path: Path | None) -> str:
    """Return the words about a disk that is full or fails: the folder of `path`, and the disk."""
    what = "the disk is full" if trouble == "full" else "the disk fails"
    do = ". Free some space" if trouble == "full" else ""
    if path is None:
        return f"{what}{do}"
    folder = path.parent
    with suppress(OSError):
        disk = os.path.realpath(folder)
        while not os.path.ismount(disk):
            disk = os.path.dirname(disk)
        return f"{what}: {folder} can't be written, on the disk at {disk}{do}"
    return f"{what}: {folder} can't be written{do}"


def _file_of(connection: sqlite3.Connection) -> Path | None:
    """Return the file of a connection; None if that can't be told."""
    with suppress(sqlite3.Error):
        for _, name, file in connection.execute("PRAGMA database_list"):
            if name == "main" and file:
                return Path(file)
    return None


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether an error says that a file is damaged in one place, and not as a whole."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR)


@contextmanager
def journal_errors(path: Path | None = None) -> Iterator[None]:
    """Turn every failure of SQLite or the file system into a JournalError.

    `path`: the file that is worked on.

    Raises:
        JournalError: with the cause chained.
    """
    try:
        yield
    except FAILURES as error:
        raise failure(error, path) from error


def check_whole(connection: sqlite3.Connection) -> None:
    """Check all of a database file for damage. Raises JournalError if there is some.

    Raises sqlite3.Error if it can't be read.
    """
    if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise JournalError(f"the journal failed: {_OF_SQLITE[sqlite3.SQLITE_CORRUPT]}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one transaction: all of it is committed or nothing.

    Raises:
        JournalError: a statement failed, and all is rolled back; the connection stays usable.
    """
    try:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
    except FAILURES as error:
        path = _file_of(connection) if _of_disk(error) else None
        raise failure(error, path) from error


def wal_of(path: Path) -> Path:
    """Return the path of the write-ahead log beside a database file."""
    return path.with_name(path.name + "-wal")


def connect(path: Path, *, wait: float, read_only: bool = False) -> sqlite3.Connection:
    """Open an existing file; its statements wait up to `wait` seconds for another writer.

    A commit is a write into the WAL without fsync (`synchronous=NORMAL`). If `read_only`, nothing
    of the file or its WAL is changed, also at the close, and no file is left beside a clean one.

    Raises:
        sqlite3.Error: no such file, or not one of SQLite's.
    """
    connection = sqlite3.connect(
        f"{path.as_uri()}?{_how_to_read(path) if read_only else 'mode=rw'}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=wait,
    )
    try:
        for pragma in (*_PRAGMAS, *(() if read_only else _TO_WRITE)):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


def _how_to_read(path: Path) -> str:
    """Return the parameters of the URI that opens a file for reading only.

    Where there is no WAL, nobody has the file open.
    """
    return "mode=ro" if wal_of(path).exists() else "mode=ro&immutable=1"


async def in_thread(function: Callable[[*Args], T], *args: *Args) -> T:
    """Run `function` in a worker thread and return its result.

    A cancelled caller waits for its end, too. Raises JournalError if the system has no room for a
    thread.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(THREADS)
        _limiter.set(limiter)
    try:
        return await threads.in_thread(function, *args, limiter=limiter)
    except threads.NoThread as error:
        raise JournalError(str(error)) from error
