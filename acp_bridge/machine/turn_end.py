"""The end of the running turn: answered, cancelled, or its agent died.

- The end of a bad turn has one order: tree dead, terminals released, cards closed, prompt
  answered, session reloaded, next prompt.
- `cancelled` is answered only when no hook of the turn runs any more. (invariant C10)
"""

from __future__ import annotations

from acp_bridge.machine.effects import CloseCards, Dropped, Effect, NoteOutcome, SendCancel
from acp_bridge.machine.epochs import Epochs
from acp_bridge.machine.events import AgentAnswered
from acp_bridge.machine.open_hooks import OpenHooks
from acp_bridge.machine.outcomes import Cancelled, Failed, Failure, Outcome, Replied
from acp_bridge.machine.prompt_queue import PromptQueue
from acp_bridge.machine.restarts import Restarts
from acp_bridge.machine.stage import Stage
from acp_bridge.machine.states import State


class TurnEnd:
    """Decides how the running turn ends, and when; methods return effects."""

    def __init__(
        self,
        stage: Stage,
        queue: PromptQueue,
        epochs: Epochs,
        open_hooks: OpenHooks,
        restarts: Restarts,
    ) -> None:
        """No turn runs."""
        #: the last turn was cancelled and nothing was sent since: what still comes is unclean.
        self.tainted = False
        self._stage = stage
        self._queue = queue
        self._epochs = epochs
        self._open_hooks = open_hooks
        self._restarts = restarts
        #: what the running prompt is answered when its process is dead.
        self._outcome: Outcome = Cancelled()

    @property
    def cancels(self) -> bool:
        """The running turn is about to be answered `cancelled`."""
        over = self._stage.state in (State.DRAINING, State.KILLING) and self._queue.running
        return bool(over) and isinstance(self._outcome, Cancelled)

    @property
    def _hooks_hold_up(self) -> bool:
        """A cancelled turn may not end yet, because a hook of it runs. (invariant C10)"""
        return self._open_hooks.running and self.cancels

    # --- the turn is to end --------------------------------------------------------------------

    def cancel(self) -> list[Effect]:
        """Take the user's Stop: drain a turn that runs, and have a turn that ends so cancelled."""
        running, out = self._queue.running, list[Effect]()
        if self._stage.state is State.RUNNING:
            out = self.drain()
        elif running:
            out = self._open_hooks.stop()
        self.mark_cancelled()
        return out

    def mark_cancelled(self) -> None:
        """Decide that a turn which ends is answered `cancelled`, whatever ended it."""
        self._outcome = Cancelled()

    def drain(self) -> list[Effect]:
        """Tell the agent to cancel the running prompt."""
        self._outcome = Cancelled()
        out = self._stage.enter(State.DRAINING)
        if prompt := self._queue.running:
            out.append(SendCancel(self._epochs.current, prompt.key))
        return out + self._open_hooks.stop()

    def died(self, detail: object) -> list[Effect]:
        """Go on from a turn in which the agent's process ended by itself."""
        out = self._open_hooks.tell_death(detail)
        self._outcome = Failed(Failure.AGENT_DIED, detail)
        return out + self._restarts.restart()

    # --- the agent has ended it ----------------------------------------------------------------

    def answered(self, answer: object) -> list[Effect]:
        """Take the agent's answer to a prompt that nobody cancelled."""
        ends = (
            self._queue.leave(answer)
            if self._open_hooks.after_turn
            else self._finish(Replied(answer))
        )
        return ends + self._restarts.rest()

    def not_begun(self) -> list[Effect]:
        """Answer a prompt that was not sent, because the journal could not note its start."""
        return self._finish(Failed(Failure.NOT_BEGUN)) + self._restarts.rest()

    def drained(self, event: AgentAnswered) -> list[Effect]:
        """Take the answer that came in time to a cancelled prompt."""
        return self.note(event) + self.end_drain()

    def end_drain(self) -> list[Effect]:
        """Go on from a cancelled turn that the agent has ended, unless a hook of it runs."""
        restarts = self._restarts
        if (restarts.distrust or restarts.renew) and not self._stage.closing:
            return restarts.restart()
        if self._hooks_hold_up:
            return []
        return self._epochs.drop_spare() + self.finish_badly() + restarts.rest()

    def note(self, event: AgentAnswered) -> list[Effect]:
        """Keep what the agent says of its cancelled prompt, for the journal. (invariant C13)"""
        prompt = self._queue.running
        if prompt and not prompt.noted and isinstance(self._outcome, Cancelled):
            prompt.noted = True
            return [NoteOutcome(prompt.key, event.answer)]
        return [Dropped(event)]

    # --- nothing more comes of it --------------------------------------------------------------

    def after_hooks(self) -> list[Effect]:
        """Go on with what waited for the end of hooks."""
        state, running = self._stage.state, self._queue.running
        if state is State.DRAINING and running and running.noted and not self._hooks_hold_up:
            return self.end_drain()
        return self.after_deaths()

    def after_deaths(self) -> list[Effect]:
        """Go on when every process that was told to die is dead, and no hook holds the turn up."""
        if self._stage.state is not State.KILLING or self._epochs.dying or self._hooks_hold_up:
            return []
        return self.finish_badly() + self._restarts.go_on()

    def finish_badly(self) -> list[Effect]:
        """Answer the prompt of a turn of which nothing more comes; its open cards end (C22)."""
        return [CloseCards(), *self._finish(self._outcome)] if self._queue.running else []

    def abandon(self) -> list[Effect]:
        """Hold what waits; interrupt the turn unless it was cancelled. (invariant Q6)"""
        out = self._queue.hold()
        if self._stage.state is State.RUNNING:
            return [*out, CloseCards(), *self._queue.interrupt()]
        return out + self.finish_badly()

    def _finish(self, outcome: Outcome) -> list[Effect]:
        if self._queue.running:
            self.tainted = isinstance(outcome, Cancelled)
        return self._queue.finish(outcome)
