"""A model's server for measuring: OpenAI's chat completions on the loopback, one event a word.

    python model.py        prints its base URL, then serves until its stdin ends

`stream N GAP` in the last prompt: N words `@<monotonic microseconds> `, GAP ms apart, stamped when
they are written. `shell COMMAND`: a call of the tool `shell`. Anything else: one word.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from typing import Any

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT = (
    '{"id":"c","object":"chat.completion.chunk","created":1,"model":"bench",'
    '"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'
)


def _chunk(event: str) -> bytes:
    data = f"data: {event}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def _request(stream: Any) -> dict[str, Any] | None:
    size = 0
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    return json.loads(stream.read(size)) if size else None


def _prompt(body: dict[str, Any]) -> str:
    """The last message, if it is the user's."""
    last = body["messages"][-1]
    content = last["content"] if last["role"] == "user" else ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    return str(content)


def _answer(connection: socket.socket, body: dict[str, Any]) -> None:
    verb, _, rest = _prompt(body).partition(" ")
    connection.sendall(_HEAD)
    end = '"stop"'
    if verb == "shell":
        function = {"name": "shell", "arguments": json.dumps({"command": rest})}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        connection.sendall(_chunk(_EVENT % (json.dumps({"tool_calls": [call]}), "null")))
        end = '"tool_calls"'
    else:
        count, gap = rest.split() if verb == "stream" else ("1", "0")
        for number in range(int(count)):
            if number and gap != "0":
                time.sleep(float(gap) / 1000)
            word = f'{{"content":"@{time.monotonic() * 1e6:.0f} "}}'
            connection.sendall(_chunk(_EVENT % (word, "null")))
    connection.sendall(_chunk(_EVENT % ("{}", end)) + _chunk("[DONE]") + b"0\r\n\r\n")


def _serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as stream:
        try:
            while body := _request(stream):
                _answer(connection, body)
        except OSError:  # the client has gone
            pass


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", flush=True)

    def accept() -> None:
        while True:
            threading.Thread(target=_serve, args=listener.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
