"""The ways to open the session of a chat: a new one, one to load, or a live one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_bridge.core import protocol as acp
from acp_bridge.core.history import HISTORY, History
from acp_bridge.core.protocol import Json, as_object
from acp_bridge.sharing.bridge_client.connection import Connection

if TYPE_CHECKING:
    from acp_bridge.core.journal.records import SessionInfo
    from acp_bridge.terminal.shared.live import LiveSession
    from acp_bridge.terminal.shared.reach import Reach

#: seconds for the answer; the agent may have to be started and to load.
_OPENS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened session and the bridge's answer."""

    session_id: str
    result: Json
    #: a turn of the session may be running.
    live: bool = False


#: Opens a session; raises RpcError, ConnectionLost, NoAnswer.
Open = Callable[[Connection], Awaitable[Opened]]


def new(folder: Path) -> Open:
    """Return a function that opens a new session working in a folder (`session/new`)."""

    async def open_new(connection: Connection) -> Opened:
        params = {"cwd": str(folder), "mcpServers": []}
        result = as_object(await connection.request(acp.SESSION_NEW, params, within=_OPENS))
        return Opened(str(result.get("sessionId")), result)

    return open_new


def resume(session: SessionInfo) -> Open:
    """Return a function that loads a session with its transcript (`session/load`)."""

    async def load(connection: Connection) -> Opened:
        params = {"sessionId": session.session_id, "cwd": session.cwd, "mcpServers": []}
        result = await connection.request(acp.SESSION_LOAD, params, within=_OPENS)
        return Opened(session.session_id, as_object(result))

    return load


def attach(session_id: str, cursor: str | None = None) -> Open:
    """Return a function that joins a live session with its transcript (`_acp_bridge/attach`).

    `cursor`: what stands before it is not shown.
    """

    async def attached(connection: Connection) -> Opened:
        params: Json = {"sessionId": session_id, HISTORY: History.FULL}
        params = acp.resuming(params, cursor) if cursor else params
        result = await connection.request(acp.ATTACH, params, within=_OPENS)
        return Opened(session_id, as_object(result), live=True)

    return attached


def join(reach: Reach, session: LiveSession, cursor: str | None = None) -> Open:
    """Return a function that joins a session where it was found, with its transcript.

    `cursor`: what stands before it is not shown.
    """

    async def joined(connection: Connection) -> Opened:
        method, params = reach.joining(session, History.FULL, cursor)
        result = await connection.request(method, params, within=_OPENS)
        return Opened(session.session_id, as_object(result), live=True)

    return joined
