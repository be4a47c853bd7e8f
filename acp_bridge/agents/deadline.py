"""The time at which guards kill what they guard, whatever has become of the bridge.

The bridge sets it to a later one again and again, as long as it may go on. One that is frozen, or
has lost its place, need not do anything.

Invariants
- It is a time on a clock that goes on while the machine sleeps, and no duration: a guard counts
  nothing from the moment in which it reads it.
- To set it costs one small write for each guard, which never waits. A guard that takes no more, or
  is gone, is passed over: it keeps the deadline that it has.
- A guard has the deadline before it starts its agent, wherever it was started.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from acp_bridge.agents import guard


def now() -> float:
    """Return the time on the clock of deadlines, in seconds."""
    return guard.now() / 1e9


class Deadline:
    """One deadline, and the guards that follow it."""

    def __init__(self) -> None:
        """There is none yet."""
        self._message = b""
        #: the bridge's ends of their sockets; they don't block.
        self._guards: set[socket.socket] = set()

    def set(self, at: float | None) -> None:
        """Give all guards a time on the clock of `now`, or none; those that come get it too."""
        number = b"" if at is None else b"%d" % int(at * 1e9)
        self._message = guard.DEADLINE + number + b"\n"
        for control in self._guards:
            self._give(control)

    def join(self, control: socket.socket) -> None:
        """Let one more guard follow, by the bridge's end of its socket."""
        self._guards.add(control)
        if self._message:
            self._give(control)

    def leave(self, control: socket.socket) -> None:
        """Give a guard no more; one that never joined is no error."""
        self._guards.discard(control)

    def _give(self, control: socket.socket) -> None:
        with suppress(OSError):  # it is full, closed, or the guard is gone
            control.send(self._message)
