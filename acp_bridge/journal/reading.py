"""Reads what is kept, beside bridges that live or have died, for commands. Nothing is changed.

Invariants
- No file is made, migrated, mended or checkpointed: what is damaged or of an earlier version is
  read as far as that goes.
- A damaged row hides no other (invariant K2); a damaged or missing index hides no session.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from acp_bridge.journal import prompt_rows
from acp_bridge.journal.connection import connect, is_damage, journal_errors
from acp_bridge.journal.errors import IndexUnusable, JournalError, UnknownSession
from acp_bridge.journal.files import read_info
from acp_bridge.journal.history import Row, snapshot
from acp_bridge.journal.index import SOUND
from acp_bridge.journal.merge import Entry, Merger
from acp_bridge.journal.prompt_rows import prompt_of, read_words
from acp_bridge.journal.records import PromptRow, PromptState, SessionInfo
from acp_bridge.journal.schema import INDEX_SCHEMA
from acp_bridge.journal.store import Journal

#: the SQL in the place of a column that an index of an earlier version lacks.
_EARLIER: Final = {"agent_info": "NULL", "prompted": "1"}


def all_sessions(home: Path) -> list[SessionInfo]:
    """Return the sessions that a listing shows, newest first; none if nothing was kept yet.

    Raises:
        IndexUnusable: why, and what to do.
    """
    index = home.absolute() / "index.db"
    try:
        found = _of_index(index) if index.is_file() else _of_files(home)
    except (sqlite3.DatabaseError, OSError) as error:
        if not isinstance(error, sqlite3.DatabaseError) or not _is_damage(error):
            raise IndexUnusable(f"the list of sessions can't be read: {error}") from error
        found = _of_files(home)
    listed = [info for each in found if (info := _up_to_date(home, each)).prompted]
    return sorted(listed, key=lambda info: (info.updated_at, info.session_id), reverse=True)


def transcript(home: Path, session_id: str) -> Iterator[dict[str, Any]]:
    """Give the recorded updates of a session, messages joined, up to the moment of the first step.

    Each is the params of `session/update` without the session's id.

    Raises:
        UnknownSession: it has no file here.
        JournalError: the file can't be read.
    """
    path = _path(home, session_id)
    for entry in _entries(snapshot(path)):
        if entry.params is None:
            continue
        if (seq := prompt_of(entry.params)) is None:
            yield entry.params
        else:
            yield from read_words(path, seq, read_only=True)


def _entries(rows: list[Row]) -> Iterator[Entry]:
    merger = Merger()
    for row in rows:
        yield from merger.feed(row.turn, row.lines)
    yield from merger.flush()


def waiting_prompts(home: Path, session_id: str) -> list[PromptRow]:
    """Return the prompts that wait or are left over, in order; raises as `transcript` does."""
    path = _path(home, session_id)
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as db:
        try:
            return prompt_rows.read(db, (PromptState.WAITING, PromptState.LEFT_OVER))
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return []


def _path(home: Path, session_id: str) -> Path:
    path = Journal(home).path(session_id)
    there = path.is_file()
    with suppress(JournalError):  # what is damaged is read as far as that goes
        there = read_info(path, read_only=True) is not None
    if not there:
        raise UnknownSession
    return path


def _of_index(path: Path) -> list[SessionInfo]:
    """Return the rows of the index that are not deleted; raises sqlite3.Error, IndexUnusable."""
    with closing(connect(path, wait=5, read_only=True)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > INDEX_SCHEMA.version:
            raise IndexUnusable(f"the list of sessions ({path.name}) is of a newer acp-bridge")
        there = {name for (name,) in db.execute("SELECT name FROM pragma_table_info('sessions')")}
        names = [field.name for field in fields(SessionInfo)]
        columns = ", ".join(name if name in there else _EARLIER.get(name, name) for name in names)
        rows = db.execute(
            f"SELECT {columns} FROM sessions WHERE NOT deleted AND {SOUND}"
        ).fetchall()
        return [SessionInfo(*row) for row in rows]


def _of_files(home: Path) -> list[SessionInfo]:
    found = []
    for path in sorted((home.absolute() / "sessions").glob("*.db")):
        with suppress(JournalError):  # it hides no other
            if info := read_info(path, read_only=True):
                found.append(info)
    return found


def _up_to_date(home: Path, info: SessionInfo) -> SessionInfo:
    """Return the session's row from its own file if that of the index may be older."""
    if not info.prompted:
        with suppress(JournalError):
            return read_info(Journal(home).path(info.session_id), read_only=True) or info
    return info


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return True if the index itself is at fault: not one, damaged, or without its table."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
