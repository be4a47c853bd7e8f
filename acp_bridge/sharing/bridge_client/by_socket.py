"""A connection to a bridge that lives, by its socket."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from acp_bridge.core.protocol import LIVE, OBSERVES, Json, as_object, objects
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.sharing.bridge_client.connection import Connection, connected
from acp_bridge.sharing.bridge_client.listener import Listener, NullListener
from acp_bridge.sharing.bridge_client.sent import ConnectionLost
from acp_bridge.sharing.listening import peers
from acp_bridge.sharing.listening.peers import NoBridge


async def connect(path: str) -> tuple[Reader, Writer]:
    """Connect to the bridge at the socket `path`, and return both streams.

    Raises as `peers.connect` does.
    """
    with await peers.connect(path) as connection:
        writing = os.dup(connection.fileno())
        return Reader(connection.detach()), Writer(writing)


@asynccontextmanager
async def over_socket(
    path: str, listener: Listener, log: Path | None = None
) -> AsyncGenerator[Connection, None]:
    """Give the block a connection to the bridge that listens at the socket `path`; `log` as in
    `Connection`.

    Raises:
        OSError: nobody listens there; NoBridge if an agent's process does.
    """
    async with connected(await connect(path), listener, log=log) as connection:
        yield connection


async def live_at(sockets: Iterable[str], found: dict[str, list[Json] | None]) -> None:
    """Ask bridges at once for their live sessions, and add them to `found` as they come.

    `found` has the sessions by socket. It has None for the socket of a process that only poses as a
    bridge, and nothing for a bridge that can't be asked. The caller bounds how long all may take.
    """

    async def ask(socket: str) -> None:
        try:
            async with over_socket(socket, NullListener()) as connection:
                found[socket] = await live_sessions(connection, within=None)
        except NoBridge:  # an agent wrote the run file, or replaced the socket
            found[socket] = None
        except (OSError, RpcError, ConnectionLost):
            pass

    async with anyio.create_task_group() as tasks:
        for socket in sockets:
            tasks.start_soon(ask, socket)


async def live_sessions(connection: Connection, within: float | None) -> list[Json]:
    """Ask a bridge for its live sessions, as a client that only observes.

    Each row has its `sessionId`. `within` bounds each of the two requests, in seconds. Raises as
    `Connection.request` does.
    """
    await connection.initialize("acp-bridge", own={OBSERVES: True}, within=within)
    result = await connection.request(LIVE, {}, within=within)
    rows = objects(as_object(result).get("sessions"))
    return [row for row in rows if isinstance(row.get("sessionId"), str)]
