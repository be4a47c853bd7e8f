"""What the built-in agent remembers of a session, in the database beside the session.

It is a file of the agent that only grows. Before the end of a turn is told, what is new of it is
added to what the database has; whoever opens the session on another machine has the file again.
What an agent had written in a turn that its machine did not survive is not there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.journal.connection import in_thread, journal_errors
from acp_bridge.journal.postgres.log import Connection
from acp_bridge.journal.records import file_name
from acp_bridge.journal.schema import make_folder

#: the ids of the built-in agent's sessions, which are the names of their files.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
#: bytes that are added in one statement.
_PART: Final = 1024 * 1024
#: how many bytes the database has of a session.
_SIZE: Final = (
    "coalesce((SELECT at + length(data) FROM acp_bridge.memories WHERE name = sessions.name"
    " ORDER BY at DESC LIMIT 1), 0)"
)


class Saved(NamedTuple):
    """How many bytes of which file the database has."""

    agent_session_id: str = ""
    size: int = 0


class Memories:
    """The files of the built-in agent on this machine."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the agent has them."""
        self._folder = folder

    async def restore(self, connection: Connection, session_id: str) -> Saved:
        """Have the file of a session be on this machine as the database has it, if it has any.

        A file that goes on where the database ends stays: the agent has worked on here since.

        Raises psycopg.Error; JournalError: the file can't be written.
        """
        cursor = await connection.execute(
            "SELECT agent_session_id, data FROM acp_bridge.memories WHERE name = %s ORDER BY at",
            (file_name(session_id),),
        )
        rows = await cursor.fetchall()
        if not rows or not _ID.fullmatch(rows[0][0]):
            return Saved()
        data = b"".join(row[1] for row in rows)
        await in_thread(_restore, self._path(rows[0][0]), data)
        return Saved(rows[0][0], len(data))

    async def save(
        self,
        connection: Connection,
        session_id: str,
        agent_session_id: object,
        saved: Saved,
        owned: tuple[str, int],
    ) -> Saved:
        """Add what is new of a session's file, while the session is this owner's with this fence.

        A database that has lost the end of what it had is given all of it.

        Raises psycopg.Error, JournalError.
        """
        if not isinstance(agent_session_id, str) or not _ID.fullmatch(agent_session_id):
            return saved
        if agent_session_id == saved.agent_session_id:
            added = await self._add(connection, session_id, saved, owned)
            if added is not None:
                return added
        async with connection.transaction():
            await connection.execute(
                "DELETE FROM acp_bridge.memories USING acp_bridge.sessions WHERE memories.name = %s"
                " AND sessions.name = memories.name AND owner = %s AND fence = %s",
                (file_name(session_id), *owned),
            )
            anew = Saved(agent_session_id, 0)
            return await self._add(connection, session_id, anew, owned) or Saved()

    async def _add(
        self, connection: Connection, session_id: str, saved: Saved, owned: tuple[str, int]
    ) -> Saved | None:
        """Add what is new; None if the database has less than it had, or another has the session.

        Raises as `save` does.
        """
        path = self._path(saved.agent_session_id)
        while data := await in_thread(_read, path, saved.size):
            cursor = await connection.execute(
                "INSERT INTO acp_bridge.memories SELECT name, %s, %s, %s FROM acp_bridge.sessions"
                f" WHERE name = %s AND owner = %s AND fence = %s AND %s = {_SIZE}"
                " ON CONFLICT DO NOTHING",
                (*saved, data, file_name(session_id), *owned, saved.size),
            )
            if not cursor.rowcount:
                return None
            saved = saved._replace(size=saved.size + len(data))
        return saved

    def _path(self, agent_session_id: str) -> Path:
        return self._folder / f"{agent_session_id}.jsonl"


def _read(path: Path, at: int) -> bytes:
    with journal_errors():
        try:
            with path.open("rb") as file:
                file.seek(at)
                return file.read(_PART)
        except FileNotFoundError:
            return b""


def _restore(path: Path, data: bytes) -> None:
    with journal_errors():
        try:
            with path.open("rb") as file:
                if file.read(len(data)) == data:
                    return
        except FileNotFoundError:
            make_folder(path.parent.parent)
            make_folder(path.parent)
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        draft.replace(path)
