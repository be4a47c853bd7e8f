"""Asks a bridge which sessions are live there."""

from __future__ import annotations

from acp_bridge.bridge_client.connection import Connection
from acp_bridge.json_values import as_object, objects
from acp_bridge.protocol import LIVE, OBSERVES, Json


async def live_sessions(connection: Connection, within: float | None) -> list[Json]:
    """Return what a bridge lists as live, to a client that observes; each row has its `sessionId`.

    Raises as `Connection.request` does; `within` seconds are for each of its two questions.
    """
    await connection.initialize("acp-bridge", own={OBSERVES: True}, within=within)
    result = await connection.request(LIVE, {}, within=within)
    rows = objects(as_object(result).get("sessions"))
    return [row for row in rows if isinstance(row.get("sessionId"), str)]
