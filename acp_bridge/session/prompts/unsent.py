"""A prompt that must not be sent to the agent before the journal has noted that it is.

Sent without the note, it could be run once more after a kill (invariant Q5). Where the journal
makes its writes at once no prompt has to wait.
"""

from __future__ import annotations

from collections.abc import Callable

from acp_bridge.journal import JournalError, SessionJournal


class Unsent:
    """One prompt whose note is on its way into the journal; it is sent when the note is made."""

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
