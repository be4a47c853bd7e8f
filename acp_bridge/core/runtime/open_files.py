"""How many files the bridge may have open, and whether there is room for one more session.

A session takes nine descriptors and up to three more with time: its lock, its journal, the agent's
pipes, the pidfd of a forked guard, replays that SQLite holds open. Were they to run out in the
middle of something, sessions that exist would suffer. So a part is kept for these, and a session
that would need it is refused before anything is begun.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: a soft limit above this is of no use: there are not so many sessions.
_MOST: Final = 1 << 16
#: how many descriptors the bridge needs without a session, and each session at most.
_OWN: Final = 20
_SESSION: Final = 12
#: descriptors that a session needs for a moment while it is opened, or its agent starts.
_OPENING: Final = 16
#: descriptors of an agent that waits for a session.
_AGENT: Final = 4
#: descriptors kept for the sessions that exist: agents that restart, replays, merging. Of a low
#: limit at most one part in `_KEPT_PART` is kept.
_KEPT: Final = 64
_KEPT_PART: Final = 4
_OPEN: Final = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


def raise_limit() -> int | None:
    """Raise this process's limit of open files; returns the old soft limit, None if it stays.

    Child processes inherit the new limit. An agent is to get the old one back, since a program that
    uses select() fails with descriptors above 1023.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # macOS has another limit, which it does not tell here
        return None
    return soft


def limit() -> int:
    """Return how many files this process may have open at a time."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else soft


def count() -> int:
    """Return how many files this process has open; raises OSError if there is no room to look."""
    return len(os.listdir(_OPEN)) - 1  # the folder itself


class OpenFiles:
    """Says whether there are descriptors for one more session, those being opened included."""

    def __init__(self, limit: Callable[[], int] = limit, count: Callable[[], int] = count) -> None:
        """`limit` and `count` return how many files this process may have, and has open."""
        self._limit = limit
        self._count = count
        self._opening = 0

    @contextmanager
    def claimed(self, live: int, asleep: int, *, waits: bool = False) -> Iterator[None]:
        """Keep room for a session that is opened in the block; raises RpcError if there is none.

        `live`: how many sessions there are; `asleep`: how many of them have no agent, which may
        start at any time. `waits`: the session takes an agent that waits, whose descriptors are
        counted already.
        """
        most = self._limit()
        kept = min(_KEPT, most // _KEPT_PART)
        starting = (1 + self._opening + asleep) * _OPENING
        try:
            taken = max(self._count() - waits * _AGENT, _OWN + live * _SESSION)
        except OSError:
            taken = most
        if taken + starting + kept > most:
            from acp_bridge.core import errors  # `raise_limit` comes before most imports
            from acp_bridge.core.runtime.log import event

            event("sessions.full", limit=most)
            raise errors.too_many_files(most)
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1
