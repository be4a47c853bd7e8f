"""What is kept of each turn beside its updates: when it began and ended, who ran it, its costs.

It stands among the settings of a session's file, so an older bridge on the same file leaves it
alone; turns that an older bridge ran have no times.
"""

import re
import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from acp_bridge.core.journal import prompt_rows
from acp_bridge.core.journal.connection import is_damage
from acp_bridge.core.journal.file import Statement
from acp_bridge.core.journal.records import PromptRow
from acp_bridge.core.protocol import as_object
from acp_bridge.core.wire.jsonrpc import dumps, loads

#: how the keys of settings begin that have what an agent told of the usage of a turn. The turn's
#: number follows; for usage outside of any turn it is 0 with a suffix.
USAGE: Final = "usage:"
_NOTE: Final = re.compile(r"(?:turnBegan|turnEnded|usage):([1-9]\d{0,17})|usage:0\.[0-9a-f]{8}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
#: the key of the ids of the tool calls for which a permission was asked and not answered.
ASKING: Final = "asking"
#: the most bytes of a note.
_NOTE_BYTES: Final = 10_000
#: the key that marks the usage of a turn that ran before the session was imported.
ELSEWHERE: Final = "elsewhere"


class TurnRow(Struct, frozen=True):
    """A turn: the prompt that began it, and its times in UTC as ISO 8601 where they are kept."""

    prompt: PromptRow
    began: str | None
    ended: str | None


class Used(NamedTuple):
    """What a session's file has of usage, before it is counted."""

    #: number, beginning (UTC as ISO 8601, None if not kept) and the agent's `usage` of each turn.
    turns: list[tuple[int, str | None, dict[str, Any]]]
    #: the number of a turn, 0 outside of any, and what its agent told. They are in order of time.
    told: list[tuple[int, dict[str, Any]]]


def read(db: sqlite3.Connection) -> list[TurnRow]:
    """Return the turns in the order of their prompts; raises sqlite3.Error.

    A prompt that never ran, or has joined the turn of another, has none. What is damaged is left
    out (invariant K2).
    """
    times = _settings(db, "turn")
    prompts = sorted(prompt_rows.read(db, ()), key=lambda row: row.seq)
    began = {row.seq: _text(times.get(f"{prompt_rows.BEGAN}{row.seq}")) for row in prompts}
    had = (
        set() if all(began.values()) else _with_updates(db)
    )  # only where needed: all rows are read
    return [
        TurnRow(prompt, start, _text(times.get(f"{prompt_rows.ENDED}{prompt.seq}")))
        for prompt in prompts
        if (start := began[prompt.seq]) or prompt.seq in had
    ]


def _with_updates(db: sqlite3.Connection) -> set[int]:
    """Return the numbers of the turns that have updates; raises sqlite3.Error."""
    rows = [row for (row,) in _readable(db, "SELECT DISTINCT turn FROM updates")]
    return {seq for seq in rows if isinstance(seq, int)}


def usage(db: sqlite3.Connection) -> list[tuple[int, dict[str, Any]]]:
    """Return what agents told of the usage of each turn, and outside of any, in order of time.

    Each item is the turn's number, 0 outside of any, and what was told. Raises sqlite3.Error.
    """
    kept = _settings(db, USAGE).items()
    found = [(_number(key), as_object(told)) for key, told in kept]
    return sorted(found, key=lambda each: str(each[1].get("at")))


def used(db: sqlite3.Connection) -> Used:
    """Return what a session's file has of usage. Raises sqlite3.Error."""
    rows = read(db)
    return Used([(row.prompt.seq, row.began, answered(row)) for row in rows], usage(db))


def answered(row: TurnRow) -> dict[str, Any]:
    """Return the `usage` in the agent's answer to the prompt of a turn; {} if it has none."""
    return as_object(as_object(row.prompt.agent_outcome).get("usage"))


def unanswered(db: sqlite3.Connection) -> list[str]:
    """Return the ids of the tool calls that wait for a permission, or waited when their agent
    ended; raises sqlite3.Error."""
    found = _settings(db, ASKING).get(ASKING)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def notes(db: sqlite3.Connection, turns: Container[int]) -> dict[str, object]:
    """Return the settings that have times and usage of these turns; raises sqlite3.Error."""
    kept = {**_settings(db, "turn"), **_settings(db, USAGE)}
    return {key: value for key, value in kept.items() if is_note(key, value, turns)}


def is_note(key: str, value: object, turns: Container[int]) -> bool:
    """Return True if a setting is a note of one of these turns, or of usage outside of any."""
    found = _NOTE.fullmatch(key)
    if found is None or (found[1] and int(found[1]) not in turns):
        return False
    if key.startswith(USAGE):
        return isinstance(value, dict) and len(dumps(value)) <= _NOTE_BYTES
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


def taken_over(kept: Mapping[str, object], turns: Iterable[int]) -> Iterator[Statement]:
    """Give the statements that keep the notes of turns which ran in another data folder.

    Each of the turns gets a note of its usage, with the mark `ELSEWHERE`.
    """
    whole = {**{f"{USAGE}{number}": {} for number in turns}, **kept}
    for key, value in whole.items():
        marked = {**as_object(value), ELSEWHERE: True} if key.startswith(USAGE) else value
        yield prompt_rows.SET, (key, dumps(marked).decode())


def _number(key: str) -> int:
    """Return the number of a turn from the key of its usage; 0 for usage outside of any turn."""
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
