"""The tables of a session's file and of the index; brings their files up to date.

Invariants
- A file's version is its `user_version`. A script and the new version are one transaction; upgrades
  are only ever added at the end, and lead to the tables that a new file has.
- A file of a newer version is refused and left as it is.

The tables, and the scripts that bring older ones forward, stand here too. Scripts are only ever
added at the end.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final

from msgspec import Struct

from acp_bridge.core.journal.connection import connect, journal_errors, transaction
from acp_bridge.core.journal.errors import NewerVersion

PAGE_BYTES: Final = 1024
"""A commit writes whole pages into the WAL, and a row is mostly a token or two. With small pages
a commit is quicker, and the WAL of a streamed turn is a third as long as with the default, 4096."""


#: held while a file is copied: worker threads share its connection.
_copying: Final = Lock()


class Schema(Struct, frozen=True):
    """The tables of a new file, and the scripts that bring an older one up to it, oldest first."""

    tables: str
    upgrades: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The `user_version` of a file with these tables."""
        return 1 + len(self.upgrades)


#: A prompt's params may be megabytes (images). They are apart, so that no transition writes them
#: again. `updates.lines` is one read of the agent's pipe: JSON objects, one a line.
#: `session.merged_to` is the last row of `updates` whose chunks have been merged.
SESSION_SCHEMA: Final = Schema(
    tables="""
    CREATE TABLE session(
        id INTEGER PRIMARY KEY CHECK (id = 1),
        session_id TEXT NOT NULL,
        cwd TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_session_id TEXT,
        title TEXT,
        updated_at TEXT NOT NULL,
        merged_to INTEGER NOT NULL DEFAULT 0,
        agent_info TEXT,
        prompted INTEGER NOT NULL DEFAULT 1
    );
    CREATE TABLE prompts(
        seq INTEGER PRIMARY KEY,
        prompt_id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'held', 'sent', 'done')),
        outcome TEXT,
        agent_outcome TEXT
    );
    CREATE TABLE prompt_params(seq INTEGER PRIMARY KEY, params TEXT NOT NULL);
    CREATE TABLE updates(id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, lines BLOB NOT NULL);
    CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE used_ids(id BLOB PRIMARY KEY) WITHOUT ROWID;
    """,
    upgrades=(
        # Drops columns that nothing read. DROP COLUMN would need SQLite 3.35.
        """
        ALTER TABLE session RENAME TO session_1;
        CREATE TABLE session(
            id INTEGER PRIMARY KEY CHECK (id = 1),
            session_id TEXT NOT NULL,
            cwd TEXT NOT NULL,
            agent TEXT NOT NULL,
            agent_session_id TEXT,
            title TEXT,
            updated_at TEXT NOT NULL,
            merged_to INTEGER NOT NULL DEFAULT 0
        );
        INSERT INTO session
            SELECT id, session_id, cwd, agent, agent_session_id, title, updated_at, merged_to
            FROM session_1;
        DROP TABLE session_1;
        ALTER TABLE prompts RENAME TO prompts_1;
        CREATE TABLE prompts(
            seq INTEGER PRIMARY KEY,
            prompt_id TEXT NOT NULL UNIQUE,
            state TEXT NOT NULL CHECK (state IN ('waiting', 'held', 'sent', 'done')),
            outcome TEXT,
            agent_outcome TEXT
        );
        INSERT INTO prompts SELECT seq, prompt_id, state, outcome, agent_outcome FROM prompts_1;
        DROP TABLE prompts_1;
        """,
        # Adds who the agent says it is, and whether there ever was a prompt. Since then a line of
        # `updates` may stand for a prompt's words (`prompt_rows.words_line`).
        """
        ALTER TABLE session RENAME TO session_2;
        CREATE TABLE session(
            id INTEGER PRIMARY KEY CHECK (id = 1),
            session_id TEXT NOT NULL,
            cwd TEXT NOT NULL,
            agent TEXT NOT NULL,
            agent_session_id TEXT,
            title TEXT,
            updated_at TEXT NOT NULL,
            merged_to INTEGER NOT NULL DEFAULT 0,
            agent_info TEXT,
            prompted INTEGER NOT NULL DEFAULT 1
        );
        INSERT INTO session
            SELECT id, session_id, cwd, agent, agent_session_id, title, updated_at, merged_to,
                NULL, session_id IS agent_session_id OR EXISTS (SELECT 1 FROM prompts)
            FROM session_2;
        DROP TABLE session_2;
        """,
    ),
)

