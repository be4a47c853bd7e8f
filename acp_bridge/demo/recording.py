"""What a client of the demo saw and sent: every line, with its time. No I/O.

A recording is what the checks judge. It holds the bytes as they went over the pipe, and notes
about what the client did to processes, which no pipe tells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]
#: `in` came from the bridge, `out` went to it, `note` is the client's own.
Direction = Literal["in", "out", "note"]

#: What the bridge tells once a prompt is on the disk, to a client that asked for it.
ACCEPTED = "_acp_bridge/accepted"
#: Updates that tell the conversation, by what a user sees.
SPEAKERS = {
    "user_message_chunk": "user",
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
}


class Unexpected(Exception):
    """What was recorded is not what must be."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}, seen {seen}")
        self.expected = expected
        self.seen = seen


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check measured, in seconds, and saw, in a word or two."""

    seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line, newline excluded; `time` in seconds of a monotonic clock."""

    direction: Direction
    time: float
    raw: bytes
    #: what the bytes say; empty if they are no JSON object.
    message: Message = field(compare=False, repr=False)

    @classmethod
    def of(cls, direction: Direction, time: float, raw: bytes) -> Line:
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        return cls(direction, time, raw, value if isinstance(value, dict) else {})


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the conversation, as an update showed it; `at` is its place in the recording."""

    at: int
    speaker: str
    text: str
    message_id: str | None


class Recording(list[Line]):
    """The lines of one client, in order. Places are indexes into it."""

    def sent(self, request_id: int) -> int:
        """Where a request went out; raises Unexpected if it didn't."""
        for at, line in enumerate(self):
            message = line.message
            if line.direction == "out" and "method" in message and message.get("id") == request_id:
                return at
        raise Unexpected(f"a request {request_id}", "none was sent")

    def answers(self, request_id: int) -> list[int]:
        """Where the answers to a request came in: there should be one."""
        return [
            at
            for at, line in enumerate(self)
            if line.direction == "in"
            and "method" not in line.message
            and line.message.get("id") == request_id
        ]

    def requests(self) -> list[int]:
        """The ids of all requests that went out, in order."""
        return [
            line.message["id"]
            for line in self
            if line.direction == "out" and "method" in line.message and "id" in line.message
        ]

    def text_of(self, request_id: int) -> str:
        """The words of a prompt; the method of another request."""
        message = self[self.sent(request_id)].message
        prompt = message["params"].get("prompt")
        return str(prompt[0]["text"]) if prompt else str(message["method"])

    def places(self, method: str, direction: Direction = "in") -> list[int]:
        """Where this method was asked or told."""
        return [
            at
            for at, line in enumerate(self)
            if line.direction == direction and line.message.get("method") == method
        ]

    def notes(self, name: str) -> list[Line]:
        """The notes that say something of this name."""
        return [line for line in self if line.direction == "note" and name in line.message]

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """The conversation as it was shown between two places (the end excluded)."""
        for at in range(start, len(self) if end is None else end):
            line = self[at]
            if line.direction != "in" or line.message.get("method") != "session/update":
                continue
            update = line.message["params"]["update"]
            if speaker := SPEAKERS.get(update["sessionUpdate"]):
                text = update["content"].get("text", "")
                yield Chunk(at, speaker, text, update.get("messageId"))
