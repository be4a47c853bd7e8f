"""What the agent processes of one session do, and what follows when one takes too long.

What comes from an epoch that is neither current, spare nor dying is dropped, as is what the
current one says in a state that does not expect it.
"""

from __future__ import annotations

from typing import assert_never

from acp_bridge.machine.effects import Dropped, Effect, StillWaits
from acp_bridge.machine.event_taker import EventTaker
from acp_bridge.machine.events import (
    AgentAnswered,
    AgentEvent,
    AgentExited,
    Loaded,
    LoadRefused,
    NeedsAuth,
    PauseAnswered,
    Started,
    StartFailed,
    TreeDead,
    Unclean,
)
from acp_bridge.machine.outcomes import Failed, Failure
from acp_bridge.machine.states import State, Timer


class ProcessEvents(EventTaker):
    """Takes what processes and deadlines do; methods return effects."""

    def take(self, event: AgentEvent) -> list[Effect]:
        """Take one event, by the epoch that it comes from."""
        match event:
            case TreeDead(epoch) | StartFailed(epoch) if epoch in self._epochs.dying:
                return self._dead(event)
            case AgentExited(epoch) if epoch in self._epochs.dying:
                return []  # as expected; the death of its tree is what counts
            case _ if event.epoch == self._epochs.spare:
                return self._epochs.on_spare(event)
            case _ if event.epoch == self._epochs.current:
                return self._current(event)
            case _:
                return [Dropped(event)]

    def _dead(self, event: TreeDead | StartFailed) -> list[Effect]:
        """Take the news that a process which was told to die is dead."""
        out = self._epochs.bury(event.epoch)
        current = event.epoch == self._epochs.current
        if current and isinstance(event, StartFailed) and event.permanent:
            self._restarts.count_failure(event.detail, permanent=True)
        return out + self._turn_end.after_deaths()

    def _current(self, event: AgentEvent) -> list[Effect]:
        """Take an event of the current process, by state."""
        restarts, turn_end = self._restarts, self._turn_end
        match self._stage.state, event:
            case State.STARTING, Started():
                return restarts.open()
            case State.STARTING, StartFailed(epoch, permanent, detail):
                restarts.count_failure(detail, permanent)
                return self._epochs.bury(epoch) + restarts.go_on()
            case State.RELOADING, Loaded(_, provisional):
                restarts.renew, turn_end.tainted = provisional, False
                return self._stage.enter(State.IDLE)
            case State.RELOADING, NeedsAuth(_, detail):
                return restarts.give_up(State.UNAUTHENTICATED, Failed(Failure.NEEDS_AUTH, detail))
            case State.RELOADING, LoadRefused(_, permanent, detail):
                return restarts.fail(detail, permanent)
            case State.STARTING | State.RELOADING, AgentExited(_, detail):
                return restarts.fail(detail)
            case State.IDLE | State.RUNNING | State.DRAINING, Unclean():
                restarts.distrust = True
                return restarts.replace(event)
            case State.IDLE | State.UNAUTHENTICATED, AgentExited(_, detail):
                return self._tell_death(detail) + restarts.kill(revive=False)
            case State.RUNNING, AgentAnswered(_, self._queue.running_key, answer):
                return turn_end.answered(answer)
            case State.RUNNING, PauseAnswered(_, self._gate.asked, paused):
                self._gate.answered(paused)
                return []
            case State.RUNNING, AgentExited(_, detail):
                return turn_end.died(detail)
            case State.DRAINING, AgentAnswered(_, self._queue.running_key):
                return turn_end.drained(event)
            case State.DRAINING, AgentExited():
                return restarts.restart()
            case State.KILLING, AgentAnswered(_, self._queue.running_key):
                return turn_end.note(event)
            case _:
                return [Dropped(event)]

    def _tell_death(self, detail: object) -> list[Effect]:
        """Tell of a death outside a turn, unless the user has just stopped what hooks do."""
        hooked = self._queue.hooked
        return [] if hooked and hooked.ending else self._open_hooks.tell_death(detail)

    def pass_deadline(self, timer: Timer) -> list[Effect]:
        """Take a timer that was armed and has passed."""
        match timer:
            case Timer.SPARE:
                return [] if self._stage.closing else self._epochs.start_spare()
            case Timer.DRAIN:
                return self._restarts.restart()
            case Timer.RESTART:
                return self._restarts.run_out()
            case Timer.KILL:
                return self._deathless()
            case Timer.SIGN:
                return [StillWaits()]
            case _:
                assert_never(timer)

    def _deathless(self) -> list[Effect]:
        """Go on although a process is still not dead: it is never used again."""
        out: list[Effect] = []
        self._open_hooks.forget()
        if self._stage.closing:
            out = self._epochs.bury(*sorted(self._epochs.dying))
            out += self._queue.end_hooks()
        self._restarts.use_up()
        return out + self._turn_end.finish_badly() + self._restarts.go_on()
