"""Data folders with sessions, and what they have, to be compared."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.digest import TABLES
from tests.core.journal.files import remove

FIRST, SECOND, DELETED = "3f2a" * 8, "ses_Ünusual/id", "77aa" * 8


async def fill(journal: Journal, *ids: str) -> None:
    """Sessions with a prompt that has run and one that waits, and one that was deleted."""
    await journal.prepare()
    for session_id in (*ids, DELETED):
        lock = await lease.acquire(journal.lock_path(session_id), 0)
        session = await journal.create(session_id, cwd="/w", agent="an-agent", prompted=False)
        session.start_turn(session.accept("p", {"prompt": [{"type": "text", "text": "please"}]}))
        session.record(1, b'{"update":{"sessionUpdate":"plan","entries":[]}}')
        session.add_ids(["call-1", "call-2"])
        session.end_prompt(1, {"stopReason": "end_turn"}, {"stopReason": "end_turn"})
        session.accept("q", {"prompt": [{"type": "text", "text": "then"}]})
        await journal.touch(session_id, title=f"Title of {session_id}")
        os.close(lock)
    await journal.delete(DELETED, known=True, agent="an-agent")
    await journal.close()


def change(home: Path, session_id: str) -> None:
    """Let a session go on."""

    async def record() -> None:
        journal = Journal(home)
        (await journal.open(session_id)).record(1, b'{"more":1}')
        await journal.close()

    anyio.run(record)


def delete(home: Path, session_id: str) -> None:
    async def delete() -> None:
        journal = Journal(home)
        await journal.delete(session_id, known=True)
        await journal.close()

    anyio.run(delete)


def content(home: Path) -> dict[str, Any]:
    """All rows of the index and of each session."""
    found: dict[str, Any] = {}
    for path in sorted((home / "sessions").glob("*.db")):
        for table in ("session", *TABLES):
            found[f"{path.name} {table}"] = rows(path, table)
    found["index"] = sorted(rows(home / "index.db", "sessions"), key=repr)
    return found


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"SELECT * FROM {table}").fetchall()


def without_index(home: Path) -> None:
    remove(home, "index.db*")


def at_database(database: DatabaseUrl, sql: str) -> list[tuple[Any, ...]]:
    """What a statement says at the database; nothing if it has no rows."""

    async def execute() -> list[tuple[Any, ...]]:
        async with Database(database) as opened, opened.connection() as connection:
            cursor = await connection.execute(sql.encode())
            return await cursor.fetchall() if cursor.description else []

    return anyio.run(execute)
