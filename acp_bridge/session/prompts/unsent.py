"""What is for the agent and must not leave before the journal has noted that it does.

Sent without that, it could be offered again after a kill (invariant Q5). Where the journal makes
its writes at once there is no such thing.
"""

from __future__ import annotations

from collections.abc import Callable

from acp_bridge.journal import JournalError, SessionJournal


class Unsent:
    """One prompt, between the note in the journal and the sending."""

    def __init__(
        self, journal: SessionJournal, key: int, refused: Callable[[int, JournalError], None]
    ) -> None:
        """The note is the last write; `refused` is called if the journal does not take it."""
        self.key = key
        #: its note is on its way.
        self.waits = True
        #: it was stopped meanwhile.
        self.stopped = False
        self._refused = refused
        self._send: Callable[[], object] | None = None
        journal.then(self._noted)

    def send(self, send: Callable[[], object]) -> None:
        """Have `send` called once the note is made."""
        self._send = send

    def _noted(self, error: JournalError | None) -> None:
        self.waits = False
        if error:
            self._refused(self.key, error)
        elif self._send:
            self._send()
