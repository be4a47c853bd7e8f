"""Reads the body of an HTTP answer of an MCP server, and makes server-sent events of it. No I/O.

Invariants
- A message is passed on as soon as its JSON is whole: neither a blank line nor the end of the body
  is waited for, whether the body is events or JSON.
- A body in which an answer was due, and which has none, ends with an error, unless its events have
  ids: then the SDK asks for the rest.
"""

from __future__ import annotations

import json
from typing import Any

from agent.loose import Lines, open_brackets, text_of
from agent.mcp_servers.messages import OpenRequests, read_messages, unreadable

#: how the address of the transport of old begins
_ADDRESSES = (b"/", b"http://", b"https://")
_FIELDS = (b"id:", b"retry:", b":")
#: bytes of a full chunk, which more may follow
_CHUNK = 64 * 1024


class TooLong(Exception):
    """A message has more bytes than the limit."""


class HttpBody:
    """`asked`: the id of the request that the body answers; None for a stream of its own.

    `limit`: bytes of one message.
    """

    def __init__(self, asked: Any, limit: int, requests: OpenRequests) -> None:
        self._asked = asked
        self._limit = limit
        self._requests = requests
        self._lines = Lines()
        self._first = True
        self._is_events = False
        self._answered = False
        self._has_id = False
        #: of the event that has not ended: its name, its other fields, its data, their bytes, and
        #: its open brackets
        self._name = b"message"
        self._others: list[bytes] = []
        self._data: list[bytes] = []
        self._size = 0
        self._open = 0

    def read(self, chunk: bytes) -> bytes:
        """Returns the events that end in the next bytes. Raises TooLong."""
        if self._first:
            self._first, chunk = False, chunk.removeprefix(b"\xef\xbb\xbf")
        said = b"".join(map(self._line, self._lines.read(chunk)))
        if len(chunk) < _CHUNK and chunk.rstrip().endswith((b"}", b"]")):
            rest = self._lines.rest()
            if open_brackets(rest) == -self._open and (self._open or b'"' in rest):
                return said + self._line(rest)
            self._lines.read(rest)
        if self._lines.size + self._size > self._limit:
            raise TooLong
        return said

    def end(self) -> bytes:
        said = self._line(self._lines.rest()) + self._event()
        if self._asked is None or self._answered or self._has_id:
            return said
        return said + _encoded([], unreadable(self._asked))

    def _line(self, line: bytes) -> bytes:
        if not line.strip():
            return self._event() if self._is_events or not self._open else b""
        if line.startswith(b"event:"):
            self._name = line[6:].strip()
        elif line.startswith(_FIELDS):
            self._has_id = self._has_id or line.startswith(b"id:")
            self._others.append(line)
        else:
            if line.startswith(b"data"):
                self._is_events, line = True, line.partition(b":")[2].removeprefix(b" ")
            self._data.append(line)
            self._size += len(line)
            if self._name == b"endpoint" and line:
                return self._event()
            self._open = max(0, self._open + (open_brackets(line) or 0))
            if not self._open and line.rstrip().endswith((b"}", b"]")):
                return self._event()
        return b""

    def _event(self) -> bytes:
        """Returns the event that has ended, once for each message in its data."""
        name, others, data = self._name, self._others, b"\n".join(self._data)
        self._name, self._others, self._data, self._size, self._open = b"message", [], [], 0, 0
        messages = [] if name == b"endpoint" else self._messages(name, data)
        if messages:
            return b"".join(_encoded(others, message) for message in messages)
        if self._asked is None and name == b"message" and data.startswith(_ADDRESSES):
            name = b"endpoint"
        if name != b"message" and data:
            others = [b"event: " + name, *(b"data: " + part for part in data.split(b"\n")), *others]
        return b"".join(line + b"\n" for line in others) + b"\n" if others else b""

    def _messages(self, name: bytes, data: bytes) -> list[dict[str, Any]]:
        text = text_of(data).strip()
        asked = self._asked if name == b"message" and text.startswith(("{", "[{")) else None
        found = read_messages(text, asked, self._requests.others(self._asked))
        if self._asked is not None:  # the SDK takes any answer here for the one that is due
            found = [
                m for m in found if "method" in m or m["id"] in (self._asked, str(self._asked))
            ]
            self._answered = self._answered or any("method" not in m for m in found)
        return [m for m in map(self._requests.matched, found) if m is not None]


def _encoded(others: list[bytes], message: dict[str, Any]) -> bytes:
    data = b"data: " + json.dumps(message).encode()
    return b"".join(line + b"\n" for line in [*others, b"event: message", data]) + b"\n"
