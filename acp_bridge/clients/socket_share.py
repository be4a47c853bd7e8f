"""Bounds what all clients on sockets take of the bridge: half of its time, some of its memory.

A client that sends without end would otherwise hold up the answers to all others, and many that
end no line would fill the memory of the machine. The requests of one login that are at work are
bounded, too, whatever the number of its connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final, Protocol

from anyio import Lock, sleep

from acp_bridge import errors
from acp_bridge.wire.jsonrpc import DEFAULT_LIMIT

#: lines that are taken at once: a few milliseconds at the most, unless one is very long.
_LINES: Final = 32
#: seconds of work after which others get a pause as long; one or two messages take less.
_FREE: Final = 0.001
#: requests of one login that are at work at a time; prompts don't count, which wait on disk.
MOST_AT_WORK: Final = 32
#: bytes of unfinished lines: two of the longest that there may be.
MOST_UNFINISHED: Final = 2 * DEFAULT_LIMIT


class Lines(Protocol):
    """The decoder of one client's bytes (`wire.peer.Peer`)."""

    @property
    def unfinished(self) -> int: ...
    def drop_unfinished(self) -> None: ...


class SocketShare:
    """Hands over the messages of clients on sockets, one client after the other."""

    def __init__(self) -> None:
        """Begin without clients."""
        self._turn = Lock()
        self._owed = 0.0
        self._at_work = Counter[str]()
        self._let_go: dict[Lines, Callable[[str], None]] = {}

    @contextmanager
    def counted(self, lines: Lines, let_go: Callable[[str], None]) -> Iterator[None]:
        """Count a client's unfinished bytes during the block; `let_go` disconnects the client.

        At the end of the block the bytes are dropped.
        """
        self._let_go[lines] = let_go
        try:
            yield
        finally:
            del self._let_go[lines]
            lines.drop_unfinished()

    def bound(self) -> None:
        """Disconnect the client with the longest unfinished line, if all together are too long."""
        if sum(lines.unfinished for lines in self._let_go) > MOST_UNFINISHED:
            longest = max(self._let_go, key=lambda lines: lines.unfinished)
            self._let_go[longest](
                f"clients on sockets have sent more than {MOST_UNFINISHED} bytes of lines that"
                " don't end, and this one the most"
            )

    def begin(self, login: str) -> None:
        """Count a request of a login until `end`; raises RpcError if too many are at work."""
        if self._at_work[login] >= MOST_AT_WORK:
            raise errors.refused(
                f"{MOST_AT_WORK} requests of this login are at work already: read the answers first"
            )
        self._at_work[login] += 1

    def end(self, login: str) -> None:
        """Stop counting a request of a login that `begin` has counted."""
        self._at_work[login] -= 1
        self._at_work += Counter()  # forget those that have none

    async def feed(self, take: Callable[[bytes], None], data: bytes) -> None:
        """Give `take` the bytes that a client has sent, some lines at a time."""
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