INDEX_SCHEMA: Final = Schema(
    tables="""
    CREATE TABLE sessions(
        session_id TEXT PRIMARY KEY,
        cwd TEXT NOT NULL,
        title TEXT,
        updated_at TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_session_id TEXT,
        deleted INTEGER NOT NULL DEFAULT 0,
        agent_info TEXT,
        prompted INTEGER NOT NULL DEFAULT 1
    ) WITHOUT ROWID;
    CREATE INDEX newest ON sessions(updated_at, session_id);
    CREATE TABLE reloads(
        agent TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (agent, version)
    ) WITHOUT ROWID;
    """,
    upgrades=(
        """
        ALTER TABLE sessions RENAME TO sessions_1;
        DROP INDEX newest;
        CREATE TABLE sessions(
            session_id TEXT PRIMARY KEY,
            cwd TEXT NOT NULL,
            title TEXT,
            updated_at TEXT NOT NULL,
            agent TEXT NOT NULL,
            agent_session_id TEXT,
            deleted INTEGER NOT NULL DEFAULT 0,
            agent_info TEXT,
            prompted INTEGER NOT NULL DEFAULT 1
        ) WITHOUT ROWID;
        INSERT INTO sessions(
            session_id, cwd, title, updated_at, agent, agent_session_id, deleted
        ) SELECT session_id, cwd, title, updated_at, agent, agent_session_id, deleted
            FROM sessions_1;
        DROP TABLE sessions_1;
        CREATE INDEX newest ON sessions(updated_at, session_id);
        """,
        # Adds which agents were seen to take up a session again.
        """
        CREATE TABLE reloads(
            agent TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (agent, version)
        ) WITHOUT ROWID;
        """,
    ),
)


def make_folder(path: Path) -> None:
    """Make a folder durably, with mode 0700; one that is there already keeps its mode."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_path(path.parent)


def make_file(path: Path) -> None:
    """Make an empty file with mode 0600, which SQLite gives `-wal` and `-shm`, too.

    Never call it for a file that this process has open in SQLite: closing any descriptor of it
    would drop SQLite's POSIX locks.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


#: Flush a descriptor's data, and as much of its metadata as is needed to read them again.
sync_file = getattr(os, "fdatasync", os.fsync)


def sync_path(path: Path) -> None:
    """Make a file's content, or the names in a folder, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    """Give an empty file its tables, or bring an older one up to date, a transaction each step.

    Raises:
        NewerVersion: the file was written by a newer acp-bridge; it is left as it is.
        sqlite3.Error: the file is damaged, or can't be written; it keeps the version it had.
    """
    version = known_version(connection, schema)
    if version == 0:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=WAL").close()
    while version < schema.version:
        with transaction(connection):
            version = _version(connection)  # another process may have been quicker
            if version == 0:
                _apply(connection, schema.tables, schema.version)
            elif version < schema.version:
                _apply(connection, schema.upgrades[version - 1], version + 1)
        version = _version(connection)


@contextmanager
def making(path: Path, schema: Schema) -> Iterator[sqlite3.Connection]:
    """Make a file with these tables; the block adds their first rows.

    Nobody else may know the file yet. It is not on disk afterwards, and who makes it removes half a
    file. The pages are copied, since the statements take several times as long.

    Raises:
        JournalError: the file can't be written.
    """
    with journal_errors(path):
        make_file(path)
        with closing(connect(path, wait=1)) as connection:
            for pragma in ("synchronous=OFF", "journal_mode=MEMORY"):
                connection.execute(f"PRAGMA {pragma}").close()
            with _copying:
                _filled(schema).backup(connection)
            yield connection
            connection.execute("PRAGMA journal_mode=WAL").close()


@cache
def _filled(schema: Schema) -> sqlite3.Connection:
    """Return an empty file with these tables, in memory."""
    filled = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    filled.execute(f"PRAGMA page_size={PAGE_BYTES}").close()
    _apply(filled, schema.tables, schema.version)
    return filled


def known_version(connection: sqlite3.Connection, schema: Schema) -> int:
    """Return a file's version, 0 for an empty one. Raises sqlite3.Error, NewerVersion."""
    version = _version(connection)
    if version > schema.version:
        raise NewerVersion(
            f"written by a newer acp-bridge (version {version}, this one knows {schema.version})"
        )
    return version


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _apply(connection: sqlite3.Connection, script: str, version: int) -> None:
    for statement in _statements(script):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version={version}")


def _statements(script: str) -> Iterator[str]:
    """Give the statements of a script one by one: `executescript` would commit the transaction."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement) and part.strip():
            yield statement
            statement = ""
