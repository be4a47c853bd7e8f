"""The rows of all sessions in the database: which there are, which were deleted, who has one.

Every function raises psycopg.Error.
"""

from dataclasses import astuple, fields, replace
from typing import Any, Final

from psycopg import AsyncConnection

from acp_bridge.journal.errors import SessionExists
from acp_bridge.journal.postgres.rows import plain
from acp_bridge.journal.records import SessionInfo

_NAMES: Final = ", ".join(field.name for field in fields(SessionInfo))
_ALIVE: Final = b"SELECT session_id FROM acp_bridge.sessions WHERE NOT deleted ORDER BY session_id"
_DELETED: Final = f"SELECT {_NAMES} FROM acp_bridge.sessions WHERE deleted ORDER BY session_id"
_HOLDER: Final = b"""
SELECT machine FROM acp_bridge.sessions JOIN acp_bridge.bridges USING (owner)
WHERE session_id = %s AND until > now()
"""
_STATE: Final = b"SELECT deleted, prompted FROM acp_bridge.sessions WHERE session_id = %s"
_MARKS: Final = ", ".join(["%s"] * len(fields(SessionInfo)))
_BURY: Final = (
    f"INSERT INTO acp_bridge.sessions({_NAMES}, deleted) VALUES ({_MARKS}, true)"
    " ON CONFLICT DO NOTHING"
)
_RELOADS: Final = b"SELECT agent, version FROM acp_bridge.reloads ORDER BY agent, version"
_RELOAD: Final = b"INSERT INTO acp_bridge.reloads VALUES (%s, %s) ON CONFLICT DO NOTHING"


async def alive(connection: AsyncConnection[Any]) -> list[str]:
    """Return the ids of the sessions that are not deleted."""
    cursor = await connection.execute(_ALIVE)
    return [session_id for (session_id,) in await cursor.fetchall()]


async def deleted(connection: AsyncConnection[Any]) -> list[SessionInfo]:
    """Return the rows of sessions that were deleted, hidden or set aside."""
    cursor = await connection.execute(_DELETED.encode())
    return [SessionInfo(*row) for row in await cursor.fetchall()]


async def holder(connection: AsyncConnection[Any], session_id: str) -> str | None:
    """Return the machine of the bridge that has a session now; None if none has."""
    cursor = await connection.execute(_HOLDER, (plain(session_id),))
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def was_deleted(connection: AsyncConnection[Any], session_id: str) -> bool:
    """Return True for a session that was deleted for good, and not one that was set aside."""
    cursor = await connection.execute(_STATE, (plain(session_id),))
    return await cursor.fetchone() == (True, True)


async def bury(connection: AsyncConnection[Any], info: SessionInfo) -> bool:
    """Add the row of a deleted session; False if there is one.

    Raises SessionExists: the session is there, and not deleted.
    """
    row = astuple(replace(info, prompted=bool(info.prompted)))  # SQLite has numbers
    cursor = await connection.execute(_BURY.encode(), tuple(map(plain, row)))
    if cursor.rowcount == 1:
        return True
    cursor = await connection.execute(_STATE, (plain(info.session_id),))
    found = await cursor.fetchone()
    if found is not None and not found[0]:
        raise SessionExists
    return False


async def reloads(connection: AsyncConnection[Any]) -> list[tuple[str, str]]:
    """Return the agents, with versions, that were seen to take up a session again."""
    cursor = await connection.execute(_RELOADS)
    return [(agent, version) for agent, version in await cursor.fetchall()]


async def add_reload(connection: AsyncConnection[Any], agent: str, version: str) -> None:
    """Remember that an agent was seen to."""
    await connection.execute(_RELOAD, (plain(agent), plain(version)))
