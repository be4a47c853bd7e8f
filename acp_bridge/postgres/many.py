"""Fetches many sessions of the database at once, for commands that only read them.

Invariants
- Some hundred sessions are one statement, so all that is fetched of a session is of one moment.
- A session that can't be fetched hinders no other, and leaves no file.
- A session that is too long to be held in memory is left to `log.fetch`.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from acp_bridge.core.journal.connection import in_thread, journal_errors
from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.files import draft_of, remove
from acp_bridge.core.journal.records import file_name
from acp_bridge.core.journal.schema import make_file
from acp_bridge.core.runtime.log import event
from acp_bridge.postgres import log, whole
from acp_bridge.postgres.log import Connection, Row

#: the most sessions in one statement.
_AT_ONCE: Final = 250
#: the most bytes of one session, and the most of all whose files are made together.
_LONG: Final = 8 * 1024 * 1024
_TOGETHER: Final = 2 * 1024 * 1024
#: how far in the past a file that was made has been changed last, as its time says.
_PAST_NS: Final = 5_000_000_000
#: rows of four kinds, those of one session together: its head, its base, its long writes, and its
#: short writes, up to a hundred in a row: each row takes time here.
_ROWS: Final = """
COPY (
  WITH behind AS (
    SELECT name, n, statements, turn, lines,
      octet_length(statements) + coalesce(octet_length(lines), 0) < 2000 AS short
    FROM acp_bridge.writes JOIN acp_bridge.sessions USING (name)
    WHERE name = ANY(%(names)s) AND n > base
  )
  SELECT name, 0, applied, session_id, fence, int8send(base),
    NULL::bigint[], NULL::text[], NULL::bigint[], NULL::bytea[]
  FROM acp_bridge.sessions WHERE name = ANY(%(names)s) AND NOT deleted
  UNION ALL
  SELECT name, 1, part, NULL, 0, data, NULL, NULL, NULL, NULL
  FROM acp_bridge.bases WHERE name = ANY(%(names)s)
  UNION ALL
  SELECT name, 2, n, statements, turn, lines, NULL, NULL, NULL, NULL FROM behind WHERE NOT short
  UNION ALL
  SELECT name, 3, min(n), NULL, 0, NULL,
    array_agg(n), array_agg(statements), array_agg(turn), array_agg(lines)
  FROM behind WHERE short GROUP BY name, n / 100
  ORDER BY 1, 2, 3
) TO STDOUT (FORMAT BINARY)
"""
_TYPES: Final = (
    *("text", "int4", "int8", "text", "int8", "bytea"),
    *("int8[]", "text[]", "int8[]", "bytea[]"),
)


@dataclass(slots=True)
class _Session:
    """What has been fetched of one session."""

    name: str
    session_id: str
    #: the session's fence, and the number of its last write.
    state: tuple[int, int]
    #: the number of its base's last write.
    base: int
    parts: list[tuple[int, bytes]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    size: int = 0

    def take(self, kind: int, row: Row, short: Iterable[Row]) -> None:
        """Take a part of the base, or writes: `row`, or those in `short`.

        One that is too long by now keeps none.
        """
        taken = [*short] if kind == 3 else [row]
        self.size += sum(each.size for each in taken)
        if self.size > _LONG:
            self.parts, self.rows = [], []
        elif kind == 1:
            self.parts.append((row.n, row.lines or b""))
        else:
            self.rows += taken


async def fetch(connection: Connection, paths: Mapping[str, Path]) -> dict[str, tuple[int, int]]:
    """Make the files of sessions of what the database has.

    `paths`: the file of each, by the session's id. Returns fence and last write of each session
    that was fetched, by its id; the file of any other is removed.

    Raises psycopg.Error; JournalError: a file can't be removed.
    """
    files = {file_name(session_id): path for session_id, path in paths.items()}
    names = sorted(files)
    fetched: dict[str, tuple[int, int]] = {}
    for at in range(0, len(names), _AT_ONCE):
        some = names[at : at + _AT_ONCE]
        long: list[_Session] = []
        waiting: list[_Session] = []
        async for session in _sessions(connection, some):
            (long if session.size > _LONG else waiting).append(session)
            if sum(each.size for each in waiting) > _TOGETHER:
                fetched |= await in_thread(_make_all, waiting, files)
                waiting = []
        fetched |= await in_thread(_make_all, waiting, files)
        for session in long:
            with suppress(JournalError):
                await log.fetch(connection, session.session_id, files[session.name])
                fetched[session.session_id] = session.state
    await in_thread(_remove, [path for key, path in paths.items() if key not in fetched])
    return fetched


async def _sessions(connection: Connection, names: list[str]) -> AsyncIterator[_Session]:
    session: _Session | None = None
    async with connection.cursor() as cursor, cursor.copy(_ROWS, {"names": names}) as rows:
        rows.set_types(_TYPES)
        async for name, kind, n, text, number, data, *short in rows.rows():
            if kind == 0:
                if session:
                    yield session
                session = _Session(name, text, (number, n), int.from_bytes(data))
            elif session and session.name == name:
                given = zip(*short, strict=True) if kind == 3 else ()
                session.take(kind, Row(n, text or "", number, data), (Row(*each) for each in given))
    if session:
        yield session


def _make_all(
    sessions: Iterable[_Session], files: Mapping[str, Path]
) -> dict[str, tuple[int, int]]:
    """Make the files of sessions, as far as that can be done; returns the states of these."""
    made = {}
    for session in sessions:
        path = files[session.name]
        draft = draft_of(path)
        try:
            with journal_errors():
                _make(session, draft)
                # Nobody changes it in its place, so its stamp is sure at once (`search`).
                os.utime(draft, ns=(time.time_ns(), time.time_ns() - _PAST_NS))
                remove(path)
                draft.rename(path)
        except JournalError as error:
            event("journal.failed", session=session.session_id, what=error)
            with suppress(OSError):
                remove(draft)
        else:
            made[session.session_id] = session.state
    return made


def _make(session: _Session, draft: Path) -> None:
    """Make a session's file; only its place in a power cut is not certain. Raises as `log` does."""
    remove(draft)
    make_file(draft)
    draft.write_bytes(whole.joined(session.parts))
    whole.check_base(draft)
    rows = sorted(session.rows, key=lambda row: row.n)
    with closing(log._opened(draft, session.session_id, "MEMORY")) as copy:
        last = whole.follow((row.n for row in rows), session.base)
        if rows:
            log._make(copy, rows)
        whole.check_last(last, session.state[1])


def _remove(paths: Iterable[Path]) -> None:
    with journal_errors():
        for path in paths:
            remove(path)
