"""Searches what was said in sessions, for a terminal: says how far it is, and shows the places."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from acp_bridge.core.journal import Journal, SessionInfo
from acp_bridge.core.journal.search import search
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.printing import say_on_stderr
from acp_bridge.terminal.shared.table import cut

#: seconds before it is said how far the search is, and from one line of that to the next.
_QUIET: Final = 1.0
_INDENT: Final = "    "


def places(home: Path, sessions: Sequence[SessionInfo], text: str) -> dict[str, str]:
    """Return the ids of the sessions in which a text was said, each with a place where it was.

    See `search`. Raises JournalError.
    """
    journal = Journal(home)
    paths = {info.session_id: journal.path(info.session_id) for info in sessions}
    progress = Progress("sessions: reading what was said")
    try:
        return search(home, paths, text, progress.tell)
    finally:
        progress.end()


def with_places(
    table: str, sessions: Sequence[SessionInfo], said: Mapping[str, str], columns: int | None
) -> str:
    """Return a table of sessions with a line for the place in `said` below each that has one."""
    head, *rows = table.splitlines(keepends=True)
    lines = [head]
    for row, info in zip(rows, sessions, strict=False):
        lines.append(row)
        if place := said.get(info.session_id):
            line = _INDENT + one_line(place)
            lines.append((line if columns is None else cut(line, columns)) + "\n")
    return "".join(lines)


class Progress:
    """Says on stderr how many sessions have been read, where that takes long.

    On a terminal one line is written again and again; elsewhere one line is written once.
    """

    def __init__(self, what: str) -> None:
        """`what`: what is done with them, behind the name of the program."""
        self._what = what
        self._next = time.monotonic() + _QUIET
        self._told = False
        self._on_terminal = sys.stderr is not None and sys.stderr.isatty()

    def tell(self, done: int, of: int) -> None:
        """Say that `done` of `of` sessions have been read, unless that was said just now."""
        if time.monotonic() < self._next or (self._told and not self._on_terminal):
            return
        line = f"acp-bridge {self._what}, {done:,} of {of:,} sessions"
        say_on_stderr(f"\r{line}" if self._on_terminal else f"{line}\n")
        self._next, self._told = time.monotonic() + _QUIET, True

    def end(self) -> None:
        """Erase the line from a terminal."""
        if self._told and self._on_terminal:
            say_on_stderr("\r\x1b[K")
