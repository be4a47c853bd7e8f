"""Cuts what an MCP server writes into texts, each of which may be a message. No I/O.

Invariants
- A text is a line, or several lines that are one JSON object or list together.
- A line that has all of its JSON is not kept back: its newline may come with the next message.
- A whole message is never taken for a part of a spoiled one before it.
"""

from __future__ import annotations

import re

from agent.loose import members, open_brackets, read_json
from agent.mcp_servers.problems import Problem

#: matches the beginning of a message
_BEGINS = re.compile(rb"\{|\[\s*(?:\{|\Z)")
#: bytes that a pipe has at once: behind fewer nothing more was written
_PIPE = 64 * 1024


class Framing:
    """`limit`: the bytes of a text."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: the pieces of a line without its end, and their bytes
        self._parts: list[bytes] = []
        self._size = 0
        #: the lines of a text without its end, their bytes, and its open brackets
        self._lines: list[bytes] = []
        self._held = 0
        self._open = 0

    @property
    def waits(self) -> bool:
        """True if only lines of a message have come, and nothing of the next line."""
        return bool(self._lines) and not self._size

    def read(self, data: bytes) -> list[bytes]:
        """Returns the texts that end in the next bytes. Raises Problem for one that is too long."""
        *ends, rest = data.replace(b"\0", b"").split(b"\n")  # NUL: as in UTF-16
        texts: list[bytes] = []
        for end in ends:
            texts += self._line(b"".join([*self._parts, end]).strip())
            self._parts, self._size = [], 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._size + self._held > self._limit:
            raise Problem("it sent a message that is too long")
        if len(data) < _PIPE and rest.rstrip().endswith((b"}", b"]")):
            texts += self._ended()
        return texts

    def end(self) -> list[bytes]:
        """Returns the texts of which the rest does not come."""
        last, self._parts, self._size = b"".join(self._parts).strip(), [], 0
        return [*(self._line(last) if last else []), *self.give_up()]

    def give_up(self) -> list[bytes]:
        """Returns the lines of a text without its end: all as one, or each if it is a list."""
        lines, self._lines, self._held = self._lines, [], 0
        is_list = lines and lines[0].startswith(b"[")
        return lines if is_list or not lines else [b"\n".join(lines)]

    def _line(self, line: bytes) -> list[bytes]:
        line = line.removeprefix(b"\xff\xfe")  # the mark of UTF-16
        if not line:
            return []
        if not self._lines:
            if _BEGINS.match(line) and not line.endswith((b"}", b"]")):
                return self._begin(line)
            return [line]
        if self._lines[0].startswith(b"{") and _is_message(line):
            return [*self.give_up(), line]
        self._lines.append(line)
        self._held += len(line)
        more = open_brackets(line)
        self._open += more or 0
        return self.give_up() if more is None or self._open <= 0 else []

    def _begin(self, line: bytes) -> list[bytes]:
        self._open = open_brackets(line) or 0
        if self._open <= 0:
            return [line]
        self._lines, self._held = [line], len(line)
        return []

    def _ended(self) -> list[bytes]:
        """Returns the text that a line without its newline ends; none if it is not whole."""
        line = b"".join(self._parts).strip()
        if self._lines:
            whole = open_brackets(line) == -self._open
        else:
            whole = _BEGINS.match(line) is not None and open_brackets(line) == 0
        if not whole:
            return []
        self._parts, self._size = [], 0
        return self._line(line)


def _is_message(line: bytes) -> bool:
    if not line.startswith(b"{") or b'"jsonrpc"' not in line:
        return False
    try:
        return "jsonrpc" in members(read_json(line))
    except ValueError:
        return False
