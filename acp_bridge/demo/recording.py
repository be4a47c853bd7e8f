"""The recording of a client of the demo: every line that it got and sent, with its time. No I/O.

The checks judge recordings. They hold the bytes as they went over the pipe, and notes about
processes: those that the client killed, and those that it saw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]
#: A line `in` came from the bridge, one `out` went to it, a `note` is the client's own.
Direction = Literal["in", "out", "note"]

#: The notification that a prompt is on the disk, for a client that asked for it.
ACCEPTED = "_acp_bridge/accepted"
#: The updates that are the conversation, and who speaks in each.
SPEAKERS = {
    "user_message_chunk": "user",
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
}


class Unexpected(Exception):
    """The recording is not as it must be."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}, seen {seen}")
        self.expected = expected
        self.seen = seen


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: the time measured, in seconds, and a word or two on what was seen."""

    seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line, newline excluded; `time` in seconds of a monotonic clock."""

    direction: Direction
    time: float
    raw: bytes
    #: the JSON object in the bytes; empty if they hold none.
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
    #: the bridge itself said it.
    notice: bool = False


class Recording(list[Line]):
    """The lines of one client, in order. Places are indexes into it."""

    def sent(self, request_id: int) -> int:
        """Return the place where a request was sent; raises Unexpected if it was not."""
        for at, line in enumerate(self):
            message = line.message
            if line.direction == "out" and "method" in message and message.get("id") == request_id:
                return at
        raise Unexpected(f"a request {request_id}", "none was sent")

    def answers(self, request_id: int) -> list[int]:
        """Return the places of the answers to a request; there should be one."""
        return [
            at
            for at, line in enumerate(self)
            if line.direction == "in"
            and "method" not in line.message
            and line.message.get("id") == request_id
        ]

    def requests(self) -> list[int]:
        """Return the ids of all requests that were sent, in order."""
        return [
            line.message["id"]
            for line in self
            if line.direction == "out" and "method" in line.message and "id" in line.message
        ]

    def text_of(self, request_id: int) -> str:
        """Return the words of a prompt, or the method of another request."""
        message = self[self.sent(request_id)].message
        prompt = message["params"].get("prompt")
        return str(prompt[0]["text"]) if prompt else str(message["method"])

    def places(self, method: str, direction: Direction = "in") -> list[int]:
        """Return the places of requests and notifications with this method."""
        return [
            at
            for at, line in enumerate(self)
            if line.direction == direction and line.message.get("method") == method
        ]

    def notes(self, name: str) -> list[Line]:
        """Return the notes with a fact of this name."""
        return [line for line in self if line.direction == "note" and name in line.message]

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """Give the conversation as it was shown between two places, the end excluded."""
        for at in range(start, len(self) if end is None else end):
            line = self[at]
            if line.direction != "in" or line.message.get("method") != "session/update":
                continue
            params = line.message["params"]
            update, own = params["update"], params.get("_meta", {}).get("acp_bridge", {})
            if speaker := SPEAKERS.get(update["sessionUpdate"]):
                text = update["content"].get("text", "")
                yield Chunk(at, speaker, text, update.get("messageId"), "notice" in own)
