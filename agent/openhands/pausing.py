"""The state of the user's pause of a run (sans-IO).

Invariants
- A pause is in effect once the call in flight has ended: the server tells that it is paused when it
  takes the pause, and again when that call has ended.
"""

from __future__ import annotations

from agent.openhands.events import Event, Snapshot, StateField, Status


class Pausing:
    def __init__(self) -> None:
        #: the user wants the turn to wait
        self.wanted = False
        #: the pause has ended, and the run has not been seen to continue
        self.resuming = False
        #: the user's answer to a question, kept until the pause ends
        self.answer: bool | None = None
        #: how often the server has told the status `paused` since the pause was requested
        self._rests = 0

    @property
    def in_effect(self) -> bool:
        return self._rests > 1

    def begin(self) -> None:
        self.wanted, self._rests = True, 0

    def note(self, event: Event) -> None:
        if isinstance(event, Snapshot) and event.status is Status.PAUSED:
            self._rests += 1
        elif isinstance(event, StateField) and event.status is Status.RUNNING:
            self.resuming = False

    def taken_answer(self) -> bool | None:
        """Returns the user's answer that was kept, and forgets it; None if there is none."""
        answer, self.answer = self.answer, None
        return answer
