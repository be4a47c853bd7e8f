"""Reads the header of a request, also of one that asks for no WebSocket. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from websockets.http11 import Request
from websockets.server import ServerProtocol

from acp_bridge.remote.serve.door import PATH
from acp_bridge.remote.serve.websocket import server_protocol

_END: Final = b"\r\n\r\n"
#: headers of a body, with which the library reads no request.
_OF_BODY: Final = frozenset({b"content-length", b"transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose header is whole.

    `protocol`: what makes its answer. `upgrades`: True if it is a GET with `Upgrade: websocket`.
    """

    protocol: ServerProtocol
    request: Request
    upgrades: bool


def read(protocol: ServerProtocol, head: bytes) -> Asked | None:
    """Return the request that a connection has sent; None if the server can't answer it.

    `protocol` has been given all bytes of `head`. It takes neither a body nor, in some versions, a
    POST. If such a request is for the ACP endpoint, it is read as a GET without a body: its answer
    is a refusal, and the same header decides which one.
    """
    if (request := _only(protocol)) is not None:
        return Asked(protocol, request, _upgrades(head, request))
    again = server_protocol()
    again.receive_data(_as_get(head))
    request = _only(again)
    if request is None or request.path != PATH or _upgrades(head, request):
        return None
    return Asked(again, request, False)


def _only(protocol: ServerProtocol) -> Request | None:
    """Return the request that a protocol has read, if that is all that it was given."""
    events = protocol.events_received()
    if len(events) == 1 and isinstance(events[0], Request) and protocol.parser_exc is None:
        return events[0]
    return None


def _upgrades(head: bytes, request: Request) -> bool:
    named = ",".join(request.headers.get_all("Upgrade")).lower().split(",")
    return head.startswith(b"GET ") and "websocket" in [each.strip() for each in named]


def _as_get(head: bytes) -> bytes:
    """Return the header of a request as one of a GET without a body; b"" if it has no end."""
    if _END not in head:
        return b""
    first, *lines = head.partition(_END)[0].split(b"\r\n")
    kept = [line for line in lines if line.partition(b":")[0].lower() not in _OF_BODY]
    return b"\r\n".join([b"GET " + first.partition(b" ")[2], *kept, b"", b""])
