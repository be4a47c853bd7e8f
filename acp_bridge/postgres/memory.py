"""What the built-in agent remembers of a session, in the database beside the session.

It is a file of the agent that only grows. Before clients are told of the end of a turn, the new
part of the file is added to what the database has; whoever opens the session on another machine has
the file again. What an agent had written in a turn that its machine did not survive is lost there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from acp_bridge.core.journal.connection import in_thread, journal_errors
from acp_bridge.core.journal.errors import DatabaseSilent, JournalError
from acp_bridge.core.journal.records import file_name
from acp_bridge.core.journal.schema import make_folder
from acp_bridge.core.runtime.log import event
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.log import Connection
from acp_bridge.postgres.tables import KNOWN

#: the ids of the built-in agent's sessions, which are the names of their files.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
#: the most bytes that are added in one statement.
_PART: Final = 1024 * 1024
#: SQL for the number of bytes that the database has of the file of an agent's session; it is -1 if
#: those are another session's.
_SIZE: Final = (
    "coalesce((SELECT CASE agent_session_id WHEN %s THEN at + length(data) ELSE -1 END"
    " FROM acp_bridge.memories WHERE memories.name = sessions.name ORDER BY at DESC LIMIT 1), 0)"
)


class Saved(NamedTuple):
    """How many bytes the database has of the file of a session of the agent."""

    agent_session_id: str = ""
    size: int = 0


class Memories:
    """The files on this machine in which the built-in agent remembers its sessions."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the agent has the files."""
        self._folder = folder

    async def restore(self, connection: Connection, session_id: str) -> Saved:
        """Write the agent's file of a session as the database has it, if it has any.

        A file here that begins with the same bytes stays: the agent has worked on since. Returns
        what the database has.

        Raises psycopg.Error; JournalError: the file can't be written.
        """
        cursor = await connection.execute(
            "SELECT agent_session_id, data, at FROM acp_bridge.memories WHERE name = %s"
            " ORDER BY at",
            (file_name(session_id),),
        )
        rows = await cursor.fetchall()
        if not rows or not _ID.fullmatch(rows[0][0]):
            return Saved()
        data = b""
        for _, more, at in rows:
            if at != len(data):  # a row was lost: the agent would remember something else
                event("journal.failed", session=session_id, what="a part of the memory is missing")
                return Saved()
            data += more
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
        """Add the new part of a session's file to the database; returns what that has then.

        Nothing is added if the session is not that of `owned`, owner and fence. A database that has
        lost the end of what it had is given that again.

        Raises psycopg.Error, JournalError.
        """
        if not isinstance(agent_session_id, str) or not _ID.fullmatch(agent_session_id):
            return saved
        name = file_name(session_id)
        if agent_session_id != saved.agent_session_id:
            saved = await self._forget(connection, name, agent_session_id, owned)
        path = self._path(agent_session_id)
        while data := await in_thread(_read, path, saved.size):
            cursor = await connection.execute(
                "INSERT INTO acp_bridge.memories SELECT name, %s, %s, %s FROM acp_bridge.sessions"
                f" WHERE name = %s AND owner = %s AND fence = %s AND {_SIZE} = %s AND {KNOWN}",
                (*saved, data, name, *owned, agent_session_id, saved.size),
            )
            if cursor.rowcount:
                saved = saved._replace(size=saved.size + len(data))
                continue
            has = await self._size(connection, name, agent_session_id, owned)
            if has in (saved.size, None):
                break
            saved = saved._replace(size=has)
            if has < 0:
                saved = await self._forget(connection, name, agent_session_id, owned)
        return saved

    async def _forget(
        self, connection: Connection, name: str, agent_session_id: str, owned: tuple[str, int]
    ) -> Saved:
        await connection.execute(
            "DELETE FROM acp_bridge.memories USING acp_bridge.sessions WHERE memories.name = %s"
            f" AND sessions.name = memories.name AND owner = %s AND fence = %s AND {KNOWN}",
            (name, *owned),
        )
        return Saved(agent_session_id, 0)

    async def _size(
        self, connection: Connection, name: str, agent_session_id: str, owned: tuple[str, int]
    ) -> int | None:
        """Return the value of `_SIZE` for a session; None if it is not that of `owned`."""
        cursor = await connection.execute(
            f"SELECT {_SIZE} FROM acp_bridge.sessions"
            " WHERE name = %s AND owner = %s AND fence = %s",
            (agent_session_id, name, *owned),
        )
        row = await cursor.fetchone()
        return row[0] if row else None

    def _path(self, agent_session_id: str) -> Path:
        return self._folder / f"{agent_session_id}.jsonl"


class SessionMemory:
    """What the database has of the built-in agent's memory of one session."""

    def __init__(self, memories: Memories | None, database: Database) -> None:
        """`memories`: the agent's files, None if it is another agent."""
        self._memories, self._database = memories, database
        self._saving = anyio.Lock()
        self.saved = Saved()

    def forget_size(self) -> None:
        """Note that the database might have less than it had."""
        self.saved = self.saved._replace(size=0)

    async def save(
        self, session_id: str, agent_session_id: object, owned: tuple[str, int], *, now: bool
    ) -> None:
        """Save the new part of the memory in the database. Raises JournalError.

        It is done before clients are told of a turn's end: who has seen that can go on elsewhere.
        `owned`: as for `Memories.save`. `now`: if it can't be saved that is an error, else only if
        the database is silent.
        """
        if not self._memories:
            return
        try:
            async with self._saving, self._database.connection() as connection:
                self.saved = await self._memories.save(
                    connection, session_id, agent_session_id, self.saved, owned
                )
        except JournalError as error:
            if now or isinstance(error, DatabaseSilent):
                raise


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
