"""Session files that are made of rows, and what they have."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from acp_bridge.core.journal import SessionInfo
from acp_bridge.core.journal.connection import connect
from acp_bridge.core.journal.files import make_folders
from acp_bridge.core.journal.schema import SESSION_SCHEMA, make_file, migrate
from acp_bridge.postgres.digest import TABLES

SESSION = "3f2a" * 8
Rows = Mapping[str, Sequence[Any]]

INFO = SessionInfo(SESSION, "/w", "an-agent", "at the agent", "Tïtle", "2026-11-27T10:00:00Z")
#: a row of each table that is as odd as it may be.
ODD: Rows = {
    "prompts": [(3, "p", "done", '{"a":1}', None), (7, "q", "held", None, '{ "b" : 2 }')],
    "prompt_params": [(3, '{"prompt":[],"ä":"\U0001f600"}'), (9, "no JSON\0")],
    "updates": [(2, 0, b""), (5, 3, b'{"a":"\\u0000"}\n{"b":1}'), (1 << 40, -1, bytes(range(256)))],
    "settings": [("order", "[7, 3]"), ("", " "), ('promptKey:"k"', '{"seq":3}')],
    "used_ids": [(b"\xff\x00",), (b"",), (b"tool" * 5000,)],
}


def made(path: Path, rows: Rows = ODD, info: SessionInfo = INFO) -> Path:
    """A session's file with these rows."""
    make_folders(path.parent.parent)
    make_file(path)
    values = {**asdict(info), "merged_to": 4}
    with closing(connect(path, wait=1)) as db:
        migrate(db, SESSION_SCHEMA)
        marks = ", ".join(f":{name}" for name in values)
        db.execute(f"INSERT INTO session(id, {', '.join(values)}) VALUES (1, {marks})", values)
        for table, columns in TABLES.items():
            marks = ", ".join("?" * len(columns.split(",")))
            insert = f"INSERT INTO {table}({columns}) VALUES ({marks})"
            db.executemany(insert, rows.get(table, []))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
    return path


def dumped(path: Path) -> list[tuple[object, ...]]:
    """All that the tables of a session's file have."""
    with closing(sqlite3.connect(path)) as db:
        return [
            row
            for name in ("session", *TABLES)
            for row in db.execute(f"SELECT * FROM {name} ORDER BY 1")
        ]


def execute(path: Path, script: str) -> None:
    with closing(connect(path, wait=1)) as db:
        db.executescript(script)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def as_version_2(path: Path) -> None:
    execute(
        path,
        "ALTER TABLE session DROP COLUMN agent_info;"
        "ALTER TABLE session DROP COLUMN prompted;"
        "PRAGMA user_version=2",
    )
