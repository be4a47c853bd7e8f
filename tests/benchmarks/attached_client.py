"""A further client, in a process of its own: attaches to a session over a socket, and reads.

    python attached_client.py SOCKET SESSION_ID [--replay]

It writes two lines of JSON: `{"seconds", "updates"}` when it is attached, the time since it began
to connect; `{"updates", "ended"}` when it has as many updates as the line on its stdin says, or
the bridge has hung up before.
"""

import json
import select
import socket
import sys
import time
from typing import Any

#: seconds; nothing that is waited for takes so long.
LIMIT = 60


class Attached:
    """A connection to a bridge that counts updates and looks into none."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._rest = b""
        self.updates = 0
        self.ended = False

    def call(self, request_id: int, method: str, params: dict[str, Any]) -> None:
        """Returns when the request is answered; raises RuntimeError for an error."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self._socket.sendall(json.dumps(message).encode() + b"\n")
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
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        others = [line for line in lines if b'"session/update"' not in line]
        self.updates += len(lines) - len(others)
        return [json.loads(line) for line in others]


def main(path: str, session_id: str, *options: str) -> None:
    began = time.monotonic()
    client = Attached(path)
    client.call(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    params = {"sessionId": session_id, "replay": "--replay" in options}
    client.call(2, "_acp_bridge/attach", params)
    seconds = time.monotonic() - began
    print(json.dumps({"seconds": seconds, "updates": client.updates}), flush=True)
    while not client.ended and sys.stdin not in (ready := client.wait([sys.stdin])):
        if ready:
            client.read()
    wanted = int(sys.stdin.readline() or 0)
    while not client.ended and client.updates < wanted and client.wait([]):
        client.read()
    print(json.dumps({"updates": client.updates, "ended": client.ended}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
