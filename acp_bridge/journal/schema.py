"""The tables of a session's file and of the index; opens files and brings them up to date.

Invariants
- A file's version is its `user_version`: the number of scripts that were applied to it. A script
  and the new version are one transaction; scripts are only ever added at the end.
- A file of a newer version is refused and left as it is.
- No connection checkpoints by itself, because that is slow: worker threads do it.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from acp_bridge.journal.errors import JournalError, NewerVersion

SESSION_SCRIPTS: Final = (
    """
    CREATE TABLE session(
        id INTEGER PRIMARY KEY CHECK (id = 1),
        session_id TEXT NOT NULL,
        cwd TEXT NOT NULL,
        additional_directories TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_session_id TEXT,
        title TEXT,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        merged_to INTEGER NOT NULL DEFAULT 0,
        touched INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE prompts(
        seq INTEGER PRIMARY KEY,
        prompt_id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'held', 'sent', 'done')),
        accepted_at TEXT NOT NULL,
        ended_at TEXT,
        outcome TEXT,
        agent_outcome TEXT
    );
    CREATE TABLE prompt_params(seq INTEGER PRIMARY KEY, params TEXT NOT NULL);
    CREATE TABLE updates(id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, lines BLOB NOT NULL);
    CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE used_ids(id BLOB PRIMARY KEY) WITHOUT ROWID;
    """,
    """
    CREATE TABLE session_2(
        id INTEGER PRIMARY KEY CHECK (id = 1),
        session_id TEXT NOT NULL,
        cwd TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_session_id TEXT,
        title TEXT,
        updated_at TEXT NOT NULL,
        merged_to INTEGER NOT NULL DEFAULT 0
    );
    INSERT INTO session_2
        SELECT id, session_id, cwd, agent, agent_session_id, title, updated_at, merged_to
        FROM session;
    DROP TABLE session;
    ALTER TABLE session_2 RENAME TO session;
    CREATE TABLE prompts_2(
        seq INTEGER PRIMARY KEY,
        prompt_id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'held', 'sent', 'done')),
        outcome TEXT,
        agent_outcome TEXT
    );
    INSERT INTO prompts_2 SELECT seq, prompt_id, state, outcome, agent_outcome FROM prompts;
    DROP TABLE prompts;
    ALTER TABLE prompts_2 RENAME TO prompts;
    """,
    """
    ALTER TABLE session ADD COLUMN agent_info TEXT;
    ALTER TABLE session ADD COLUMN prompted INTEGER NOT NULL DEFAULT 1;
    UPDATE session SET prompted = session_id IS agent_session_id OR EXISTS (SELECT 1 FROM prompts);
    """,
)
"""The second script drops columns that nothing reads (not by DROP COLUMN, which is of SQLite 3.35).
Since the third version a line of `updates` may stand for a prompt's words (`words.words_line`).

A prompt's params may be megabytes (images): apart, so that no transition writes them again.
`updates.lines` is one read of the agent's pipe: JSON objects, one a line.
`session.merged_to` is the last row of `updates` whose chunks have been merged."""

INDEX_SCRIPTS: Final = (
    """
    CREATE TABLE sessions(
        session_id TEXT PRIMARY KEY,
        cwd TEXT NOT NULL,
        title TEXT,
        updated_at TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_session_id TEXT,
        deleted INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE INDEX newest ON sessions(updated_at, session_id);
    """,
    """
    ALTER TABLE sessions ADD COLUMN agent_info TEXT;
    ALTER TABLE sessions ADD COLUMN prompted INTEGER NOT NULL DEFAULT 1;
    """,
)

PAGE_BYTES: Final = 1024
"""A commit writes whole pages into the WAL, and a row is mostly a token or two. With small pages
a commit is quicker, and the WAL of a streamed turn is a third as long as with the default, 4096."""

WAL_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""A WAL that is longer is worth a checkpoint; it is cut back to this when it starts again."""

FAILURES: Final = (sqlite3.Error, OSError, UnicodeError)
"""The errors of SQLite, of the file system, and of text that is no Unicode (lone surrogates)."""


def failure(error: Exception) -> JournalError:
    """Return the error to raise from one of FAILURES, without its text, which may hold a path."""
    return JournalError(f"the journal failed: {type(error).__name__}")


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the file is bad in one place; other errors concern the whole of it."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR)


@contextmanager
def journal_errors() -> Iterator[None]:
    """Turn every failure of SQLite or the file system into a JournalError.

    Raises:
        JournalError: with the cause chained.
    """
    try:
        yield
    except FAILURES as error:
        raise failure(error) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one transaction: all of it is committed or nothing.

    Raises:
        JournalError: rolled back; the connection stays usable.
    """
    with journal_errors():
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            raise


def make_folder(path: Path) -> None:
    """Make a folder durably, with mode 0700; one that is there already keeps its mode."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


def make_file(path: Path) -> None:
    """Make an empty file with mode 0600, which SQLite gives `-wal` and `-shm`, too.

    Never call it for a file that this process has open in SQLite: closing any descriptor of it
    would drop SQLite's POSIX locks.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def wal_of(path: Path) -> Path:
    """Return the path of the write-ahead log beside a database file."""
    return path.with_name(path.name + "-wal")


#: Flush a descriptor's data, and as much of its metadata as is needed to read them again.
sync_file = getattr(os, "fdatasync", os.fsync)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def connect(path: Path, *, wait: float) -> sqlite3.Connection:
    """Open an existing file; its statements wait up to `wait` seconds for another writer.

    A commit is a write into the WAL without fsync (`synchronous=NORMAL`).

    Raises:
        sqlite3.Error: no such file, or not one of SQLite's.
    """
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=wait,
    )
    try:
        for pragma in (
            "synchronous=NORMAL",
            "wal_autocheckpoint=0",
            f"journal_size_limit={WAL_LIMIT_BYTES}",
            "cache_size=-512",
            "secure_delete=OFF",
            "trusted_schema=OFF",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, scripts: Sequence[str]) -> None:
    """Bring a file up to the newest version, one transaction for each script.

    Raises:
        NewerVersion: the file was written by a newer acp-bridge; it is left as it is.
        sqlite3.Error: the file is damaged, or can't be written; it keeps the version it had.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(scripts):
        raise NewerVersion(
            f"written by a newer acp-bridge (version {version}, this one knows {len(scripts)})"
        )
    if version == 0:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=WAL").close()
    for number in range(version, len(scripts)):
        with transaction(connection):
            (now,) = connection.execute("PRAGMA user_version").fetchone()
            if now > number:  # another process was quicker
                continue
            for statement in _statements(scripts[number]):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={number + 1}")


def _statements(script: str) -> Iterator[str]:
    """Divide a script; `executescript` would commit the transaction around it."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement) and part.strip():
            yield statement
            statement = ""
