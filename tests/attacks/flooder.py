"""A client that floods a server: `python flooder.py PLAN`, a JSON object (`Served.plan`).

It runs alone, without this project's modules. It stays on the loopback, opens the connections that
the plan names, opens one again that the server has closed, and ends by itself.
"""

import json
import os
import selectors
import socket
import ssl
import struct
import sys
import time
from typing import Any

#: bytes of what is sent again and again, and the most connections in a second.
BLOB = 1 << 18
MOST_NEW = 200


def frame(opcode: int, data: bytes = b"", *, fin: bool = True, length: int | None = None) -> bytes:
    """Return a masked frame, whose mask changes nothing; `length`: what its header says."""
    size = len(data) if length is None else length
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += b"\xfe" + struct.pack("!H", size)
    else:
        head += b"\xff" + struct.pack("!Q", size)
    return head + bytes(4) + data


def asked(number: int) -> bytes:
    asks = {"jsonrpc": "2.0", "id": number, "method": "session/list", "params": {}}
    return frame(1, json.dumps(asks).encode())


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}
#: what each kind sends first on a connection, and then without end; b"": it sends no more.
KINDS = {
    "requests": (b"", b"".join(map(asked, range(1, 3000)))),
    "pings": (b"", frame(9) * (BLOB // 6)),
    "long-pings": (b"", frame(9, b"x" * 125) * (BLOB // 131)),
    "empty-fragments": (frame(1, b"{", fin=False), frame(0, fin=False) * (BLOB // 6)),
    "small-fragments": (frame(1, b"{", fin=False), frame(0, b"1", fin=False) * (BLOB // 7)),
    "binary": (b"", frame(2, b"1") * (BLOB // 7)),
    "half": (frame(1, b"{" + b" " * (30 << 20), length=60 << 20), b""),
}


def reached(plan: Any) -> socket.socket:
    """Return a connection to the server."""
    raw = socket.create_connection(("127.0.0.1", plan["port"]), timeout=5)
    if not plan["cafile"]:
        return raw
    context = ssl.create_default_context(cafile=plan["cafile"])
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def answered(raw: socket.socket, plan: Any) -> str:
    """Send the request for a WebSocket; returns the status of its answer."""
    lines = [
        f"GET {plan['path']} HTTP/1.1", f"Host: 127.0.0.1:{plan['port']}",
        "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *plan["header"], "", "",
    ]  # fmt: skip
    raw.sendall("\r\n".join(lines).encode())
    return raw.recv(4096)[9:12].decode() or "cut"


class Connection:
    """A connection that sends without end."""

    def __init__(self, plan: Any) -> None:
        self.raw = reached(plan)
        self.status = answered(self.raw, plan)
        self.reads = plan["reads"]
        first, self.blob = KINDS[plan["kind"]]
        hello: bytes = b""
        if plan["path"] == "/page":
            hello = frame(1, json.dumps(plan["hello"]).encode()) if plan["hello"] else b""
            if plan["kind"] == "requests":
                self.blob = frame(1, b'{"do": "here"}') * (BLOB // 20)
        else:
            hello = frame(1, json.dumps(INITIALIZE).encode())
        #: what is sent before the blob, and what of the present piece is left.
        self.first = [each for each in (first, hello) if each]
        self.left = self.next()
        self.sent = 0
        self.raw.setblocking(False)

    def next(self) -> memoryview:
        """Return the next piece to send; empty if there is none."""
        return memoryview(self.first.pop() if self.first else self.blob)

    def go_on(self) -> None:
        """Send and read what goes at once; raises OSError at the end of the connection."""
        try:
            if self.left:
                taken = self.raw.send(self.left)
                self.sent += taken
                self.left = self.left[taken:] if taken < len(self.left) else self.next()
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        if self.reads:
            try:
                if not self.raw.recv(1 << 18):
                    raise OSError("closed")
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass


def flood(plan: Any) -> dict[str, Any]:
    """Hold the connections that the plan names; returns what came of it."""
    until, opened, sent = time.monotonic() + plan["seconds"], 0, 0
    answers: dict[str, int] = {}
    at_work: list[Connection] = []
    events = selectors.EVENT_WRITE | (selectors.EVENT_READ if plan["reads"] else 0)
    with selectors.DefaultSelector() as selector:
        while time.monotonic() < until:
            while len(at_work) < plan["connections"] and opened < MOST_NEW * plan["seconds"]:
                opened += 1
                try:
                    new = Connection(plan)
                except OSError as why:
                    answers[str(why)] = answers.get(str(why), 0) + 1
                    break
                answers[new.status] = answers.get(new.status, 0) + 1
                at_work.append(new)
                selector.register(new.raw, events, new)
            for key, _ in selector.select(0.05):
                one = key.data
                try:
                    one.go_on()
                except OSError:
                    selector.unregister(one.raw)
                    one.raw.close()
                    at_work.remove(one)
                    sent += one.sent
            if not any(each.left for each in at_work):
                time.sleep(0.02)
    for each in at_work:
        each.raw.close()
    return {"answers": answers, "sent": sent + sum(each.sent for each in at_work)}


def guess(plan: Any) -> dict[str, Any]:
    """Send wrong tokens, each over a connection of its own, up to so many a second.

    `forks`: each comes from a process of its own.
    """
    began, tried = time.monotonic(), 0
    answers: dict[str, int] = {}
    while (now := time.monotonic()) < began + plan["seconds"]:
        if tried > (now - began) * plan["rate"]:
            time.sleep(0.0005)
            continue
        tried += 1
        if plan["forks"] and (pid := os.fork()):
            os.waitpid(pid, 0)
            continue
        try:
            with reached(plan) as raw:
                raw.settimeout(2)
                status = answered(raw, plan)
                if plan["hello"] and status == "101":
                    raw.sendall(frame(1, json.dumps(plan["hello"]).encode()))
                    raw.recv(4096)
        except OSError as why:
            status = str(why)
        if plan["forks"]:
            os._exit(0)
        answers[status] = answers.get(status, 0) + 1
    return {"answers": answers, "tried": tried}


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    if told["kind"] != "wrong":
        os.nice(5)  # the server is measured, and not who gets the processor
    print(json.dumps(guess(told) if told["kind"] == "wrong" else flood(told)))
