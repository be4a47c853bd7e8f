"""A client on a socket: lines in, lines out, and the end of the connection."""

import json
import socket
from pathlib import Path
from typing import Any

import anyio

Json = dict[str, Any]


class Talk:
    """A connection to a bridge; owns its socket."""

    def __init__(self, path: str | Path) -> None:
        """Connect; raises OSError."""
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.connect(str(path))
        except BaseException:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self._read = b""

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def line(self) -> Json | None:
        """The next line; None at the end of the connection."""
        with anyio.fail_after(5):
            while b"\n" not in self._read:
                await anyio.wait_readable(self.socket)
                try:
                    piece = self.socket.recv(1 << 16)
                except ConnectionResetError:  # what was sent was not read
                    piece = b""
                if not piece:
                    return None
                self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        found: Json = json.loads(line)
        return found

    async def answer(self, request_id: object) -> Json:
        """The answer to a request; what comes before it is dropped."""
        while (line := await self.line()) is not None:
            if "method" not in line and line["id"] == request_id:
                return line
        raise AssertionError("the connection has ended")

    async def ask(self, method: str, params: Json, request_id: int = 0) -> Any:
        self.send(id=request_id, method=method, params=params)
        answer = await self.answer(request_id)
        return answer.get("result", answer.get("error"))

    async def refusal(self) -> str:
        """The error of the only line, behind which the connection has ended."""
        line = await self.line()
        assert line is not None
        assert (line["id"], line["error"]["code"]) == (None, -32600)
        assert line["error"]["data"] == {"details": line["error"]["message"]}
        assert await self.line() is None
        return str(line["error"]["message"])

    def close(self) -> None:
        self.socket.close()
