"""An MCP server over HTTP whose bytes are the test's."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.agent.mcp_servers.support import Loopback

INFO = {"name": "raw", "version": "1"}
RESULTS: dict[str, Any] = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": INFO},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "well"}]},
}


#: at the end of an answer: the connection is closed
CLOSE = b"CLOSE"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request; `method`: JSON-RPC's, or HTTP's if it has no message."""

    method: str
    id: Any
    session: str | None


class RawHttp(Loopback):
    """`async with`. `answer` returns the bytes of the whole HTTP answer.

    `sse`: the transport of old, in which the body of an answer with status 200 goes to the stream
    of events.
    """

    def __init__(self, answer: Callable[[Asked], bytes], *, sse: bool = False) -> None:
        self.asked: list[Asked] = []
        self._sse = sse
        #: how the stream of events begins
        self.start = STREAM + _event("endpoint", b"/mcp")
        self._events: SocketStream | None = None
        self._answer = answer

    def spec(self, name: str) -> dict[str, Any]:
        kind = "sse" if self._sse else "http"
        return {"type": kind, "name": name, "url": self.address, "headers": []}

    async def _serve(self, stream: SocketStream) -> None:
        buffered = BufferedByteReceiveStream(stream)
        async with stream:
            with contextlib.suppress(anyio.IncompleteRead, anyio.BrokenResourceError):
                while True:
                    head = (await buffered.receive_until(b"\r\n\r\n", 100_000)).decode()
                    [size] = re.findall(r"(?i)content-length: (\d+)", head) or [0]
                    sent = await buffered.receive_exactly(int(size)) if int(size) else b"{}"
                    message = json.loads(sent)
                    [session] = re.findall(r"(?i)mcp-session-id: (.+)\r", head) or [None]
                    method = message.get("method") or head.partition(" ")[0]
                    asked = Asked(method, message.get("id"), session)
                    self.asked.append(asked)
                    if not self._sse:
                        answer = self._answer(asked)
                        await stream.send(answer.removesuffix(CLOSE))
                        if answer.endswith(CLOSE):
                            return
                    elif method == "GET":
                        await stream.send(self.start)
                        self._events = stream
                    else:
                        await stream.send(await self._pushed(self._answer(asked)))

    async def _pushed(self, answer: bytes) -> bytes:
        """Sends an answer on the stream of events; returns what the request itself gets."""
        if not answer.startswith(b"HTTP/1.1 200"):
            return answer
        assert self._events
        await self._events.send(_event("message", answer.partition(b"\r\n\r\n")[2]))
        return body(b"", status=202)


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _event(name: str, data: bytes) -> bytes:
    event = b"event: " + name.encode() + b"\ndata: " + data.strip() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def answered(asked: Asked, session: str = "") -> bytes:
    """Returns the usual answer. `session`: the id of the session that it begins."""
    if asked.id is None:
        return body(b"", status=405 if asked.method == "GET" else 202)
    found = {"jsonrpc": "2.0", "id": asked.id, "result": RESULTS[asked.method]}
    return body(json.dumps(found).encode(), session=session)


def body(
    data: bytes, kind: str = "application/json", status: int = 200, session: str = ""
) -> bytes:
    fields = [
        f"HTTP/1.1 {status} x",
        *([f"content-type: {kind}"] if kind else []),
        *([f"mcp-session-id: {session}"] if session else []),
        f"content-length: {len(data)}",
    ]
    return "\r\n".join(fields).encode() + b"\r\n\r\n" + data


def events(data: bytes) -> bytes:
    return body(data, "text/event-stream")
