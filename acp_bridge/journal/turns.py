"""What is kept of each turn beside its updates: when it began and ended, who ran it, its costs.

It stands among the settings of a session's file, so an older bridge on the same file leaves it
alone; turns that one ran have no times.
"""

import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from acp_bridge.journal import prompt_rows
from acp_bridge.journal.connection import is_damage
from acp_bridge.journal.records import PromptRow
from acp_bridge.protocol import as_object
from acp_bridge.wire.jsonrpc import loads

#: the beginning of the settings that have what an agent told of the usage of a turn, behind it the
#: turn's number; outside of any it is 0 with an addition.
USAGE: Final = "usage:"


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn: the prompt that began it, and its times in UTC as ISO 8601 where they are kept."""

    prompt: PromptRow
    began: str | None
    ended: str | None


def read(db: sqlite3.Connection) -> list[TurnRow]:
    """Return the turns in the order of their prompts; raises sqlite3.Error.

    A prompt that never ran, or has joined the turn of another, has none. What is damaged is left
    out (invariant K2).
    """
    times = _settings(db, "turn")
    rows = [row for (row,) in _readable(db, "SELECT DISTINCT turn FROM updates")]
    had = {seq for seq in rows if isinstance(seq, int)}
    return [
        TurnRow(prompt, start, _text(times.get(f"{prompt_rows.ENDED}{prompt.seq}")))
        for prompt in sorted(prompt_rows.read(db, ()), key=lambda row: row.seq)
        if (start := _text(times.get(f"{prompt_rows.BEGAN}{prompt.seq}"))) or prompt.seq in had
    ]


def usage(db: sqlite3.Connection) -> list[tuple[int, dict[str, Any]]]:
    """Return what agents told of the usage of each turn, and outside of any, in order of time.

    Raises sqlite3.Error.
    """
    kept = _settings(db, USAGE).items()
    found = [(_number(key), as_object(told)) for key, told in kept]
    return sorted(found, key=lambda each: str(each[1].get("at")))


def _number(key: str) -> int:
    """Return the number of a turn from the name of its setting; 0 for none."""
    number = key.removeprefix(USAGE)
    return int(number) if number.isdecimal() and len(number) < 20 else 0


def _settings(db: sqlite3.Connection, prefix: str) -> dict[str, object]:
    """Return the settings whose key begins like this, with their values; raises sqlite3.Error."""
    sql = f"SELECT key, value FROM settings WHERE key GLOB '{prefix}*'"
    found = _readable(db, sql)
    return {key: loads(value) for key, value in found if isinstance(value, str)}


def _readable(db: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
    try:
        return db.execute(sql).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
