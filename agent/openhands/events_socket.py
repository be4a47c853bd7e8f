"""The WebSocket over which an agent-server sends the events of a conversation.

Invariants
- The key goes in the first frame, never in a header or the address.
- However it ends, the end is a ServerProblem: a final one if trying again changes nothing.
- Closing is bounded by `_CLOSE` seconds and may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)

from agent.openhands.events import Json
from agent.openhands.problems import Kind, ServerProblem, one_line

_OPEN: Final = 10.0
_CLOSE: Final = 2.0
#: seconds between pings, and for the answer to one
_PING: Final = 15.0
#: bytes of an event
_LONGEST: Final = 64 * 1024 * 1024
_UNREACHED: Final = "The agent-server can't be reached."
_CUT: Final = "The connection to the agent-server was cut."
_NOT_ALLOWED: Final = (
    "The agent-server does not allow it: is OPENHANDS_SESSION_API_KEY the right key?"
)
_GONE: Final = "The agent-server does not have this conversation any more."
#: the server's reason if the conversation's credentials must be bound again
_UNBOUND: Final = "credential_binding_activation_required"


class EventsSocket:
    """An open connection; only events are received on it."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> Json:
        """Returns the next event. Raises ServerProblem at the end."""
        while True:
            try:
                value: Any = json.loads(await self._connection.recv())
            except ConnectionClosed as closed:
                raise _problem_of(closed) from closed
            except ValueError:
                continue
            if isinstance(value, dict):
                return value


@asynccontextmanager
async def open_socket(
    url: str, key: str | None, conversation_id: str
) -> AsyncIterator[EventsSocket]:
    """Opens a connection for the block.

    Raises ServerProblem if the server can't be reached or refuses the connection.
    """
    connection = await _connected(_address(url, conversation_id))
    try:
        if key:
            frame = json.dumps({"type": "auth", "session_api_key": key})
            try:
                await connection.send(frame)
            except ConnectionClosed as closed:
                raise _problem_of(closed) from closed
        yield EventsSocket(connection)
    finally:
        with anyio.move_on_after(_CLOSE, shield=True):
            await connection.close()
        connection.transport.abort()


async def _connected(address: str) -> ClientConnection:
    try:
        return await connect(
            address,
            compression=None,
            open_timeout=_OPEN,
            close_timeout=_CLOSE,
            ping_interval=_PING,
            ping_timeout=_PING,
            max_size=_LONGEST,
        )
    except InvalidStatus as error:
        match error.response.status_code:
            case 401 | 403:
                raise ServerProblem(Kind.NOT_ALLOWED, _NOT_ALLOWED) from error
            case 404:
                raise ServerProblem(Kind.GONE, _GONE) from error
        raise ServerProblem(Kind.UNREACHED, _UNREACHED) from error
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, WebSocketException) as error:
        raise ServerProblem(Kind.UNREACHED, _UNREACHED) from error


def _problem_of(closed: ConnectionClosed) -> ServerProblem:
    frame = closed.rcvd
    match frame.code if frame else None:
        case 4001:
            return ServerProblem(Kind.NOT_ALLOWED, _NOT_ALLOWED)
        case 4004:
            return ServerProblem(Kind.GONE, _GONE)
        case 1013 if frame and frame.reason == _UNBOUND:
            text = f"The agent-server wants this conversation's credentials again ({_UNBOUND})."
            return ServerProblem(Kind.NOT_ALLOWED, text)
    reason = one_line(frame.reason) if frame and frame.reason else ""
    return ServerProblem(Kind.UNSURE, one_line(f"{_CUT} {reason}".strip()))


def _address(url: str, conversation_id: str) -> str:
    parts = urlsplit(url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    path = f"{parts.path.rstrip('/')}/sockets/events/{conversation_id}"
    return urlunsplit((scheme, parts.netloc, path, "", ""))
