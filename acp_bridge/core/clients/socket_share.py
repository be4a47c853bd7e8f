"""Bounds what all clients on sockets take of the bridge: half of its time, some of its memory.

A client that sends without end would otherwise hold up the answers to all others, and many that
end no line would fill the memory of the machine. The requests of one login that are at work are
bounded, too, whatever the number of its connections.

Invariants
- One client works at a time, for one short step. Work is what the step costs, parsing included.
- The next step is one of the login that has worked least in the last seconds, and there of the
  connection that has: a client that sends little does not wait for clients that send much.
- Work is followed by a pause as long as itself, for everything that is not a client on a socket. A
  client that has worked less than `_LIGHT` of late does not wait for its end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Final, Protocol
from weakref import WeakValueDictionary

from anyio import Event, sleep
from anyio.lowlevel import checkpoint

from acp_bridge.core import errors
from acp_bridge.core.wire.jsonrpc import DEFAULT_LIMIT

#: lines that are taken at once: a few milliseconds at the most, unless one is very long.
_LINES: Final = 32
#: seconds of work after which others get a pause as long; one or two messages take less.
_FREE: Final = 0.001
#: seconds after which work counts half.
_HALF: Final = 1.0
#: seconds of work of late up to which a client does not wait for a pause.
_LIGHT: Final = 0.01
#: requests of one login that are at work at a time; prompts don't count, which wait on disk.
MOST_AT_WORK: Final = 32
#: bytes of unfinished lines: two of the longest that there may be.
MOST_UNFINISHED: Final = 2 * DEFAULT_LIMIT


class Lines(Protocol):
    """The decoder of one client's bytes (`wire.peer.Peer`)."""

    @property
    def unfinished(self) -> int: ...
    def drop_unfinished(self) -> None: ...


class _Used:
    """The seconds of work of late; what lies `_HALF` seconds back counts half."""

    def __init__(self) -> None:
        self._seconds = self._at = 0.0

    def until(self, now: float) -> float:
        return self._seconds * math.pow(0.5, (now - self._at) / _HALF)

    def add(self, seconds: float, now: float) -> None:
        self._seconds, self._at = self.until(now) + seconds, now


class Sharer:
    """One connection that has a part in the share (`SocketShare.sharer`)."""

    def __init__(self, of_login: _Used) -> None:
        self._of_login, self._own = of_login, _Used()

    def used(self, now: float) -> tuple[float, float]:
        """Return the seconds that its login has worked of late, and the connection itself."""
        return self._of_login.until(now), self._own.until(now)

    def is_light(self, now: float) -> bool:
        """Return True if neither its login nor the connection has worked much of late."""
        return max(self.used(now)) < _LIGHT

    def charge(self, seconds: float, now: float) -> None:
        """Count seconds of work."""
        self._of_login.add(seconds, now)
        self._own.add(seconds, now)


class SocketShare:
    """Hands over the messages of clients on sockets, one client after the other."""

    def __init__(self) -> None:
        """Begin without clients."""
        #: somebody has the turn, and has worked: there is a pause.
        self._busy = self._pausing = False
        self._waiting: dict[Event, Sharer] = {}
        #: those in the pause who have waited, and work without the turn.
        self._passing = set[Event]()
        self._owed = 0.0
        self._of_logins = WeakValueDictionary[str, _Used]()
        self._anybody = self.sharer()
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

    def sharer(self, login: str | None = None) -> Sharer:
        """Return the part of a new connection; `login`: shared by all connections with that name.

        None: the connection has no login.
        """
        of_login = _Used() if login is None else self._of_logins.setdefault(login, _Used())
        return Sharer(of_login)

    async def feed(
        self,
        take: Callable[[bytes], None],
        data: bytes,
        sharer: Sharer | None = None,
        room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Give `take` the bytes that a client has sent, some lines at a time.

        `room` waits, after some lines, until the client has taken most answers.
        """
        for piece in _pieces(data):
            await self.step(partial(take, piece), sharer)
            if room:
                await room()

    async def step(self, work: Callable[[], None], sharer: Sharer | None = None) -> None:
        """Wait for the sharer's turn, and call `work`, which must not take long."""
        sharer = sharer or self._anybody
        if not await self._turn(sharer):
            self._work(work, sharer)
            return
        try:
            self._work(work, sharer)
            if self._owed > _FREE:
                await self._pause()
        finally:
            self._next()

    def _work(self, work: Callable[[], None], sharer: Sharer) -> None:
        began = perf_counter()
        try:
            work()
        finally:
            now = perf_counter()
            sharer.charge(now - began, now)
            self._owed += now - began

    async def _pause(self) -> None:
        """Leave others as much time as was worked; those who wait and are light go on at once."""
        owed, self._owed = self._owed, 0.0
        now = perf_counter()
        for turn in [each for each, sharer in self._waiting.items() if sharer.is_light(now)]:
            del self._waiting[turn]
            self._passing.add(turn)
            turn.set()
        self._pausing = True
        try:
            await sleep(owed)
        finally:
            self._pausing = False

    async def _turn(self, sharer: Sharer) -> bool:
        """Wait until the sharer may work; returns False if it may without having the turn."""
        await checkpoint()
        if not self._busy:
            self._busy = True
            return True
        if self._pausing and sharer.is_light(perf_counter()):
            return False
        self._waiting[turn := Event()] = sharer
        try:
            await turn.wait()
        except BaseException:
            if self._waiting.pop(turn, None) is None and turn not in self._passing:
                self._next()  # it has been given the turn meanwhile
            self._passing.discard(turn)
            raise
        has_turn = turn not in self._passing
        self._passing.discard(turn)
        return has_turn

    def _next(self) -> None:
        """Give the turn to the sharer that has worked least."""
        now = perf_counter()
        self._busy = bool(self._waiting)
        if self._waiting:
            turn = min(self._waiting, key=lambda each: self._waiting[each].used(now))
            del self._waiting[turn]
            turn.set()


def _pieces(data: bytes) -> Iterator[bytes]:
    lines = data.splitlines(keepends=True)
    for start in range(0, len(lines), _LINES):
        yield b"".join(lines[start : start + _LINES])
