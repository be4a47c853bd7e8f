"""Ways to open the session of a conversation: a new one, or one that was there before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acp_bridge import protocol as acp
from acp_bridge.protocol import Json
from acp_bridge.terminal.connection import Connection
from acp_bridge.terminal.view.content import objects

#: seconds. The agent may have to be started, and to load.
_OPENS: Final = 120.0
_LISTS: Final = 30.0
_MOST_PAGES: Final = 100


class NoSession(Exception):
    """There is no session as it was asked for; the text says so."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that is open for this client, and what was answered."""

    session_id: str
    result: Json


async def new(connection: Connection, folder: Path) -> Opened:
    """Open a new session. Raises RpcError, ConnectionLost, NoAnswer."""
    params = {"cwd": str(folder), "mcpServers": []}
    result = await connection.request(acp.SESSION_NEW, params, within=_OPENS)
    return Opened(str(result["sessionId"]), result)


async def resume(connection: Connection, folder: Path, sought: str) -> Opened:
    """Load a session with its transcript; `sought` begins its id, empty: the last of this folder.

    Raises NoSession, and as `new` does.
    """
    session = await _find(connection, folder, sought)
    session_id = session["sessionId"]
    params = {"sessionId": session_id, "cwd": session.get("cwd") or str(folder), "mcpServers": []}
    result = await connection.request(acp.SESSION_LOAD, params, within=_OPENS)
    return Opened(session_id, result if isinstance(result, dict) else {})


async def _find(connection: Connection, folder: Path, sought: str) -> Json:
    found = await _listed(connection, {} if sought else {"cwd": str(folder)}, sought)
    if not sought:
        if not found:
            raise NoSession("no session of this agent was used in this folder")
        return max(found, key=lambda session: str(session.get("updatedAt") or ""))
    exact = [session for session in found if session["sessionId"] == sought]
    if len(exact or found) != 1:
        many = "more than one session begins" if found else "no session of this agent begins"
        raise NoSession(f"{many} with {sought}")
    return (exact or found)[0]


async def _listed(connection: Connection, params: Json, sought: str) -> list[Json]:
    found: list[Json] = []
    cursor: Any = None
    for _ in range(_MOST_PAGES):
        page = {**params, "cursor": cursor} if cursor else params
        result = await connection.request(acp.SESSION_LIST, page, within=_LISTS)
        for session in objects(result.get("sessions")):
            if str(session.get("sessionId")).startswith(sought):
                found.append(session)
        cursor = result.get("nextCursor")
        if not cursor:
            break
    return found
