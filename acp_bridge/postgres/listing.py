"""Reads and adds rows of sessions in the database: alive ones, deleted ones, and who has one.

Every function raises psycopg.Error.
"""

from dataclasses import fields
from typing import Final

from acp_bridge.core.journal.errors import SessionExists
from acp_bridge.core.journal.records import SessionInfo, file_name
from acp_bridge.postgres.log import COUNT, Connection, values_of

_NAMES: Final = ", ".join(field.name for field in fields(SessionInfo))
_ALIVE: Final = b"SELECT session_id FROM acp_bridge.sessions WHERE NOT deleted ORDER BY session_id"
_DELETED: Final = (
    f"SELECT {_NAMES} FROM acp_bridge.sessions WHERE deleted AND NOT dropped ORDER BY session_id"
)
_HOLDER: Final = b"""
SELECT machine FROM acp_bridge.sessions JOIN acp_bridge.bridges USING (owner)
WHERE name = %s AND until > clock_timestamp()
"""
_STATE: Final = b"SELECT deleted, prompted AND NOT dropped FROM acp_bridge.sessions WHERE name = %s"
_MARKS: Final = ", ".join(["%s"] * len(fields(SessionInfo)))
_BURY: Final = (
    f"{COUNT} INSERT INTO acp_bridge.sessions(name, {_NAMES}, changed, deleted)"
    f" SELECT %s, {_MARKS}, changes, true FROM one"
    f" ON CONFLICT (name) DO UPDATE SET ({_NAMES}, changed, dropped) ="
    f" ({', '.join(f'excluded.{field.name}' for field in fields(SessionInfo))}, excluded.changed,"
    " false) WHERE sessions.dropped"
)


async def alive(connection: Connection) -> list[str]:
    """Return the ids of the sessions that are not deleted."""
    cursor = await connection.execute(_ALIVE)
    return [session_id for (session_id,) in await cursor.fetchall()]


async def deleted(connection: Connection) -> list[SessionInfo]:
    """Return the rows of sessions that were deleted, hidden or set aside."""
    cursor = await connection.execute(_DELETED.encode())
    return [SessionInfo(*row) for row in await cursor.fetchall()]


async def holder(connection: Connection, session_id: str) -> str | None:
    """Return the machine of the bridge that has a session now; None if none has."""
    cursor = await connection.execute(_HOLDER, (file_name(session_id),))
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def was_deleted(connection: Connection, session_id: str) -> bool:
    """Return True for a session that was deleted for good, False for one that was set aside."""
    cursor = await connection.execute(_STATE, (file_name(session_id),))
    return await cursor.fetchone() == (True, True)


async def bury(connection: Connection, info: SessionInfo) -> bool:
    """Add the row of a session that was deleted elsewhere; returns False if it is there already.

    Raises SessionExists: the session is there, and not deleted.
    """
    name = file_name(info.session_id)
    cursor = await connection.execute(_BURY.encode(), (name, *values_of(info)))
    if cursor.rowcount == 1:
        return True
    cursor = await connection.execute(_STATE, (name,))
    found = await cursor.fetchone()
    if found is not None and not found[0]:
        raise SessionExists
    return False
