"""A client of an agent-server that does nothing but measure: raw sockets, one thread.

It is no part of the adapter, so that what the server itself takes is known beside what the adapter
and the bridge add.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import uuid
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Self

from tests.benchmarks.client import now

Json = dict[str, Any]


@dataclass
class Event:
    """What the server said, and when it was read."""

    at: float
    value: Json

    @property
    def words(self) -> str:
        """The text of a streamed piece, else nothing."""
        if self.value["kind"] != "StreamingDeltaEvent":
            return ""
        return str(self.value.get("content") or "")

    @property
    def status(self) -> str:
        """The new status, if that is what it tells."""
        is_status = self.value.get("key") == "execution_status"
        return str(self.value["value"]) if is_status else ""


class DirectClient:
    """One conversation: its messages over HTTP, its events over the WebSocket."""

    def __init__(self, port: int, key: str, profile: str, cwd: str) -> None:
        self._port, self._key = port, key
        self._http = HTTPConnection("127.0.0.1", port, timeout=60)
        self.conversation = str(uuid.uuid4())
        self.events: list[Event] = []
        workspace = {"kind": "LocalWorkspace", "working_dir": cwd}
        body = {"agent_profile_id": profile, "workspace": workspace}
        self.ask("POST", "/api/conversations", {"conversation_id": self.conversation, **body})
        self._socket = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.ask("POST", f"{self._at}/interrupt", {})
        self._socket.close()
        self._http.close()

    @property
    def _at(self) -> str:
        return f"/api/conversations/{self.conversation}"

    def ask(self, method: str, path: str, body: Json | None = None) -> Any:
        """The JSON of the answer; raises RuntimeError for a refusal."""
        headers = {"X-Session-API-Key": self._key, "Content-Type": "application/json"}
        self._http.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self._http.getresponse()
        value = json.loads(answer.read())
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {value}")
        return value

    def say(self, text: str, *, run: bool = True) -> tuple[float, float]:
        """When it was sent, and when it was answered."""
        content = [{"type": "text", "text": text}]
        sent = now()
        self.ask("POST", f"{self._at}/events", {"role": "user", "content": content, "run": run})
        return sent, now()

    def until_words(self, text: str, since: int, seconds: float = 60) -> Event:
        """The first streamed piece from there on that has this text."""
        return self._until(lambda event: text in event.words, since, seconds)

    def until_status(self, status: str, since: int, seconds: float = 60) -> Event:
        return self._until(lambda event: event.status == status, since, seconds)

    def _until(self, wanted: Any, since: int, seconds: float) -> Event:
        end = now() + seconds
        while True:
            while since < len(self.events):
                if wanted(self.events[since]):
                    return self.events[since]
                since += 1
            if now() > end:
                raise TimeoutError(f"not seen in {seconds} s")
            self._read()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET /sockets/events/{self.conversation} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        )
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1)
        auth = json.dumps({"type": "auth", "session_api_key": self._key}).encode()
        mask = b"\0\0\0\0"  # a mask of zeros leaves the data as it is
        connection.sendall(bytes([0x81, 0x80 | len(auth)]) + mask + auth)
        return connection

    def _read(self) -> None:
        first, length = self._exactly(2)
        if length in (126, 127):
            length = int.from_bytes(self._exactly(2 if length == 126 else 8))
        data = self._exactly(length)
        if first & 0x0F == 1:
            self.events.append(Event(now(), json.loads(data)))

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise EOFError("the agent-server closed the socket")
            data += more
        return data
