"""Reads an agent's stderr by lines. Reading never waits for the code that takes the lines."""

import os
from collections.abc import Callable
from typing import Final

import anyio
import anyio.lowlevel

from acp_bridge.core.updates.wording import visible, without_escapes

#: Bytes of one line; the rest of a longer one is dropped.
LINE_LIMIT = 8 * 1024
READ_SIZE = 1 << 16
#: how many characters of a line people are shown.
_LONGEST: Final = 300


class LineForwarder:
    """Gives each line of a stderr to `tell`, without its end and with undecodable bytes replaced.

    `run` may be cancelled and called again; nothing is lost in between.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._line = b""

    async def run(self, fd: int) -> None:
        """Forward each line that is read from `fd` (non-blocking, the caller's) until its end."""
        while data := await _read(fd):
            *ends, rest = data.split(b"\n")
            for end in ends:
                self._flush(end)
            self._line = (self._line + rest)[:LINE_LIMIT]
        if self._line:
            self._flush(b"")

    def _flush(self, end: bytes) -> None:
        line, self._line = (self._line + end)[:LINE_LIMIT], b""
        self._tell(line.removesuffix(b"\r").decode(errors="replace"))


async def _read(fd: int) -> bytes:
    await anyio.lowlevel.checkpoint()
    while True:
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:
            await anyio.wait_readable(fd)


def as_shown(line: str) -> str:
    """Return a line as a terminal leaves it: without colours, from the last carriage return on."""
    return without_escapes(line).rstrip("\r").rpartition("\r")[2]


def cut(text: str) -> str:
    """Return a text as one visible line of 300 characters at most, and `...` if it was longer."""
    line = visible(" ".join(without_escapes(text).split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
