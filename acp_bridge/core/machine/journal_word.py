"""What a session does when its journal is away, back or lost, or another bridge has the session.

- While the journal is away nothing is sent. What waits goes on waiting.
- If another bridge has the session, every process and every hook of it is killed at once, and none
  is started any more. When none is left, clients are told, once; then what waits is answered.
"""

from __future__ import annotations

from acp_bridge.core.machine.effects import Dropped, Effect, Failed, Failure, StopHooks, TellTaken
from acp_bridge.core.machine.events import (
    JournalAway,
    JournalBack,
    JournalEvent,
    JournalLost,
    Taken,
)
from acp_bridge.core.machine.processes import Epochs, Processes
from acp_bridge.core.machine.prompt_queue import OpenHooks, PromptQueue
from acp_bridge.core.machine.states import Gate, State, States


class JournalWord:
    """Decides what follows from the journal's word; methods return effects."""

    def __init__(
        self,
        states: States,
        epochs: Epochs,
        queue: PromptQueue,
        gate: Gate,
        open_hooks: OpenHooks,
        processes: Processes,
    ) -> None:
        """Nothing has been lost yet."""
        self._states = states
        self._epochs = epochs
        self._queue = queue
        self._gate = gate
        self._open_hooks = open_hooks
        self._processes = processes
        #: why the session is not this bridge's any more, and whether clients were told.
        self._why: object = None
        self._told = False

    @property
    def hooks_live(self) -> bool:
        """True while a hook runs, whoever asked for it."""
        return self._open_hooks.running or bool(self._queue.hooked)

    def take(self, event: JournalEvent) -> list[Effect]:
        """Note that the journal is away or back; if it is lost, answer the prompts that wait."""
        gate, over = self._gate, self._states.closing or self._states.taken
        match event:
            case JournalAway() if not (over or gate.away):
                gate.away = True
            case JournalBack() if gate.away:
                gate.away = False
            case JournalLost(detail) if not over:
                gate.away = False
                failure = Failed(Failure.NOT_BEGUN, detail)
                return self._queue.drop(failure, lambda prompt: prompt.committed)
            case Taken(detail) if not self._states.taken:
                self._states.taken, self._why = True, detail
                return self._end_all()
            case _:
                return [Dropped(event)]
        return []

    def _end_all(self) -> list[Effect]:
        """Kill every process and every hook of the session at once."""
        if self._states.current is State.CLOSED:
            return [StopHooks()]  # one of the session's end may run
        self._gate.forget()
        stops: list[Effect] = [StopHooks()] if self.hooks_live else []
        return [*stops, *self._processes.end_at_once()]

    def tell(self, *, given_up: bool = False) -> list[Effect]:
        """Tell clients, once, that the session was taken, if nothing of it lives here.

        `given_up`: what lives has not died in time, and is not waited for.
        """
        lives = bool(self._epochs.dying) or self.hooks_live
        if not self._states.taken or self._told or (lives and not given_up):
            return []
        self._told = True
        return [] if self._states.closing else [TellTaken(self._why)]

    def end(self) -> list[Effect]:
        """Answer what waits, once clients may be told that the session was taken."""
        out = self.tell()
        failure = Failed(Failure.NOT_BEGUN, self._why)
        return out + self._queue.drop(failure, lambda prompt: prompt.committed and self._told)
