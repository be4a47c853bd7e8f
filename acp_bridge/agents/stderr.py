"""Reads an agent's stderr by lines. Reading never waits for the code that takes the lines.

The last lines are for people who ask why the agent does not start.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final

import anyio
import anyio.lowlevel

#: Bytes of one line; the rest of a longer one is dropped.
LINE_LIMIT = 8 * 1024
READ_SIZE = 1 << 16
#: how many of the last lines are kept; enough to mask a private key as a whole.
KEPT: Final = 200
#: how many of the last lines people are shown, and how many characters of each.
_TOLD, _LONGEST = 5, 300


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


def end_of(lines: Iterable[str], mask: Callable[[str], str] = str) -> list[str]:
    """Return the last five lines that are not empty, each `cut`, after `mask` on the whole text."""
    told = [line for line in mask("\n".join(lines)).split("\n") if line.strip()]
    return [cut(line) for line in told[-_TOLD:]]


def cut(text: str) -> str:
    """Return a text as one line of 300 characters at most, and `...` if it was longer."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
