"""Ways to open the session of a conversation: a new one, or one that was there before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_bridge import protocol as acp
from acp_bridge.bridge_client.connection import Connection
from acp_bridge.protocol import Json
from acp_bridge.wire.json_values import as_object

if TYPE_CHECKING:
    from acp_bridge.journal.records import SessionInfo

#: seconds. The agent may have to be started, and to load.
_OPENS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that is open for this client, and what was answered."""

    session_id: str
    result: Json
    #: a turn of it may run.
    live: bool = False


#: opens a session; raises RpcError, ConnectionLost, NoAnswer.
Open = Callable[[Connection], Awaitable[Opened]]


def new(folder: Path) -> Open:
    """Return a way to open a new session in a folder."""

    async def open_new(connection: Connection) -> Opened:
        params = {"cwd": str(folder), "mcpServers": []}
        result = as_object(await connection.request(acp.SESSION_NEW, params, within=_OPENS))
        return Opened(str(result.get("sessionId")), result)

    return open_new


def resume(session: SessionInfo) -> Open:
    """Return a way to load a session with its transcript."""

    async def load(connection: Connection) -> Opened:
        params = {"sessionId": session.session_id, "cwd": session.cwd, "mcpServers": []}
        result = await connection.request(acp.SESSION_LOAD, params, within=_OPENS)
        return Opened(session.session_id, as_object(result))

    return load


def attach(session_id: str) -> Open:
    """Return a way to see a session that is live at this bridge, with its transcript."""

    async def attached(connection: Connection) -> Opened:
        params = {"sessionId": session_id, "replay": True}
        result = await connection.request(acp.ATTACH, params, within=_OPENS)
        return Opened(session_id, as_object(result), live=True)

    return attached
