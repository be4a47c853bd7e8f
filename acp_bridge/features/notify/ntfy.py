"""Posts a notification to an address, as ntfy takes it, with as much of HTTP as that needs.

An answer that redirects is no success, and is not followed: it could lead anywhere.
"""

from __future__ import annotations

import re
import socket
import ssl
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import ByteStream

from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import in_daemon_thread
from acp_bridge.features.notify.config import Address
from acp_bridge.features.notify.errors import NotTold

#: how many bytes of an answer are read.
_MOST: Final = 4096
#: seconds to connect to one of a host's IP addresses.
_ATTEMPT: Final = 2.0
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})\b")


async def post(address: Address, text: str) -> None:
    """Post a text, within `waits.NOTIFY`; it has arrived when this returns. Raises NotTold."""
    try:
        with anyio.fail_after(waits.NOTIFY):
            status = await _posted(address, _request(address, text))
    except TimeoutError:
        raise NotTold(f"there was no answer within {waits.NOTIFY:g} s") from None
    except ssl.SSLCertVerificationError:
        raise NotTold("the certificate of the server can't be verified") from None
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        raise NotTold(f"the connection failed ({type(error).__name__})") from None
    if status is None:
        raise NotTold("the answer is not HTTP")
    if not 200 <= status < 300:
        raise NotTold(f"the server has answered {status}")


def _request(address: Address, text: str) -> bytes:
    body = text.encode()
    lines = [
        f"POST {address.target} HTTP/1.1",
        f"Host: {address.place}",
        "User-Agent: acp-bridge",
        "Title: acp-bridge",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([f"Authorization: {address.authorization}"] if address.authorization else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _posted(address: Address, request: bytes) -> int | None:
    """Send the request; return the status of the answer, None if the answer is not HTTP."""
    async with await _connected(address) as stream:
        await stream.send(request)
        answer = b""
        while b"\n" not in answer and len(answer) < _MOST:
            answer += await stream.receive(_MOST)
    found = _STATUS.match(answer)
    return int(found[1]) if found else None


async def _connected(address: Address) -> ByteStream:
    secure: dict[str, Any] = {}
    if address.secure:
        secure["ssl_context"] = await in_daemon_thread(ssl.create_default_context)  # it reads files
        secure["tls_hostname"] = address.host
        secure["tls_standard_compatible"] = False  # servers end without a word of TLS
    failure: OSError | None = None
    for ip in await _looked_up(address):
        try:
            with anyio.move_on_after(_ATTEMPT):
                stream: ByteStream = await anyio.connect_tcp(ip, address.port, **secure)
                return stream
        except OSError as error:
            failure = error
    raise failure or TimeoutError


async def _looked_up(address: Address) -> list[str]:
    """Return the IP addresses of the host.

    The end of the bridge does not wait for a lookup that hangs, as it would for the event loop's.
    """
    kind = socket.SOCK_STREAM
    look_up = partial(socket.getaddrinfo, address.host, address.port, type=kind)
    found = await in_daemon_thread(look_up)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))
