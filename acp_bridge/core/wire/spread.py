"""Joins the lines over which a program has spread one message. Sans-IO.

The work is O(n), however long the message is and however many lines it has. What is kept is
bounded by bytes and by lines.
"""

from __future__ import annotations

import re
from typing import Final

from acp_bridge.core.wire.long_line import BOM

#: bytes, and lines, of the longest message that is joined.
_BYTES: Final = 16 * 1024 * 1024
_LINES: Final = 20_000

_OBJECT: Final = re.compile(rb'\s*\{\s*(?:"|\Z)')
_MESSAGE: Final = re.compile(rb'\s*\{\s*"jsonrpc"\s*:')


def open_brackets(line: bytes, *, in_text: bool = False) -> tuple[int, bool]:
    """Return how many lists and objects a piece of JSON leaves open, and if it ends in a text.

    `in_text`: it begins in a text.
    """
    parts = line.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    bare = b"".join(parts[in_text::2])  # outside of the texts
    opened = bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")
    return opened, in_text ^ (len(parts) % 2 == 0)


def begins_message(line: bytes) -> bool:
    """Return True for a line that begins as only a message does."""
    return _MESSAGE.match(line.removeprefix(BOM)) is not None


def begins_object(line: bytes) -> bool:
    """Return True for a line with which an object may begin."""
    return _OBJECT.match(line.removeprefix(BOM)) is not None


class Spread:
    """The lines of an object that has begun and has not ended."""

    def __init__(self, limit: int) -> None:
        """`limit`: the bytes of the longest message."""
        self._most = min(limit, _BYTES)
        #: what is kept.
        self.lines: list[bytes] = []
        #: the number of bytes that are kept.
        self.size = 0
        self._depth, self._in_text = 0, False

    @property
    def begun(self) -> bool:
        """True while an object waits for its further lines."""
        return bool(self.lines)

    @property
    def full(self) -> bool:
        """True if the lines are more than those of any message."""
        return self.size > self._most or len(self.lines) > _LINES

    def begin(self, line: bytes) -> bool:
        """Keep a line and return True if an object begins with it that it does not end."""
        self._depth, self._in_text = 0, False
        if not begins_object(line) or self.add(line):
            self.take()
        return self.begun

    def add(self, line: bytes) -> bool:
        """Keep one more line; returns True if the object ends with it."""
        self.lines.append(line)
        self.size += len(line) + 1
        opened, self._in_text = open_brackets(line, in_text=self._in_text)
        self._depth += opened
        return self._depth <= 0 and not self._in_text

    def take(self) -> list[bytes]:
        """Return the lines, and forget them."""
        lines, self.lines, self.size = self.lines, [], 0
        return lines
