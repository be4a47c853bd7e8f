"""Writes where perhaps nobody reads: output for which there is no room is dropped.

Many clients never read the stderr of what they start. Were its pipe waited for when it is full, the
event loop would stop for good, and no cancel would come through (invariant C4).
"""

from __future__ import annotations

import io
import os
import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class LossyWriter(io.RawIOBase):
    """Writes to a descriptor, which stays the caller's. No method waits or raises OSError."""

    name = "<lossy>"

    def __init__(self, fd: int) -> None:
        """`fd` may block, and may be shared with other processes."""
        self._fd = fd
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        self._turn = threading.Lock()
        #: the last write was cut short, so the next one begins with a newline.
        self._cut = False

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """Return True if the descriptor is a terminal."""
        return os.isatty(self._fd)

    def writable(self) -> bool:
        """Return True, as for any stream to write to."""
        return True

    def write(self, data: ReadableBuffer) -> int:
        """Write as much as there is room for; returns the length of `data` all the same."""
        text = bytes(data)
        with self._turn:
            rest = whole = b"\n" + text if self._cut else text
            with suppress(OSError):  # nobody has the other end any more
                while rest and self._room.poll(0):
                    # A pipe that has room takes this much without waiting.
                    rest = rest[os.write(self._fd, rest[: select.PIPE_BUF]) :]
            if len(rest) < len(whole):
                self._cut = bool(rest)
        return len(text)


def text_stream(fd: int) -> io.TextIOWrapper:
    """Return a stream of text to `fd` for prints, tracebacks and logs; it may drop some of them."""
    return io.TextIOWrapper(
        LossyWriter(fd),
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )
