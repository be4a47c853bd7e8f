"""Looks at the index and the session files without changing them, to say what is wrong with them.

Nothing is made, migrated, mended or put aside, as in `journal.reading`.
"""

import os
import sqlite3
import stat
import time
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from acp_bridge.core.journal.connection import connect, wal_of
from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.files import read_info
from acp_bridge.core.journal.index import SOUND, is_damage
from acp_bridge.core.journal.schema import INDEX_SCHEMA
from acp_bridge.core.journal.store import Journal

#: the most seconds that the making of a session's file takes.
_MAKING = 60.0


class IndexState(Enum):
    """Says in which state the index of the sessions is."""

    MISSING = "missing"
    WHOLE = "whole"
    #: the next bridge puts it aside and makes another from the session files.
    DAMAGED = "damaged"
    NEWER = "newer"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Sessions:
    """What was found of the session files in a data folder."""

    count: int
    #: bytes of all of them, with their write-ahead logs.
    size: int
    #: the ids of sessions whose file can't be read, or is gone though the index has them; and the
    #: number of files that were not looked at for want of time.
    unreadable: tuple[str, ...]
    not_looked_at: int


def index_state(home: Path) -> IndexState:
    """Return the state of the index in a data folder. Never raises, whatever is wrong with it."""
    path = home.absolute() / "index.db"
    try:
        if not path.exists():
            return IndexState.MISSING
        if not path.is_file():  # a pipe would be waited for
            return IndexState.UNREADABLE
        with closing(connect(path, wait=1, read_only=True)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > INDEX_SCHEMA.version:
                return IndexState.NEWER
            (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
            (tables,) = db.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = 'sessions'"
            ).fetchone()
            whole = version > 0 and verdict == "ok" and tables
            return IndexState.WHOLE if whole else IndexState.DAMAGED
    except sqlite3.Error as error:
        return IndexState.DAMAGED if is_damage(error) else IndexState.UNREADABLE
    except OSError:
        return IndexState.UNREADABLE


def look_at_sessions(home: Path, seconds: float) -> Sessions:
    """Count the session files of a data folder, and look for unreadable ones for `seconds` seconds.

    Raises OSError.
    """
    journal = Journal(home)
    paths = _session_files(home.absolute() / "sessions")
    listed = {journal.path(each): each for each in _listed(home.absolute() / "index.db")}
    until = time.monotonic() + seconds
    size, looked_at = 0, 0
    missing = [path for path in listed.keys() - set(paths) if not path.exists()]
    unreadable = sorted(listed[path] for path in missing)
    for path in paths:
        size += _size(path) + _size(wal_of(path))
        if time.monotonic() < until:
            looked_at += 1
            if not _holds_one(path, made=path in listed):
                unreadable.append(listed.get(path, path.stem))
    return Sessions(len(paths) + len(missing), size, tuple(unreadable), len(paths) - looked_at)


def _listed(index: Path) -> set[str]:
    """Return the ids of the sessions that the index has; none if it can't be read."""
    try:
        if not index.is_file():
            return set()
        with closing(connect(index, wait=1, read_only=True)) as db:
            rows = db.execute(f"SELECT session_id FROM sessions WHERE NOT deleted AND {SOUND}")
            return {session_id for (session_id,) in rows}
    except (sqlite3.Error, OSError):
        return set()


def _holds_one(path: Path, *, made: bool) -> bool:
    """Return whether a session can be read from a file.

    A new file without a session is being made, and counts as readable unless `made`.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return False
        return read_info(path, read_only=True) is not None or (not made and _is_new(status))
    except FileNotFoundError:  # it was deleted meanwhile, or is a link to nothing
        return not path.is_symlink()
    except (JournalError, OSError):
        return False


def _is_new(status: os.stat_result) -> bool:
    return time.time() - status.st_mtime < _MAKING


def _session_files(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if name.endswith(".db")]
    except FileNotFoundError:
        return []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it was deleted meanwhile, has no log, or is a link that leads nowhere
        return 0
