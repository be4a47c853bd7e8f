"""The recording of a client of the demo: every line that it got and sent, with its time. No I/O.

The checks judge recordings. They hold the bytes as they went over the socket, and notes about
processes: those that the client killed, and those that it saw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from acp_bridge.commands.terminal.view.blocks import Said, Voice
from acp_bridge.commands.terminal.view.from_updates import Updates
from acp_bridge.protocol import SESSION_UPDATE, Json
from acp_bridge.wire.json_values import as_object

#: A line `in` came from the bridge, one `out` went to it, a `note` is the client's own.
Direction = Literal["in", "out", "note"]


class Unexpected(Exception):
    """The recording is not as it must be."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}, seen {seen}")
        self.expected, self.seen = expected, seen


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: the time measured, in seconds, and a word or two on what was seen."""

    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, newline excluded; `time` in seconds of a monotonic clock."""

    direction: Direction
    time: float
    raw: bytes
    #: the JSON object in the bytes; empty if they hold none.
    message: Json = field(compare=False, repr=False)

    @classmethod
    def of(cls, direction: Direction, time: float, raw: bytes) -> Line:
        """Read the message in a line."""
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        return cls(direction, time, raw, as_object(value))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the conversation, as an update showed it; `at` is its place in the recording."""

    at: int
    said: Said

    @property
    def text(self) -> str:
        """The words; empty if it has none."""
        return (self.said.content and self.said.content.text) or ""

    @property
    def speaker(self) -> str:
        """Who said it; the bridge speaks as the agent."""
        return "agent" if self.said.voice is Voice.BRIDGE else self.said.voice.value


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt that was answered, and what was shown since the answer before its own."""

    #: the words of the prompt.
    name: str
    sent: int
    answer: int
    #: the stop reason; `error CODE: MESSAGE` for an error.
    reason: str
    chunks: list[Chunk]


class Recording(list[Line]):
    """The lines of one client, in order. Places are indexes into it."""

    def places(self, direction: Direction, **members: Any) -> list[int]:
        """Return the places of the lines of this direction that have these members."""
        wanted = members.items()
        return [
            at
            for at, line in enumerate(self)
            if line.direction == direction and wanted <= line.message.items()
        ]

    def requests(self) -> dict[int, int]:
        """Return the place of each request that was sent, by its id."""
        out = [at for at, line in enumerate(self) if line.direction == "out"]
        return {self[at].message["id"]: at for at in out if {"id", "method"} <= {*self[at].message}}

    def sent(self, request: int) -> int:
        """Return the place where a request was sent. Raises Unexpected if it was not."""
        if (place := self.requests().get(request)) is None:
            raise Unexpected(f"a request {request}", "none was sent")
        return place

    def text_of(self, request: int) -> str:
        """Return the words of a prompt, or the method of another request."""
        message = self[self.sent(request)].message
        prompt = message["params"].get("prompt")
        return str(prompt[0]["text"]) if prompt else str(message["method"])

    def answers(self, request: int) -> list[int]:
        """Return the places of the answers to a request; there should be one."""
        return [at for at in self.places("in", id=request) if "method" not in self[at].message]

    def the_answer(self, request: int) -> int:
        """Return the place of the one answer to a request. Raises Unexpected (invariant Q9)."""
        places = self.answers(request)
        if len(places) != 1:
            raise Unexpected(f"one answer to {self.text_of(request)!r}", f"{len(places)}")
        return places[0]

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """Give the conversation as it was shown between two places, the end excluded."""
        updates = Updates()
        for at in range(start, len(self) if end is None else end):
            line = self[at]
            if line.direction == "in" and line.message.get("method") == SESSION_UPDATE:
                said = updates.read(line.message["params"])
                if isinstance(said, Said):
                    yield Chunk(at, said)

    def turn(self, prompt: int, ends: str | None = None) -> Turn:
        """Return the turn of a prompt. Raises Unexpected if it ended otherwise."""
        answer, sent, name = self.the_answer(prompt), self.sent(prompt), self.text_of(prompt)
        message = self[answer].message
        reason = str((message.get("result") or {}).get("stopReason"))
        if error := message.get("error"):
            reason = f"error {error.get('code')}: {error.get('message')}"
        if ends is not None and reason != ends:
            raise Unexpected(f"{ends} for {name!r}", reason)
        before = [at for each in self.requests() for at in self.answers(each) if at < answer]
        return Turn(name, sent, answer, reason, [*self.chunks(max([sent, *before]), answer)])

    def seconds(self, start: int, end: int) -> float:
        """Return the time between two places."""
        return self[end].time - self[start].time
