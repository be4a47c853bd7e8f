"""The agent-server's model: a thread of the tests' process that speaks OpenAI's chat completions.

The last user text decides; the agent-server merges user messages that follow one another, so it is
the last part of the last of them:

    SAY A 5               words "A0 A1 A2 A3 A4 "
    SAY A 5 GATE g AT 2   the same, and the third only when the test opens the gate g
    THINK A 5             a thought "At0 ...", then words "A0 ..."
    TOOL name {"a": 1}    "I call. " and a tool call; one on each line, all in one answer
    REFUSE 400            an HTTP status

After a tool's result it says "DONE" and the result's first word.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Self

Json = dict[str, Any]
_SAY = re.compile(r"(SAY|THINK) ([A-Z]+) (\d+)(?: GATE (\w+) AT (\d+))?")
_TOOL = re.compile(r"^TOOL (\w+) (\{.*\})$", re.MULTILINE)
_REFUSE = re.compile(r"REFUSE (\d+)")
_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
#: a key that no client may be shown
SECRET = "sk-abcdefghijklmnopqrstuvwxyz012345"
TITLE = "A title by the model"


def words(tag: str, number: int) -> str:
    """What SAY makes the model say."""
    return "".join(f"{tag}{i} " for i in range(number))


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer, perhaps behind a gate."""

    kind: str
    text: str
    #: a tool's arguments
    arguments: str = ""
    gate: str | None = None


class ModelServer(ThreadingHTTPServer):
    """`with ModelServer() as model`; `requests` are the bodies that came."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Json] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.ids = count(1)
        self._gates: dict[str, threading.Event] = {}

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.begin_test()
        self.shutdown()
        self.server_close()

    def begin_test(self) -> None:
        """Forgets what was asked, and the gates, which are opened for whoever still waits there."""
        self.requests.clear()
        for gate in self._gates.values():
            gate.set()
        self._gates.clear()

    def gate(self, name: str) -> threading.Event:
        return self._gates.setdefault(name, threading.Event())

    def open(self, name: str) -> None:
        self.gate(name).set()

    def asked(self, text: str) -> list[Json]:
        """The requests of turns whose last user text is this one."""
        return [body for body in self.requests if body.get("stream") and _asked(body) == text]

    def heard(self, body: Json) -> str:
        """All that a request says, as one text."""
        return "\n".join(_text(message.get("content")) for message in body["messages"])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *args: object) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        if refused := _REFUSE.search(_asked(body)):
            message = f"the model is sorry: {SECRET} {'x' * 900}"
            self._whole({"error": {"message": message}}, int(refused[1]))
        elif body.get("stream"):
            self._stream(_answer(body))
        else:
            self._whole(self._message(_answer(body)))

    def _whole(self, value: Json, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _message(self, pieces: Iterator[Piece]) -> Json:
        text = "".join(piece.text for piece in pieces if piece.kind == "content")
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        about = {"id": "1", "object": "chat.completion", "created": 1, "model": "bench"}
        return {**about, "choices": [choice], "usage": _USAGE}

    def _stream(self, pieces: Iterator[Piece]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        calls = count()
        reason = "stop"
        try:
            for piece in pieces:
                if piece.gate:
                    self.server.gate(piece.gate).wait(120)
                if piece.kind == "call":
                    reason = "tool_calls"
                self._say(self._delta(piece, calls))
            self._say({}, reason)
            self._event({"choices": [], "usage": _USAGE})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            return

    def _delta(self, piece: Piece, calls: Iterator[int]) -> Json:
        if piece.kind != "call":
            return {"role": "assistant", piece.kind: piece.text}
        function = {"name": piece.text, "arguments": piece.arguments}
        call = {"id": f"call_{next(self.server.ids)}", "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [{"index": next(calls), **call}]}

    def _say(self, delta: Json, reason: str | None = None) -> None:
        self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    def _event(self, value: Json) -> None:
        base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
        self.wfile.write(f"data: {json.dumps({**base, **value})}\n\n".encode())
        self.wfile.flush()


def _answer(body: Json) -> Iterator[Piece]:
    last = body["messages"][-1]
    if last["role"] == "tool":
        result = _text(last["content"]).split()
        yield Piece("content", f"DONE {result[0] if result else ''} ")
        return
    asked = _asked(body)
    if asked.startswith("Generate a title"):
        yield Piece("content", TITLE)
    elif calls := _TOOL.findall(asked):
        yield Piece("content", "I call. ")
        yield from (Piece("call", name, arguments) for name, arguments in calls)
    elif said := _SAY.search(asked):
        yield from _said(said)
    else:
        yield Piece("content", "OK ")


def _said(said: re.Match[str]) -> Iterator[Piece]:
    kind, tag, number, gate, at = said.groups()
    if kind == "THINK":
        yield from (Piece("reasoning_content", f"{tag}t{i} ") for i in range(int(number)))
    for i in range(int(number)):
        yield Piece("content", f"{tag}{i} ", gate=gate if gate and i == int(at) else None)


def _asked(body: Json) -> str:
    """The last part of the last message of the user."""
    for message in reversed(body["messages"]):
        if message["role"] == "user":
            content = message["content"]
            return _text(content[-1]) if isinstance(content, list) else str(content)
    return ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(part) for part in content)
    return str(content.get("text", "")) if isinstance(content, dict) else ""
