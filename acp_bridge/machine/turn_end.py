"""How the running turn ends: answered, cancelled, or with its process; and how work beside prompts
does.

- The end of a bad turn has one order: tree dead, terminals released, cards closed, prompt
  answered, session reloaded, next prompt.
- `cancelled` is answered only when no hook of the turn runs any more. (invariant C10)
"""

from __future__ import annotations

from acp_bridge.machine.effects import (
    Cancelled,
    CloseCards,
    Dropped,
    Effect,
    Failed,
    Failure,
    NoteOutcome,
    Outcome,
    Replied,
    SendCancel,
    StopWork,
)
from acp_bridge.machine.events import AgentAnswered, NotBegun
from acp_bridge.machine.gate import Gate
from acp_bridge.machine.processes import Epochs, Processes
from acp_bridge.machine.prompt_queue import OpenHooks, PromptQueue
from acp_bridge.machine.states import Happened, Phase, State, States


class TurnEnd:
    """Decides how the running turn ends, and when; methods return effects."""

    def __init__(
        self,
        states: States,
        queue: PromptQueue,
        gate: Gate,
        epochs: Epochs,
        open_hooks: OpenHooks,
        processes: Processes,
    ) -> None:
        self._states = states
        self._queue = queue
        self._gate = gate
        self._epochs = epochs
        self._open_hooks = open_hooks
        self._processes = processes
        #: what the running prompt is answered when its process is dead.
        self._outcome: Outcome = Cancelled()

    @property
    def cancels(self) -> bool:
        """True if the running turn is about to be answered `cancelled`."""
        over = self._states.current in (State.DRAINING, State.KILLING) and self._queue.running
        return bool(over) and isinstance(self._outcome, Cancelled)

    @property
    def _hooks_hold_up(self) -> bool:
        """True if a cancelled turn may not end yet, because a hook of it runs. (invariant C10)"""
        return self._open_hooks.running and self.cancels

    # --- the turn is to end --------------------------------------------------------------------

    def cancel(self) -> list[Effect]:
        """Cancel the turn for the user's Stop; one that is ending is answered `cancelled`."""
        running, out = self._queue.running, list[Effect]()
        if self._states.current is State.RUNNING:
            out = self.drain()
        elif running:
            out = self._open_hooks.stop()
        self.mark_cancelled()
        return out

    def mark_cancelled(self) -> None:
        """Make `cancelled` the answer of a turn that is ending, whatever ended it."""
        self._outcome = Cancelled()

    def drain(self) -> list[Effect]:
        """Tell the agent to cancel the running prompt, or what it does outside of one."""
        self._outcome, self._states.work_asked = Cancelled(), False
        out = self._states.advance(Happened.CANCEL_SENT)
        if prompt := self._queue.running:
            return [*out, SendCancel(self._epochs.current, prompt.key), *self._open_hooks.stop()]
        self._states.between_turns = Phase.LEAK
        return [*out, StopWork(self._epochs.current), *self._open_hooks.stop()]

    def died(self, detail: object) -> list[Effect]:
        """Go on from a turn in which the agent's process ended by itself."""
        out = self._open_hooks.tell_death(detail)
        self._outcome = Failed(Failure.AGENT_DIED, detail)
        out += self._queue.lapse() + self._queue.drop(
            Failed(Failure.NOT_JOINED), lambda prompt: prompt.steers
        )
        return out + self._processes.restart()

    # --- the agent has ended it ----------------------------------------------------------------

    def answered(self, answer: object) -> list[Effect]:
        """Take the agent's answer to a prompt that nobody cancelled."""
        ends = (
            self._queue.leave(answer)
            if self._open_hooks.after_turn
            else self._finish(Replied(answer))
        )
        return ends + self._processes.rest()

    def not_begun(self, event: NotBegun) -> list[Effect]:
        """Take back a prompt that was not sent, because the journal could not note its start.

        It waits again if the journal may come back, and is answered otherwise.
        """
        state = self._states.current
        if event.key != self._queue.running_key:
            return [Dropped(event)]
        self._gate.away |= event.away
        if state is State.DRAINING:
            return self.end_drain()
        if event.away and not self.cancels:
            ends = self._queue.take_back()
        elif state is State.RUNNING:
            ends = self._finish(Failed(Failure.NOT_BEGUN, event.detail))
        else:
            return [Dropped(event)]
        return ends + (self._processes.rest() if state is State.RUNNING else [])

    def drained(self, event: AgentAnswered) -> list[Effect]:
        """Take the answer that came in time to a cancelled prompt."""
        return self.note(event) + self.end_drain()

    def end_drain(self) -> list[Effect]:
        """Go on when the agent has ended what was cancelled, unless a hook of a turn runs."""
        processes = self._processes
        reloads = processes.reloads_after_cancel or processes.provisional
        if reloads and not self._states.closing:
            return processes.restart()
        if self._hooks_hold_up:
            return []
        return self._epochs.drop_spare() + self.finish_badly() + processes.rest()

    def note(self, event: AgentAnswered) -> list[Effect]:
        """Keep the agent's own answer to a cancelled prompt, for the journal. (invariant C13)"""
        prompt = self._queue.running
        if prompt and not prompt.noted and isinstance(self._outcome, Cancelled):
            prompt.noted = True
            return [NoteOutcome(prompt.key, event.answer)]
        return [Dropped(event)]

    # --- nothing more comes of it --------------------------------------------------------------

    def after_hooks(self) -> list[Effect]:
        """Go on with a turn that waited for the end of hooks, or with the end of the session."""
        state, running = self._states.current, self._queue.running
        if state is State.DRAINING and running and running.noted and not self._hooks_hold_up:
            return self.end_drain()
        return self.after_deaths()

    def after_deaths(self) -> list[Effect]:
        """Go on when every process that was told to die is dead, and no hook holds the turn up."""
        if self._states.current is not State.KILLING or self._epochs.dying or self._hooks_hold_up:
            return []
        return self.finish_badly() + self._processes.go_on()

    def finish_badly(self) -> list[Effect]:
        """Answer the prompt of a turn that is over; its open cards end (C22)."""
        return [CloseCards(), *self._finish(self._outcome)] if self._queue.running else []

    def abandon(self) -> list[Effect]:
        """Leave waiting prompts over; interrupt the turn unless it was cancelled. (invariant Q6)"""
        out = self._queue.leave_over()
        if self._states.current is State.RUNNING:
            return [*out, CloseCards(), *self._queue.interrupt()]
        return out + (self.finish_badly() if self._queue.running else self._queue.interrupt())

    def _finish(self, outcome: Outcome) -> list[Effect]:
        self.mark_over(cancelled=isinstance(outcome, Cancelled))
        return self._queue.finish(outcome)

    def mark_over(self, *, cancelled: bool) -> None:
        """Set how the agent's updates are treated from the end of this turn on.

        A process that was given the session meanwhile may replay it, and knows of no such turn.
        """
        if self._states.between_turns is not Phase.REPLAY:
            self._states.between_turns = Phase.LEAK if cancelled else Phase.LIVE
