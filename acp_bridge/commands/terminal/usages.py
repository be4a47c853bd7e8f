"""Reads figures of usage from sessions' files, and keeps them: no unchanged file is opened again.

Invariants
- The kept figures are a copy. If their file is missing or damaged, the sessions' files are read.
- Figures count for the file of a session with the same stamp only.
- The figures of a deleted session leave the file with the session's copy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.journal import Journal
from acp_bridge.journal.files import sure_stamp
from acp_bridge.journal.index import locked
from acp_bridge.journal.reading import turns_and_usage
from acp_bridge.journal.schema import make_file
from acp_bridge.journal.turns import TurnRow
from acp_bridge.protocol import Json, as_object

#: the first line of the file. Another version of this module may write other lines.
_VERSION: Final = "usages 1"


class Used(NamedTuple):
    """What a session's file has of usage, before it is counted."""

    #: number, beginning (UTC as ISO 8601, None if not kept) and the agent's `usage` of each turn.
    turns: list[tuple[int, str | None, Json]]
    #: the number of a turn, 0 outside of any, and what its agent told. They are in order of time.
    told: list[tuple[int, Json]]


def used(home: Path, session_id: str) -> Used:
    """Read what a session's file has of usage. Raises JournalError."""
    rows, told = turns_and_usage(home, session_id)
    return Used([(row.prompt.seq, row.began, usage(row)) for row in rows], told)


def usage(row: TurnRow) -> Json:
    """Return the `usage` in the agent's answer to the prompt of a turn; {} if it has none."""
    return as_object(as_object(row.prompt.agent_outcome).get("usage"))


class Usages:
    """What sessions' files have of usage, each with the stamp of its file."""

    def __init__(self, home: Path, file: Path | None) -> None:
        """`home`: the folder with the sessions. `file`: keeps the figures; None: none is kept."""
        self._home = home
        self._journal = Journal(home)
        self._file = file
        self._known = {} if file is None else _read(file)
        self._changed = False

    def of(self, session_id: str) -> Used:
        """Return what a session's file has. Raises JournalError."""
        if self._file is None:
            return used(self._home, session_id)
        path = self._journal.path(session_id)
        stamp = sure_stamp(path)
        known, found = self._known.get(path.stem, (None, None))
        if stamp and stamp == known and found:
            return found
        found = used(self._home, session_id)
        if stamp:
            self._known[path.stem] = stamp, found
            self._changed = True
        return found

    def keep(self) -> None:
        """Write the file if there is something new. If that fails, the next command reads again."""
        if self._file is None or not self._changed:
            return
        with suppress(OSError), locked(self._file, 0):
            there = {name.removesuffix(".db") for name in os.listdir(self._home / "sessions")}
            _write(self._file, {name: self._known[name] for name in self._known.keys() & there})


def forget(file: Path, names: Collection[str]) -> None:
    """Take sessions, by their files' names, out of the kept figures. Raises OSError."""
    if names and file.exists():
        with locked(file):
            known = _read(file)
            _write(file, {name: known[name] for name in known.keys() - set(names)})


def _read(file: Path) -> dict[str, tuple[str, Used]]:
    """Return stamp and figures of each session that a file has. Damaged lines are left out."""
    try:
        version, *lines = file.read_text().splitlines()
    except (OSError, ValueError):
        return {}
    found = {}
    for line in lines if version == _VERSION else ():
        with suppress(ValueError, TypeError, RecursionError):
            name, stamp, turns, told = json.loads(line)
            found[name] = stamp, Used(turns, told)
    return found


def _write(file: Path, known: dict[str, tuple[str, Used]]) -> None:
    lines = [_VERSION]
    for name, (stamp, each) in sorted(known.items()):
        with suppress(ValueError, RecursionError):  # JSON can't have such a number, or is too deep
            lines.append(json.dumps([name, stamp, *each], allow_nan=False))
    draft = file.with_suffix(".new")
    draft.unlink(missing_ok=True)
    make_file(draft)
    draft.write_text("".join(f"{line}\n" for line in lines))
    draft.replace(file)
