"""A client that floods a server: `python flooder.py PLAN`, a JSON object (`Plan` in `floods.py`).

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

#: bytes of what is sent again and again, and the most connections in a second.
BLOB = 1 << 18
MOST_NEW = 200


def frame(opcode, data=b"", fin=True, length=None):
    """A masked frame, whose mask changes nothing; `length`: what its header says."""
    size = len(data) if length is None else length
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += b"\xfe" + struct.pack("!H", size)
    else:
        head += b"\xff" + struct.pack("!Q", size)
    return head + bytes(4) + data


def asked(number):
    asks = {"jsonrpc": "2.0", "id": number, "method": "session/list", "params": {}}
    return frame(1, json.dumps(asks).encode())


#: what each kind sends first on a connection, and then without end; None: it sends no more.
HELLO = {"protocolVersion": 1, "clientCapabilities": {}}
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
KINDS = {
    "requests": (b"", b"".join(map(asked, range(1, 3000)))),
    "pings": (b"", frame(9) * (BLOB // 6)),
    "long-pings": (b"", frame(9, b"x" * 125) * (BLOB // 131)),
    "empty-fragments": (frame(1, b"{", fin=False), frame(0, fin=False) * (BLOB // 6)),
    "small-fragments": (frame(1, b"{", fin=False), frame(0, b"1", fin=False) * (BLOB // 7)),
    "binary": (b"", frame(2, b"1") * (BLOB // 7)),
    "half": (frame(1, b"{" + b" " * (30 << 20), length=60 << 20), None),
}


class Connection:
    def __init__(self, plan):
        self.plan = plan
        self.raw = socket.create_connection(("127.0.0.1", plan["port"]), timeout=5)
        if plan["cafile"]:
            context = ssl.create_default_context(cafile=plan["cafile"])
            self.raw = context.wrap_socket(self.raw, server_hostname="127.0.0.1")
        lines = [
            f"GET {plan['path']} HTTP/1.1", f"Host: 127.0.0.1:{plan['port']}",
            "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *plan["header"], "", "",
        ]  # fmt: skip
        self.raw.sendall("\r\n".join(lines).encode())
        answer = self.raw.recv(4096)
        self.status = answer[9:12].decode() or "cut"
        first, self.blob = KINDS[plan["kind"]]
        if plan["path"] == "/page":
            hello = json.dumps(plan["hello"]).encode() if plan["hello"] else b""
            first = (frame(1, hello) if hello else b"") + first
            if self.blob and plan["kind"] == "requests":
                self.blob = frame(1, b'{"do": "here"}') * (BLOB // 20)
        else:
            first = frame(1, json.dumps(INITIALIZE).encode()) + first
        self.left = memoryview(first or self.blob or b"")
        self.sent = 0
        self.raw.setblocking(False)

    def go_on(self):
        """Send and read what goes at once; raises OSError at the end of the connection."""
        try:
            if self.left:
                taken = self.raw.send(self.left)
                self.sent += taken
                self.left = self.left[taken:]
                if not self.left and self.blob:
                    self.left = memoryview(self.blob)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        if self.plan["reads"]:
            try:
                if not self.raw.recv(1 << 18):
                    raise OSError("closed")
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass


def main(plan):
    os.nice(5)  # the server is measured, and not who gets the processor
    until, opened, sent, told = time.monotonic() + plan["seconds"], 0, 0, {}
    wanted = plan["connections"]
    at_work = []
    with selectors.DefaultSelector() as selector:
        while time.monotonic() < until:
            while len(at_work) < wanted and opened < MOST_NEW * plan["seconds"]:
                opened += 1
                try:
                    new = Connection(plan)
                except OSError as why:
                    told[str(why)] = told.get(str(why), 0) + 1
                    break
                told[new.status] = told.get(new.status, 0) + 1
                at_work.append(new)
                events = selectors.EVENT_READ | selectors.EVENT_WRITE
                selector.register(new.raw, events if plan["reads"] else selectors.EVENT_WRITE, new)
            for key, _ in selector.select(0.05):
                one = key.data
                try:
                    one.go_on()
                except OSError:
                    selector.unregister(one.raw)
                    one.raw.close()
                    at_work.remove(one)
                    sent += one.sent
            if all(not each.left for each in at_work):
                time.sleep(0.02)
        sent += sum(each.sent for each in at_work)
        for each in at_work:
            each.raw.close()
    print(json.dumps({"answers": told, "sent": sent}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
