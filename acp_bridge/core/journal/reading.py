"""Reads the index and sessions' files for commands, also beside a bridge. Nothing is changed.

Invariants
- No file is made, migrated, mended or checkpointed: what is damaged or of an earlier version is
  read as far as that goes.
- A damaged row hides no other (invariant K2); a damaged or missing index hides no session.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import fields
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from acp_bridge.core.journal import prompt_rows, turns
from acp_bridge.core.journal.connection import connect, is_damage, journal_errors
from acp_bridge.core.journal.errors import IndexUnusable, JournalError, UnknownSession
from acp_bridge.core.journal.files import read_info
from acp_bridge.core.journal.history import Row, snapshot
from acp_bridge.core.journal.index import SOUND
from acp_bridge.core.journal.merge import merged
from acp_bridge.core.journal.prompt_rows import prompt_of, read_words
from acp_bridge.core.journal.records import PromptRow, PromptState, SessionInfo, file_name
from acp_bridge.core.journal.schema import INDEX_SCHEMA
from acp_bridge.core.journal.store import Journal
from acp_bridge.core.journal.turns import TurnRow, Used

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
            raise _unreadable(error) from error
        try:
            found = _of_files(home)
        except OSError as unread:
            raise _unreadable(unread) from unread
    listed = [info for each in found if (info := _up_to_date(home, each)).prompted]
    return sorted(listed, key=lambda info: (info.updated_at, info.session_id), reverse=True)


def index_rows(home: Path) -> tuple[list[SessionInfo], list[SessionInfo]]:
    """Return the index's rows of sessions, and its rows of those deleted, hidden or set aside.

    Both are empty if there is no index. Raises IndexUnusable.
    """
    index = home.absolute() / "index.db"
    if not index.is_file():
        return [], []
    try:
        return _of_index(index), _of_index(index, "deleted")
    except sqlite3.Error as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> IndexUnusable:
    return IndexUnusable(f"the list of sessions can't be read: {error}")


def transcript(home: Path, session_id: str) -> Iterator[dict[str, Any]]:
    """Give the recorded updates of a session, messages joined, up to the moment of the first step.

    Each item is the params of `session/update` without the session's id.

    Raises:
        UnknownSession: it has no file here.
        JournalError: the file can't be read.
    """
    path = _path(home, session_id)
    for _, params in _entries(snapshot(path)):
        if (seq := prompt_of(params)) is None:
            yield params
        else:
            yield from read_words(path, seq, read_only=True)


def in_turns(home: Path, session_id: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the updates as `transcript` does, but for prompts' words, each with its turn.

    The turn is the number of its prompt, 0 outside of any. Raises as `transcript` does.
    """
    for turn, params in _entries(snapshot(_path(home, session_id))):
        if prompt_of(params) is None:
            yield turn, params


def _entries(rows: list[Row]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the turn and the params of each entry of some rows, messages joined.

    Damaged lines are left out.
    """
    for turn, same in groupby(rows, key=attrgetter("turn")):
        for entry in merged((row.turn, row.lines) for row in same):
            if entry.params is not None:
                yield turn, entry.params


def unanswered_calls(home: Path, session_id: str) -> frozenset[str]:
    """Return the ids of the tool calls for which a permission was asked and not answered.

    Raises as `transcript` does.
    """
    path = _path(home, session_id)
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as db:
        return frozenset(turns.unanswered(db))


def turns_of(home: Path, session_id: str) -> list[TurnRow]:
    """Return the turns of a session, in order; raises as `transcript` does."""
    path = _path(home, session_id)
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as db:
        return turns.read(db)


def used(home: Path, session_id: str) -> Used:
    """Return what a session's file has of usage. Raises as `transcript` does."""
    path = _file_of(home, session_id)
    if not path.is_file():
        raise UnknownSession
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as db:
        with suppress(sqlite3.DatabaseError):  # what is damaged is read as far as that goes
            if not db.execute("SELECT name FROM pragma_table_info('session')").fetchone():
                raise UnknownSession
        return turns.used(db)


def _file_of(home: Path, session_id: str) -> Path:
    return home.absolute() / "sessions" / f"{file_name(session_id)}.db"


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


def _of_index(path: Path, which: str = "NOT deleted") -> list[SessionInfo]:
    """Return the rows of the index for which the SQL `which` is true.

    Raises sqlite3.Error, IndexUnusable.
    """
    with closing(connect(path, wait=5, read_only=True)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > INDEX_SCHEMA.version:
            raise IndexUnusable(f"the list of sessions ({path.name}) is of a newer acp-bridge")
        there = {name for (name,) in db.execute("SELECT name FROM pragma_table_info('sessions')")}
        names = [field.name for field in fields(SessionInfo)]
        columns = ", ".join(name if name in there else _EARLIER.get(name, name) for name in names)
        rows = db.execute(f"SELECT {columns} FROM sessions WHERE {which} AND {SOUND}").fetchall()
        return [SessionInfo(*row) for row in rows]


def _of_files(home: Path) -> list[SessionInfo]:
    """Return the row of each session from its own file; one that can't be read is left out.

    Raises OSError if the folder can't be read.
    """
    found: list[SessionInfo] = []
    folder = home.absolute() / "sessions"
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # nothing was kept yet
        return found
    for path in sorted(folder / name for name in names if name.endswith(".db")):
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
    """Return True if the index itself is at fault: no database, damaged, or without its table."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
