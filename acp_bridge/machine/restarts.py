"""The way to a process that has the session: start, open, restart, sleep, give up.

- A session is opened in a process only when no other process that had it lives.
- A restart has `MAX_TRIES` tries; then all that wait are answered, and the next prompt tries again.
- A session sleeps only when nothing is asked of it; whatever is asked while its process ends waits
  for the next one. (invariant R16)
"""

from __future__ import annotations

from acp_bridge.machine.effects import Closed, Dropped, Effect, Open
from acp_bridge.machine.epochs import Epochs
from acp_bridge.machine.events import Renew, Unclean, Warm
from acp_bridge.machine.open_hooks import OpenHooks
from acp_bridge.machine.outcomes import Failed, Failure
from acp_bridge.machine.prompt_queue import PromptQueue
from acp_bridge.machine.stage import Stage
from acp_bridge.machine.states import State

#: a restart is given up after so many starts that failed.
MAX_TRIES = 3


class Restarts:
    """Decides when a process starts, gets the session and dies; methods return effects."""

    def __init__(
        self,
        stage: Stage,
        epochs: Epochs,
        queue: PromptQueue,
        open_hooks: OpenHooks,
        *,
        distrust: bool,
        renew: bool,
    ) -> None:
        """`distrust`: no process is used again after a cancel. `renew`: see the attribute."""
        #: the process was given the session and no prompt since: it may replay what is known.
        self.replaying = False
        #: no process is used again after a cancel: the setting, or the agent was seen to leak.
        self.distrust = distrust
        #: the process may not get another prompt; only a new process clears it. (invariant C12)
        self.renew = renew
        self._stage = stage
        self._epochs = epochs
        self._queue = queue
        self._open_hooks = open_hooks
        #: KILLING ends in a start, even if no prompt waits.
        self._revive = False
        #: starts that failed in a row, and why the last one did.
        self._tries = 0
        self._trouble: object = None
        #: the process ends, or has ended, because the session was at rest for long.
        self._sleeps = False

    @property
    def provisional(self) -> bool:
        """The process has the session, and is to be replaced before it gets a prompt."""
        return self._stage.state is State.IDLE and self.renew

    @property
    def asleep(self) -> bool:
        """There is no process, or it ends, because the session was at rest for long."""
        gone = self._stage.state in (State.COLD, State.KILLING) and not self._stage.closing
        return self._sleeps and gone

    # --- a process starts ----------------------------------------------------------------------

    def warm(self, event: Warm) -> list[Effect]:
        """Start a process if there is none; one that falls asleep is followed by the next."""
        if self._stage.state is State.COLD:
            return self.begin()
        if self._stage.state is State.KILLING and self.asleep:
            self._revive, self._sleeps = True, False
            return []
        return [Dropped(event)]

    def begin(self) -> list[Effect]:
        """Make the first try, from a state in which nothing is on its way."""
        self._tries, self._trouble, self._revive = 0, None, True
        self._sleeps = False
        if self._stage.state is State.UNAUTHENTICATED:
            return self.open()
        if self._epochs.dying:
            return self.kill(*sorted(self._epochs.dying))
        return self._start()

    def _start(self) -> list[Effect]:
        ready = self._epochs.spare is not None and self._epochs.spare_ready
        start = self._epochs.start()
        return self.open() if ready else [*self._stage.enter(State.STARTING), *start]

    def open(self) -> list[Effect]:
        """Give the session to the current process, which is initialized."""
        self.replaying = True
        return [*self._stage.enter(State.RELOADING), Open(self._epochs.current)]

    # --- a process is replaced -----------------------------------------------------------------

    def replace(self, event: Renew | Unclean) -> list[Effect]:
        """Give the process no further prompt; drop the event if none has the session."""
        match self._stage.state:
            case State.RUNNING | State.DRAINING:
                self.renew = True
                return []
            case State.IDLE | State.RELOADING:
                return self.restart()
            case _:
                return [Dropped(event)]

    def restart(self) -> list[Effect]:
        """Kill the process and begin to count the tries anew."""
        self._tries, self._trouble = 0, None
        return self.kill()

    def sleep(self) -> list[Effect]:
        """Kill the process; the next is started when somebody needs one."""
        self._tries, self._trouble, self._sleeps = 0, None, True
        return self.kill(revive=False)

    def kill(self, *epochs: int, revive: bool = True) -> list[Effect]:
        """Kill these processes, or the one that has the session."""
        self._revive = revive
        out = self._stage.enter(State.KILLING)
        return out + self._epochs.kill(*epochs or (self._epochs.current,))

    # --- a process could not be used -----------------------------------------------------------

    def count_failure(self, detail: object, permanent: bool = False) -> None:
        """Count a try that failed; after a `permanent` failure another is useless."""
        self._tries = MAX_TRIES if permanent else self._tries + 1
        self._trouble = detail

    def fail(self, detail: object, permanent: bool = False) -> list[Effect]:
        """Count a try that failed, and kill its process."""
        self.count_failure(detail, permanent)
        return self.kill()

    def use_up(self) -> None:
        """Make no further try: the time for them is over, or a process does not die."""
        self._tries = MAX_TRIES

    def run_out(self) -> list[Effect]:
        """End the restart, because all its tries together took too long."""
        self.use_up()
        out = self._queue.drop(Failed(Failure.NO_AGENT, self._trouble))
        return out if self._stage.state is State.KILLING else out + self.kill()

    def give_up(self, state: State, failure: Failed) -> list[Effect]:
        """Answer all that wait; the next prompt tries again."""
        out = self._epochs.drop_spare()
        out += self._stage.enter(state)
        return out + self._queue.drop(failure)

    # --- what is next --------------------------------------------------------------------------

    def rest(self) -> list[Effect]:
        """Go on after a turn whose process lives."""
        if self._stage.closing:
            return self.close_agent()
        if self.renew:
            return self.restart()
        return self._stage.enter(State.IDLE)

    def go_on(self) -> list[Effect]:
        """End, give up, start a process, or wait for a prompt: no process has the session."""
        if self._stage.closing:
            return self.end()
        if self._tries >= MAX_TRIES:
            return self.give_up(State.BLOCKED, Failed(Failure.NO_AGENT, self._trouble))
        if self._revive:
            return self._start()
        return self._stage.enter(State.COLD)

    def close_agent(self) -> list[Effect]:
        """Let the process end by itself: the session ends with it."""
        return [*self._stage.enter(State.KILLING), *self._epochs.close()]

    def end(self) -> list[Effect]:
        """End the session, or wait for the hooks about a prompt before."""
        if self._queue.hooked:
            return self._stage.enter(State.KILLING)
        self._open_hooks.forget()
        return [*self._stage.enter(State.CLOSED), Closed()]
