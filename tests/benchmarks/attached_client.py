"""A further client, in a process of its own: attaches to a session over a socket, and reads.

    python attached_client.py SOCKET SESSION_ID [--full]
    python attached_client.py --remote PORT SESSION_ID [--full]

The second form comes to a server on this port over WebSocket, with the token in the environment
variable `TOKEN`. It writes two lines of JSON: `{"seconds", "updates"}` when it is attached, the
time since it began to connect; `{"updates", "ended", "lag"}` when it has as many updates as the
line on its stdin says, or the bridge has hung up before. `lag`: seconds that the first of them took
from the agent to here, the median.
"""

import json
import os
import re
import select
import socket
import statistics
import sys
import time
from typing import Any

#: seconds; nothing that is waited for takes so long.
LIMIT = 60
#: updates whose way is timed, if the agent has written into them when it began.
TIMED = 40
_STAMP = re.compile(rb"@(\d+) ")


class Attached:
    """A connection to a bridge that counts updates and looks into none."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._rest = b""
        self.updates = 0
        self._timed: list[tuple[float, bytes]] = []
        self.ended = False

    def call(self, request_id: int, method: str, params: dict[str, Any]) -> None:
        """Returns when the request is answered; raises RuntimeError for an error."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self._send(json.dumps(message).encode())
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and not self.ended:
            if self.wait([]):
                for answer in self.read():
                    if answer.get("id") == request_id and "method" not in answer:
                        if "error" in answer:
                            raise RuntimeError(str(answer))
                        return
        raise RuntimeError(f"no answer to {method}")

    def wait(self, others: list[Any]) -> list[Any]:
        return select.select([self._socket, *others], [], [], LIMIT)[0]

    def read(self) -> list[dict[str, Any]]:
        """What came at once and is no update."""
        data = self._socket.recv(1 << 20)
        at = time.monotonic()
        self.ended = not data
        lines = self._lines(data)
        others = [line for line in lines if b'"session/update"' not in line]
        self.updates += len(lines) - len(others)
        if len(self._timed) < TIMED:
            self._timed += [(at, line) for line in lines if b'"session/update"' in line]
        return [json.loads(line) for line in others]

    @property
    def lag(self) -> float:
        """Seconds that the first updates took, the median."""
        found = [(at, _STAMP.search(line)) for at, line in self._timed[:TIMED]]
        return statistics.median([at - int(stamp[1]) / 1e6 for at, stamp in found if stamp] or [0])

    def _send(self, message: bytes) -> None:
        self._socket.sendall(message + b"\n")

    def _lines(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class Remote(Attached):
    """The same over WebSocket, as plainly."""

    def __init__(self, port: str, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", int(port)))
        lines = [
            *("GET /acp HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket"),
            *("Connection: Upgrade", "Sec-WebSocket-Version: 13"),
            *("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", f"Authorization: Bearer {token}"),
        ]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(1)
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise RuntimeError(answer.decode())
        self._rest = b""
        self.updates = 0
        self._timed = []
        self.ended = False

    def _send(self, message: bytes, opcode: int = 1) -> None:
        size = len(message)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        self._socket.sendall(bytes([0x80 | opcode]) + length + bytes(4) + message)

    def _lines(self, data: bytes) -> list[bytes]:
        data, at, lines = self._rest + data, 0, list[bytes]()
        while len(data) >= at + 2:
            size, begin = data[at + 1], at + 2
            if size >= 126:
                begin += 2 if size == 126 else 8
                size = int.from_bytes(data[at + 2 : begin], "big")
            if len(data) < begin + size:
                break
            if data[at] & 15 == 1:
                lines.append(data[begin : begin + size])
            elif data[at] & 15 == 9:
                self._send(data[begin : begin + size], 10)
            at = begin + size
        self._rest = data[at:]
        return lines


def main(*options: str) -> None:
    began = time.monotonic()
    remote = options[0] == "--remote"
    where, session_id, *_ = options[1:] if remote else options
    client = Remote(where, os.environ["TOKEN"]) if remote else Attached(where)
    client.call(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    params = {"sessionId": session_id, "history": "full" if "--full" in options else "none"}
    client.call(2, "_acp_bridge/attach", params)
    seconds = time.monotonic() - began
    print(json.dumps({"seconds": seconds, "updates": client.updates}), flush=True)
    while not client.ended and sys.stdin not in (ready := client.wait([sys.stdin])):
        if ready:
            client.read()
    wanted = int(sys.stdin.readline() or 0)
    while not client.ended and client.updates < wanted and client.wait([]):
        client.read()
    told = {"updates": client.updates, "ended": client.ended, "lag": client.lag}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
