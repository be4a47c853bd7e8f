"""What a client of the demo records: every line that it received and sent, with its time. No I/O.

The checks read recordings. A recording has the bytes of each line, and notes about processes that
the client killed or looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from acp_bridge.core.protocol import SESSION_UPDATE, Json, as_object
from acp_bridge.terminal.view.blocks import Said, Voice
from acp_bridge.terminal.view.from_updates import Updates

#: `in`: a line from the bridge; `out`: a line to it; `note`: a fact that the client added.
Direction = Literal["in", "out", "note"]


class Unexpected(Exception):
    """A check failed or a wait ran out; holds what was expected and what was seen."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}, seen {seen}")
        self.expected, self.seen = expected, seen


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check that passed: the measured seconds, and a detail to show, maybe ""."""

    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline; `time` in seconds of a monotonic clock."""

    direction: Direction
    time: float
    raw: bytes
    #: the line parsed as a JSON object; {} if it is none.
    message: Json = field(compare=False, repr=False)

    @classmethod
    def of(cls, direction: Direction, time: float, raw: bytes) -> Line:
        """Return the recorded line, with its bytes parsed."""
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        return cls(direction, time, raw, as_object(value))


@dataclass(frozen=True, slots=True)
class Chunk:
    """An update of the conversation; `at` is its index in the recording."""

    at: int
    said: Said

    @property
    def text(self) -> str:
        """The text of the update; "" if it has none."""
        return (self.said.content and self.said.content.text) or ""

    @property
    def is_notice(self) -> bool:
        """True for a text of the bridge's own."""
        return self.said.voice is Voice.BRIDGE

    @property
    def speaker(self) -> str:
        """Who said the text: `user`, `agent`, `thought` or `hook`.

        What the bridge says counts as `agent`.
        """
        return "agent" if self.said.voice is Voice.BRIDGE else self.said.voice.value


@dataclass(frozen=True, slots=True)
class Turn:
    """An answered prompt with its updates; `sent` and `answer` are indexes in the recording."""

    #: the text of the prompt.
    name: str
    sent: int
    answer: int
    #: the stop reason, or `error CODE: MESSAGE`.
    reason: str
    chunks: list[Chunk]


class Recording(list[Line]):
    """The lines of one client, in order. A "place" is an index into them."""

    def places(self, direction: Direction, **members: Any) -> list[int]:
        """Return the places of the lines with this direction whose message has these members."""
        wanted = members.items()
        return [
            at
            for at, line in enumerate(self)
            if line.direction == direction and wanted <= line.message.items()
        ]

    def requests(self) -> dict[int, int]:
        """Return the places of all requests that were sent, by their ids."""
        out = [at for at, line in enumerate(self) if line.direction == "out"]
        return {self[at].message["id"]: at for at in out if {"id", "method"} <= {*self[at].message}}

    def sent(self, request: int) -> int:
        """Return the place of a sent request. Raises Unexpected if there is none."""
        if (place := self.requests().get(request)) is None:
            raise Unexpected(f"a request {request}", "none was sent")
        return place

    def text_of(self, request: int) -> str:
        """Return the text of a prompt, or the method of another request."""
        message = self[self.sent(request)].message
        prompt = message["params"].get("prompt")
        return str(prompt[0]["text"]) if prompt else str(message["method"])

    def answers(self, request: int) -> list[int]:
        """Return the places of all answers to a request; there should be one (invariant Q9)."""
        return [at for at in self.places("in", id=request) if "method" not in self[at].message]

    def the_answer(self, request: int) -> int:
        """Return the place of the only answer to a request.

        Raises Unexpected for none or several.
        """
        places = self.answers(request)
        if len(places) != 1:
            raise Unexpected(f"one answer to {self.text_of(request)!r}", f"{len(places)}")
        return places[0]

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """Yield the updates of the conversation between two places, `end` excluded."""
        updates = Updates()
        for at in range(start, len(self) if end is None else end):
            line = self[at]
            if line.direction == "in" and line.message.get("method") == SESSION_UPDATE:
                said = updates.read(line.message["params"])
                if isinstance(said, Said):
                    yield Chunk(at, said)

    def turn(self, prompt: int, ends: str | None = None) -> Turn:
        """Return the turn of a prompt.

        Raises Unexpected if `ends` is given and not its stop reason.
        """
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
        """Return the seconds between two places."""
        return self[end].time - self[start].time
