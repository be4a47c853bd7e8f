"""Decides when something ends that no client has open; it has neither a clock nor a task.

That is a bridge whose client is gone, or each session of a bridge that serves remote clients.

- Without `--keep` a bridge ends with the client that has started it.
- With `--keep`, work goes on for that many seconds after the last client has gone: this bounds how
  long it goes on without a client, not how long a turn may take. A bridge or session without work
  ends soon after its last client.
"""

from __future__ import annotations

from typing import Final

#: seconds for which a bridge or session with neither a client nor work is kept
LINGER: Final = 10.0


class Attendance:
    """Decides when something ends that has no client, after its last client and its last work.

    Times are in seconds.
    """

    def __init__(self, keep: float) -> None:
        """`keep`: how long work goes on without a client. Begin with a client and without work."""
        self._keep = keep
        self._alone_since: float | None = None
        self._idle_since: float | None = 0.0

    def note_clients(self, there: bool, now: float) -> None:
        """Note whether a client is there."""
        if there:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now

    def note_work(self, busy: bool, now: float) -> None:
        """Note whether a turn runs or a prompt waits."""
        if busy:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now

    @property
    def end(self) -> float | None:
        """The time of the end, if nothing changes; None while a client is there."""
        if self._alone_since is None:
            return None
        last = self._alone_since + self._keep
        if self._idle_since is None or not self._keep:
            return last
        return min(last, max(self._alone_since, self._idle_since) + LINGER)
