"""What the model server can say, and how it looks in the two forms that it speaks.

A reply is a list of steps; what it doesn't say itself (the usage, the end) is added.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Json = dict[str, Any]


@dataclass(frozen=True)
class Text:
    words: str


@dataclass(frozen=True)
class Think:
    """`signature` ends the thought; `hidden`: what a redacted one has instead of words. Both are
    Anthropic's alone."""

    words: str
    signature: str = ""
    hidden: str = ""


@dataclass(frozen=True)
class Call:
    """A tool call begins, with the first piece of its arguments."""

    name: str
    arguments: str = ""
    id: str | None = None


@dataclass(frozen=True)
class More:
    """A further piece of the arguments of the call with that number."""

    call: int
    arguments: str


@dataclass(frozen=True)
class Event:
    """Any JSON as an event."""

    value: Any


@dataclass(frozen=True)
class Raw:
    """Bytes of the body as they are."""

    data: bytes


@dataclass(frozen=True)
class Gate:
    """Nothing more before the test opens it: `server.open(name)`."""

    name: str


@dataclass(frozen=True)
class Pings:
    """Comments, which keep the connection open for as long as the client reads."""


@dataclass(frozen=True)
class Cut:
    """The connection ends here."""


@dataclass(frozen=True)
class Short:
    """The body ends here as it should, and the answer doesn't."""


@dataclass(frozen=True)
class Status:
    """Instead of an answer: an HTTP status. `body`: an object, or what Anthropic and OpenAI call
    the error's type."""

    code: int
    body: Json | str = "some_error"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def json(self) -> Json:
        if isinstance(self.body, dict):
            return self.body
        return {"type": "error", "error": {"type": self.body, "message": f"{self.body}: sorry"}}


@dataclass(frozen=True)
class Body:
    """Instead of an answer: the whole body, with status 200."""

    data: bytes


@dataclass(frozen=True)
class End:
    """How the answer ends, in the words of the form: `finish_reason`, `stop_reason`."""

    reason: str


@dataclass(frozen=True)
class Count:
    input: int = 10
    output: int = 5
    cached: int = 0
    written: int = 0


Step = (
    Text
    | Think
    | Call
    | More
    | Event
    | Raw
    | Body
    | Gate
    | Pings
    | Cut
    | Short
    | Status
    | End
    | Count
)


class Writer(Protocol):
    """The events of one answer."""

    #: the reason and the usage, said at the end
    reason: str | None
    count: Count

    def begin(self) -> bytes: ...

    def write(self, step: Text | Think | Call | More) -> bytes: ...

    def end(self) -> bytes: ...


def sse(value: Any, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


#: messages and items have ids of their own, as with a provider.
IDS = itertools.count(1)


class ChatWriter:
    """OpenAI's chat completions."""

    def __init__(self, body: Json) -> None:
        self.reason: str | None = None
        self.count = Count()
        self._counts = bool((body.get("stream_options") or {}).get("include_usage"))
        self._calls = itertools.count()
        self._called = False
        self._base = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": body.get("model"),
        }

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": None})

    def write(self, step: Text | Think | Call | More) -> bytes:
        match step:
            case Text(words):
                return self._chunk({"content": words})
            case Think(words):
                return self._chunk({"reasoning_content": words})
            case Call(name, arguments, id):
                self._called = True
                index = next(self._calls)
                function = {"name": name, "arguments": arguments}
                call = {"id": id or f"call_{index}", "type": "function", "function": function}
                return self._chunk({"tool_calls": [{"index": index, **call}]})
            case More(index, arguments):
                more: Json = {"index": index, "function": {"arguments": arguments}}
                return self._chunk({"tool_calls": [more]})

    def end(self) -> bytes:
        reason = self.reason or ("tool_calls" if self._called else "stop")
        usage = {
            "prompt_tokens": self.count.input,
            "completion_tokens": self.count.output,
            "total_tokens": self.count.input + self.count.output,
            "prompt_tokens_details": {"cached_tokens": self.count.cached},
        }
        counted = sse({**self._base, "choices": [], "usage": usage}) if self._counts else b""
        return self._chunk({}, reason) + counted + b"data: [DONE]\n\n"

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return sse({**self._base, "choices": [choice]})


class MessagesWriter:
    """Anthropic's messages."""

    def __init__(self, body: Json) -> None:
        self.reason: str | None = None
        self.count = Count()
        self._model = body.get("model")
        self._blocks = 0
        self._open: tuple[Literal["text", "think"], int] | None = None
        self._calls: list[int] = []

    def begin(self) -> bytes:
        usage = {
            "input_tokens": self.count.input,
            "cache_read_input_tokens": self.count.cached,
            "cache_creation_input_tokens": self.count.written,
            "output_tokens": 1,
        }
        message: Json = {
            "id": f"msg_{next(IDS)}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "usage": usage,
        }
        return self._event("message_start", message=message) + self._event("ping")

    def write(self, step: Text | Think | Call | More) -> bytes:
        match step:
            case Text(words):
                begun, index = self._block("text", {"type": "text", "text": ""})
                return begun + self._delta(index, "text_delta", text=words)
            case Think(hidden=hidden) if hidden:
                self._open = None
                return self._start({"type": "redacted_thinking", "data": hidden})[0]
            case Think(words, signature):
                begun, index = self._block("think", {"type": "thinking", "thinking": ""})
                said = self._delta(index, "thinking_delta", thinking=words) if words else b""
                if signature:
                    self._open = None
                    said += self._delta(index, "signature_delta", signature=signature)
                return begun + said
            case Call(name, arguments, id):
                self._open = None
                id = id or f"toolu_{len(self._calls)}"
                begun, index = self._start(
                    {"type": "tool_use", "id": id, "name": name, "input": {}}
                )
                self._calls.append(index)
                return begun + self._delta(index, "input_json_delta", partial_json=arguments)
            case More(call, arguments):
                index = self._calls[call]
                return self._delta(index, "input_json_delta", partial_json=arguments)

    def end(self) -> bytes:
        reason = self.reason or ("tool_use" if self._calls else "end_turn")
        delta = {"stop_reason": reason, "stop_sequence": None}
        usage = {"output_tokens": self.count.output}
        ended = self._event("message_delta", delta=delta, usage=usage)
        return self._stop() + ended + self._event("message_stop")

    def _block(self, kind: Literal["text", "think"], block: Json) -> tuple[bytes, int]:
        if self._open is not None and self._open[0] == kind:
            return b"", self._open[1]
        begun, index = self._start(block)
        self._open = (kind, index)
        return begun, index

    def _start(self, block: Json) -> tuple[bytes, int]:
        stopped, index = self._stop(), self._blocks
        self._blocks += 1
        begun = self._event("content_block_start", index=index, content_block=block)
        return stopped + begun, index

    def _stop(self) -> bytes:
        """The end of the block before."""
        if not self._blocks:
            return b""
        return self._event("content_block_stop", index=self._blocks - 1)

    def _delta(self, index: int, type: str, **fields: Any) -> bytes:
        return self._event("content_block_delta", index=index, delta={"type": type, **fields})

    def _event(self, type: str, **fields: Any) -> bytes:
        return sse({"type": type, **fields}, type)
