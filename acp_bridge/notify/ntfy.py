"""Posts a notification to an address, as ntfy takes it. It knows of HTTP what that needs.

An answer that redirects is no success, and is not followed: it could lead anywhere.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

import anyio
from anyio.abc import ByteStream

from acp_bridge.notify.config import Address
from acp_bridge.notify.errors import NotTold
from acp_bridge.runtime import waits
from acp_bridge.runtime.threads import in_thread

#: bytes of an answer that are read.
_MOST: Final = 4096
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})\b")


async def post(address: Address, text: str) -> None:
    """Post a text, in bounded time; it has arrived when this returns. Raises NotTold."""
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
    """Return the status of the answer, None if it is no answer."""
    async with await _connected(address) as stream:
        await stream.send(request)
        answer = b""
        while b"\n" not in answer and len(answer) < _MOST:
            answer += await stream.receive(_MOST)
    found = _STATUS.match(answer)
    return int(found[1]) if found else None


async def _connected(address: Address) -> ByteStream:
    if not address.secure:
        return await anyio.connect_tcp(address.host, address.port)
    tls = await in_thread(ssl.create_default_context)  # it reads the system's certificates
    return await anyio.connect_tcp(
        address.host,
        address.port,
        ssl_context=tls,
        tls_standard_compatible=False,  # servers end a connection without a word of TLS
    )
