"""What the feed has told of a prompt's message, and of the run that answers it (sans-IO).

Invariants
- A status counts for the run only if the feed told it after the message, in the order of the log.
- What ended before a new run was asked for says nothing of that run.
"""

from __future__ import annotations

from agent.openhands import turn_words as words
from agent.openhands.events import Event, Failure, Snapshot, StateField, Status, UserMessage
from agent.openhands.problems import failure_text
from agent.openhands.turn_words import End, Fail


class Evidence:
    """The evidence for one prompt.

    `last_message`: the id of the newest user message before the prompt's.
    """

    def __init__(self, last_message: object) -> None:
        #: the server has the message: its text was seen, or the server said so
        self.found = False
        #: a run was seen after the message
        self.ran = False
        #: the status in the live feed's last snapshot after the message; None if a run may be going
        self.rest: Status | None = None
        self._failure: Failure | None = None
        self._last_message = last_message
        self._newer = False

    def note(self, event: Event, *, ours: bool) -> None:
        match event:
            case UserMessage() if ours:
                self.found = True
            case StateField(key="last_user_message_id", value=message):
                self._newer = self._newer or message != self._last_message
            case StateField() if event.status not in (None, Status.IDLE):
                self.ran = self.ran or self._begun
                if event.status is Status.RUNNING:
                    self.rest = None
            case Failure() if self._begun:
                self._failure = event
            case Snapshot():
                message = event.values.get("last_user_message_id")
                self._newer = self._newer or message not in (None, self._last_message)
                if self._begun:
                    self.rest = event.status

    def end_of_failure(self) -> End | Fail:
        """Returns the outcome of a run that ended with an error."""
        if self._failure is None:
            return Fail(words.NO_REASON)
        if self._failure.code == "MaxIterationsReached":
            return End("max_turn_requests")
        return Fail(failure_text(self._failure.code, self._failure.detail))

    def forget_run(self) -> None:
        """Notes that a new run is requested: what was seen of the last one no longer counts."""
        self.ran, self.rest = False, None

    def forget_rest(self) -> None:
        """Notes that the server has started a run: an earlier snapshot says nothing of that run."""
        if not self.ran:
            self.rest = None

    @property
    def _begun(self) -> bool:
        return self.found or self._newer
