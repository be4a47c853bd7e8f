"""A connection to a bridge that lives, by its socket."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from acp_bridge.bridge_client.connection import Connection, connected
from acp_bridge.bridge_client.listener import Listener
from acp_bridge.listening import peers
from acp_bridge.protocol import LIVE, OBSERVES, Json, as_object, objects
from acp_bridge.wire.stdio import Reader, Writer


async def connect(path: str) -> tuple[Reader, Writer]:
    """Return the two directions of a connection to a bridge; raises as `peers.connect` does."""
    with await peers.connect(path) as connection:
        writing = os.dup(connection.fileno())
        return Reader(connection.detach()), Writer(writing)


@asynccontextmanager
async def over_socket(
    path: str, listener: Listener, log: Path | None = None
) -> AsyncGenerator[Connection, None]:
    """Give a connection to a bridge that lives, by its socket, for the block; `log` as in
    `Connection`.

    Raises:
        OSError: nobody listens there; NoBridge if an agent's process does.
    """
    async with connected(await connect(path), listener, log=log) as connection:
        yield connection


async def live_sessions(connection: Connection, within: float | None) -> list[Json]:
    """Ask a bridge for its live sessions, as a client that only observes.

    Each row has its `sessionId`. `within` bounds each of the two requests, in seconds. Raises as
    `Connection.request` does.
    """
    await connection.initialize("acp-bridge", own={OBSERVES: True}, within=within)
    result = await connection.request(LIVE, {}, within=within)
    rows = objects(as_object(result).get("sessions"))
    return [row for row in rows if isinstance(row.get("sessionId"), str)]
