"""What is on its way to the agent, and must not leave before the journal has noted that it does.

Sent without that, it could be offered again after a kill (invariant Q5).
"""

from __future__ import annotations

from collections.abc import Callable

from acp_bridge.journal import JournalError, SessionJournal


class Unsent:
    """One message for the agent, between the note in the journal and the sending."""

    def __init__(self, journal: SessionJournal, refused: Callable[[JournalError], None]) -> None:
        """The write before this call is the note; `refused` is called if it was refused."""
        self._refused = refused
        self._send: Callable[[], object] | None = None
        #: the note is on its way.
        self.waits = journal.in_flight
        if self.waits:
            journal.then(self._noted)

    def send(self, send: Callable[[], object]) -> None:
        """Call `send` once the note is made, which is mostly now."""
        if self.waits:
            self._send = send
        else:
            send()

    def _noted(self, error: JournalError | None) -> None:
        self.waits = False
        if error:
            self._refused(error)
        elif self._send:
            self._send()
