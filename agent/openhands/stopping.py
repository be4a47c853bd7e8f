"""Stops the run of a conversation, until nothing runs and no action waits (sans-IO).

Invariants
- It ends: with `cancelled` once the server shows nothing that runs or waits, or, if the server does
  not answer or does not stop the run, with a word that it may continue.
- Interrupts and refusals may be repeated; nothing else is sent.
"""

from __future__ import annotations

from agent.openhands import turn_words as words
from agent.openhands.events import Action, Status
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.turn_words import Confirm, Effect, End, Interrupt, Say, Sync

Waiting = tuple[Action, ...]

#: seconds before an interrupt is repeated, in case the last one came too early
_AGAIN = 0.25
#: how often a silent server is asked again, and a run that hasn't stopped is checked
_TRIES = 5
_LOOKS = 40


class Stopping:
    def __init__(self) -> None:
        #: the stopped run may continue
        self.uncertain = False
        self._tries = 0

    def begin(self, status: Status | None, waiting: Waiting) -> list[Effect]:
        """Begins to stop the run; returns the first effects.

        `status`: the last one seen. `waiting`: the actions without consent.
        """
        return [Confirm(False) if status is Status.WAITING and waiting else Interrupt()]

    def interrupted(self, problem: ServerProblem | None) -> list[Effect]:
        if problem is not None and problem.final:
            return self.gone(problem)
        return [Sync()]

    def synced(
        self, status: Status | None, problem: ServerProblem | None, waiting: Waiting
    ) -> list[Effect]:
        self._tries += 1
        if problem is not None:
            again = not problem.final and self._tries < _TRIES
            return [Interrupt(_AGAIN)] if again else self.gone(problem)
        refuse = status is Status.WAITING and bool(waiting)
        if not refuse and status is not Status.RUNNING:
            return [End("cancelled")]
        if self._tries < _LOOKS:
            return [Confirm(False) if refuse else Interrupt(_AGAIN)]
        self.uncertain = True
        return [Say(words.STILL_RUNS), End("cancelled")]

    def gone(self, problem: ServerProblem) -> list[Effect]:
        """Ends the turn: the server can't be reached any more, or has lost the conversation."""
        if problem.kind is Kind.GONE:
            return [End("cancelled")]
        self.uncertain = True
        return [Say(words.MAY_GO_ON), End("cancelled")]
