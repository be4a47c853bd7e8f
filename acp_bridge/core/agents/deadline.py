"""The time at which guards kill what they guard, whatever has become of the bridge.

The bridge sets a later deadline again and again, as long as it may go on. A bridge that is frozen,
or has lost its sessions to another, need not do anything for its agents to end.

Invariants
- A deadline is a time on a clock that goes on while the machine sleeps, and no duration: a guard
  counts nothing from the moment in which it reads it.
- To set one costs one small write for each guard, which never waits. A guard that takes no more, or
  is gone, is passed over: it keeps the deadline that it has.
- A guard has the deadline before it starts its agent, wherever it was started; one that was started
  early (`birth.born_early`), before anything of a session is sent to its agent.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from acp_bridge.core.agents import guard


def now() -> float:
    """Return the time on the clock of deadlines, in seconds."""
    return guard.now() / 1e9


class Deadline:
    """One deadline, and the guards that follow it."""

    def __init__(self) -> None:
        """Begin without a deadline and without guards."""
        self._message = b""
        #: the bridge's ends of the guards' sockets; they don't block.
        self._guards: set[socket.socket] = set()

    def set(self, at: float | None) -> None:
        """Give all guards, also those that join later, the time `at` of `now`'s clock, or none."""
        number = b"" if at is None else b"%d" % int(at * 1e9)
        self._message = guard.DEADLINE + number + b"\n"
        for control in self._guards:
            self._give(control)

    def join(self, control: socket.socket) -> None:
        """Give the guard at the other end of `control` the deadline, now and at each change."""
        self._guards.add(control)
        if self._message:
            self._give(control)

    def leave(self, control: socket.socket) -> None:
        """Give a guard no further deadline; one that never joined is no error."""
        self._guards.discard(control)

    def _give(self, control: socket.socket) -> None:
        with suppress(OSError):  # it is full, closed, or the guard is gone
            control.send(self._message)
