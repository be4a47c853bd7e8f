"""Reads the events in the body of an answer, a line at a time. No I/O.

Invariants
- An event is told with the line that ends its JSON: its blank line is not waited for.
- What a body says is found without the form of server-sent events, too: a line that is JSON, JSON
  over several lines, and the line `error: ...`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from agent.loose import mended, open_brackets, read_json
from agent.providers.failure import Failure

_log = logging.getLogger(__name__)

#: bytes of one event
LIMIT = 4 * 1024 * 1024
#: the data of the event that ends a stream of chat completions
_DONE = b"[DONE]"
_OTHER_FIELDS = (b":", b"id:", b"retry:")
#: bytes of an event that is no JSON that are logged
_LOGGED = 200
#: how a text begins that says nothing to a person: spoiled JSON, or a page
_NO_WORDS = ("{", "[", "<", '"')


class Unreadable(Struct, frozen=True):
    """Stands for an event that is no JSON. `said`: its words, if it has any for a person."""

    said: str


class EventBody:
    def __init__(self) -> None:
        #: True once the body has said that its answer has ended
        self.done = False
        self._begun = False
        #: True if the body is server-sent events, and if it has had one
        self._has_fields = self._has_event = False
        #: True for an event that is called an error
        self._is_error = False
        #: the lines of an event whose JSON has not ended, their bytes, and its open brackets
        self._held: list[bytes] = []
        self._size = 0
        self._open: int | None = 0
        #: the lines that are no JSON, of a body that has no event
        self._words: list[bytes] = []

    def read(self, lines: Iterable[bytes]) -> list[Any]:
        """Returns the decoded events that end in these lines.

        An event that is no JSON is `Unreadable`. Raises Failure for one that is too long.
        """
        events: list[Any] = []
        for line in lines:
            if self.done:
                break
            if not self._begun:
                self._begun, line = True, line.removeprefix(b"\xef\xbb\xbf")
            events += self._line(line)
        self._has_event = self._has_event or bool(events)
        return events

    def end(self) -> list[Any]:
        """Returns the events that only the end of the body ends."""
        events = self._given_up()
        if self._words and not (self._has_fields or self._has_event):
            events.append(_decoded(b"\n".join(self._words)))
        self.done = self.done or not self._has_fields
        return events

    def _line(self, line: bytes) -> list[Any]:
        if line.startswith(b"data:"):
            self._has_fields = True
            return self._data(line[5:].strip())
        line = line.strip()
        if not line:
            events = self._given_up() if self._has_fields else []
            self._is_error = False
            return events
        if line.startswith(b"event:"):
            self._is_error = line[6:].strip() == b"error"
        elif line.startswith(b"error:"):  # llama.cpp's
            self._is_error = True
            return self._data(line[6:].strip())
        elif not line.startswith(_OTHER_FIELDS):
            if self._held or line.startswith((b"{", b"[")):
                return self._data(line)
            if not self._has_event:
                self._keep(line, self._words)
        return []

    def _data(self, data: bytes) -> list[Any]:
        if self._held:
            return self._more(data)
        if data == _DONE:
            self.done = True
        if self.done or not data:
            return []
        event = _decoded(data)
        if isinstance(event, Unreadable) and data[:1] in (b"{", b"["):
            self._open = open_brackets(data)
            if self._open != 0:
                self._keep(data, self._held)
                return []
        return [self._told(event)]

    def _more(self, data: bytes) -> list[Any]:
        """Returns the events that end in one more line of an event."""
        if data == _DONE:
            self.done = True
            return self._given_up()
        if self._open is None and not isinstance(event := _decoded(data), Unreadable):
            return [*self._given_up(), event]  # the one before it was cut
        self._keep(data, self._held)
        more = open_brackets(data)
        self._open = None if self._open is None or more is None else self._open + more
        return self._given_up() if self._open is not None and self._open <= 0 else []

    def _given_up(self) -> list[Any]:
        """Returns the events in the lines of one: it as a whole, or else each line that is one."""
        held, self._held, self._size = self._held, [], 0
        if not held:
            return []
        whole = _decoded(b"\n".join(held))
        if not isinstance(whole, Unreadable):
            return [self._told(whole)]
        lines = [event for line in held if not isinstance(event := _decoded(line), Unreadable)]
        return [whole, *(event for event in lines if isinstance(event, dict | list))]

    def _keep(self, line: bytes, among: list[bytes]) -> None:
        self._size += len(line)
        if self._size > LIMIT:
            raise Failure("garbage", "an event without an end")
        among.append(line)

    def _told(self, event: Any) -> Any:
        """Returns an event, as an error if it is called one."""
        if not self._is_error or (isinstance(event, dict) and event.get("error")):
            return event
        return {"error": event.said or "error" if isinstance(event, Unreadable) else event}


def _decoded(data: bytes) -> Any:
    try:
        return read_json(data, halves=True)
    except ValueError:
        _log.info("an event that is no JSON: %r", data[:_LOGGED])
        said = mended(data.decode("utf-8", "surrogateescape")).strip()
        return Unreadable("" if said.startswith(_NO_WORDS) else said)
