"""A model on the loopback: OpenAI's chat completions and responses, streamed.

The last user text that says `COUNT n GAP TAG` decides: n words `TAG0 TAG1 ...`, GAP milliseconds
apart. Everything that a request gave the model is kept, so that a test can see what is remembered.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_ASKED = re.compile(r"COUNT (\d+) (\d+) ([A-Z]+)")
_USAGE = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}
Json = dict[str, Any]


def flat(content: Any) -> str:
    """Every text in a message's content."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(flat(item) for item in content)
    return flat(content.get("text") or content.get("content") or "") if content else ""


class ModelServer(ThreadingHTTPServer):
    """`with ModelServer() as server`; `given` is what each request held, as one text."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.given: list[str] = []
        self.port = self.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()

    def given_for(self, tag: str) -> str:
        """What the last request for these words held."""
        asked = [text for text in self.given if f" {tag}" in _last_asked(text)]
        return asked[-1] if asked else ""


def _last_asked(text: str) -> str:
    found = _ASKED.findall(text)
    return f"COUNT {' '.join(found[-1])}" if found else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._whole({"object": "list", "data": [{"id": "bench", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = body.get("messages") or body.get("input") or []
        text = "\n".join(flat(message) for message in messages)
        self.server.given.append(text)
        found = _ASKED.findall(text)
        count, gap, tag = found[-1] if found else ("1", "0", "OK")
        words = self._words(int(count), int(gap), tag)
        if self.path.endswith("/responses"):
            self._stream(_responses(words))
        elif body.get("stream"):
            self._stream(_chat(words))
        else:
            message = {"role": "assistant", "content": "".join(words)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._whole({"id": "1", "object": "chat.completion", "choices": [choice]})

    @staticmethod
    def _words(count: int, gap: int, tag: str) -> Iterator[str]:
        for number in range(count):
            if number:
                time.sleep(gap / 1000)
            yield f"{tag}{number} "

    def _whole(self, value: Json) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[Json | None]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for each in events:
                kind = f"event: {each['type']}\n" if each and "type" in each else ""
                data = "[DONE]" if each is None else json.dumps(each)
                self.wfile.write(f"{kind}data: {data}\n\n".encode())
                self.wfile.flush()
        except OSError:
            return


def _chat(words: Iterator[str]) -> Iterator[Json | None]:
    base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    for word in words:
        delta = {"role": "assistant", "content": word}
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield {**base, "choices": [], "usage": usage}
    yield None


def _responses(words: Iterator[str]) -> Iterator[Json]:
    response: Json = {"id": "resp_1", "object": "response", "output": []}
    item: Json = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    running = {**response, "status": "in_progress"}
    yield {"type": "response.created", "response": running}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    said = ""
    for word in words:
        said += word
        at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        yield {"type": "response.output_text.delta", **at, "delta": word}
    content = [{"type": "output_text", "text": said, "annotations": []}]
    done = {**item, "status": "completed", "content": content}
    yield {"type": "response.output_item.done", "output_index": 0, "item": done}
    ended = {**response, "status": "completed", "output": [done], "usage": _USAGE}
    yield {"type": "response.completed", "response": ended}
