"""The time that clients on sockets may take of the bridge: together half of it at most.

A client that sends without end would otherwise hold up the answers to all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final

from anyio import Lock, sleep

#: lines that are taken at once: a few milliseconds at the most, unless one is very long.
_LINES: Final = 32
#: seconds that are taken before as many are left to the others; a message or two take less.
_FREE: Final = 0.001


class SocketShare:
    """Lets the clients on sockets have their messages taken one client after the other."""

    def __init__(self) -> None:
        """Nothing was taken yet."""
        self._turn = Lock()
        self._owed = 0.0

    async def feed(self, take: Callable[[bytes], None], data: bytes) -> None:
        """Have `take` take what a client has sent, some lines at a time."""
        for piece in _pieces(data):
            async with self._turn:
                began = perf_counter()
                take(piece)
                self._owed += perf_counter() - began
                if self._owed > _FREE:
                    owed, self._owed = self._owed, 0.0
                    await sleep(owed)


def _pieces(data: bytes) -> Iterator[bytes]:
    lines = data.splitlines(keepends=True)
    for start in range(0, len(lines), _LINES):
        yield b"".join(lines[start : start + _LINES])
