"""Sends one request over HTTP without TLS or a proxy, and reads the answer.

It is for models that are asked without LiteLLM, at servers on the user's machine or network. It
takes 10 ms to load, httpx 60, and LiteLLM's client above a second.

Invariants
- A connection carries one request. `Response.aclose` closes it at once, and so does a failure.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

#: bytes that are read at once, and that the head of an answer may have
_READ, _MOST_HEAD = 64 * 1024, 100 * 1024


def load() -> Any:
    """Returns the module h11, which reads HTTP; blocks the thread at the first call."""
    return importlib.import_module("h11")


class Response:
    """An answer whose head is read. The names are those of httpx."""

    def __init__(self, stream: ByteStream, connection: Any, head: Any) -> None:
        self.status_code: int = head.status_code
        self.headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        self._stream = stream
        self._connection = connection

    async def aiter_bytes(self) -> AsyncGenerator[bytes]:
        """Yields the body in the pieces that arrive. Raises h11's errors, OSError or anyio's."""
        h11 = load()
        found: list[bytes] = []
        while True:
            event = self._connection.next_event()
            if isinstance(event, h11.Data):
                found.append(bytes(event.data))
                continue
            if found:
                yield b"".join(found)
                found.clear()
            if event is not h11.NEED_DATA:
                return
            await _receive(self._stream, self._connection)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def post(url: str, headers: Mapping[str, str], body: bytes, connect: float) -> Response:
    """Sends a request and returns the answer, with its body unread.

    `connect`: seconds for the connection. Raises h11's errors, OSError or anyio's.
    """
    h11 = load()
    to = urlsplit(url)
    sent = {"Host": to.netloc, "Connection": "close", **headers, "Content-Length": f"{len(body)}"}
    target = f"{to.path or '/'}?{to.query}" if to.query else to.path or "/"
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
    head = connection.send(h11.Request(method="POST", target=target, headers=[*sent.items()]))
    stream = await _connected(to.hostname or "", to.port or 80, connect)
    try:
        await stream.send((head or b"") + body)
        connection.send(h11.Data(data=body))
        connection.send(h11.EndOfMessage())
        while not isinstance(event := connection.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                await _receive(stream, connection)
        return Response(stream, connection, event)
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


async def _connected(host: str, port: int, seconds: float) -> ByteStream:
    with anyio.move_on_after(seconds):
        return await anyio.connect_tcp(host, port)
    raise ConnectionError("no connection in time")


async def _receive(stream: ByteStream, connection: Any) -> None:
    try:
        connection.receive_data(await stream.receive(_READ))
    except anyio.EndOfStream:
        connection.receive_data(b"")
