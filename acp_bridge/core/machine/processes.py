"""The processes of one session: started, given the session, replaced, put to sleep, given up.

- A session is opened in a process only when no other process that had it lives. (invariant P12)
- An epoch, which names a process, is given out once. Every process that was started either fails
  or is told to die, and is released once.
- A restart has `MAX_TRIES` tries; then all prompts that wait are answered, and the next prompt
  tries again.
- While the journal is away a turn's end starts no process, and no prompt is answered for want of a
  process.
- A session sleeps only when nothing is asked of it; what is asked while its process ends waits for
  the next process. (invariant R16)
"""

from __future__ import annotations

from acp_bridge.core.machine.effects import (
    CloseAgent,
    Closed,
    Dropped,
    Effect,
    Failed,
    Failure,
    Kill,
    Leave,
    Open,
    Release,
    Start,
)
from acp_bridge.core.machine.events import (
    AgentEvent,
    AgentExited,
    Leaked,
    Loaded,
    LoadRefused,
    NeedsAuth,
    Occupied,
    ReplaceProcess,
    Started,
    StartFailed,
    TreeDead,
    Warm,
    WorkOver,
    WorkSeen,
)
from acp_bridge.core.machine.prompt_queue import OpenHooks, PromptQueue
from acp_bridge.core.machine.states import Gate, Happened, Phase, State, States

#: a restart is given up after so many starts that failed.
MAX_TRIES = 3


class Epochs:
    """Tracks the current process, a spare one and the dying ones, by epoch; methods return effects.

    A spare is started while the current process drains. It never gets the session before the
    current one is dead, and is killed if that answers its cancelled prompt in time.
    """

    def __init__(self, current: int) -> None:
        """`current`: the process that has the session, or 0."""
        #: the process that has the session, or is to get it.
        self.current = current
        self.spare: int | None = None
        #: the spare is initialized.
        self.spare_ready = False
        #: the epochs of the processes that were told to die and are not yet dead.
        self.dying: set[int] = set()
        #: the epochs of the processes in which another session works.
        self.occupied: set[int] = set()
        self._newest = current

    def start(self) -> list[Effect]:
        """Make the spare the current process, or start a new one if there is no spare."""
        if self.spare is None:
            self.current = self._newest = self._newest + 1
            return [Start(self.current)]
        self.current, self.spare = self.spare, None
        return []

    def start_spare(self) -> list[Effect]:
        """Start a spare process, up to `initialize` and no further."""
        self.spare = self._newest = self._newest + 1
        self.spare_ready = False
        return [Start(self.spare)]

    def on_spare(self, event: AgentEvent) -> list[Effect]:
        """Note that the spare process is ready, has failed or is dead; kill it if it has exited."""
        match event:
            case Started():
                self.spare_ready = True
                return []
            case StartFailed(epoch) | TreeDead(epoch):
                self.spare = None
                return [Release(epoch)]
            case AgentExited():
                return self.drop_spare()
            case Occupied():
                return self.note_occupied(event)
            case _:
                return [Dropped(event)]

    def note_occupied(self, event: Occupied) -> list[Effect]:
        """Note that another session works in a process, or none any more."""
        if event.now:
            self.occupied.add(event.epoch)
        else:
            self.occupied.discard(event.epoch)
        return []

    def drop_spare(self) -> list[Effect]:
        """Kill the spare, if there is one."""
        spare, self.spare = self.spare, None
        return [] if spare is None else self.kill(spare)

    def kill(self, *epochs: int) -> list[Effect]:
        """Count these processes as dying; returns the effects that kill them."""
        self.dying.update(epochs)
        return [Kill(epoch) for epoch in epochs]

    def leave(self) -> list[Effect]:
        """Count the current process as dying; returns the effect that leaves it to others."""
        self.dying.add(self.current)
        return [Leave(self.current)]

    def close(self) -> list[Effect]:
        """Count the current process as dying; returns the effect that lets it end by itself."""
        self.dying.add(self.current)
        return [CloseAgent(self.current)]

    def bury(self, *epochs: int) -> list[Effect]:
        """Release these processes: they are dead, or given up."""
        self.dying.difference_update(epochs)
        self.occupied.difference_update(epochs)
        return [Release(epoch) for epoch in epochs]


class Processes:
    """Decides when a process starts, gets the session and dies; methods return effects."""

    def __init__(
        self,
        states: States,
        epochs: Epochs,
        queue: PromptQueue,
        gate: Gate,
        open_hooks: OpenHooks,
        *,
        always_reload: bool,
        provisional: bool,
    ) -> None:
        """`always_reload`: no process outlives a cancel; `provisional`: it may get no prompt."""
        #: no process is used again after a cancel: by the settings, or since the agent has leaked.
        self.reloads_after_cancel = always_reload
        #: the process may get no further prompt; only a new process clears it. (invariant C12)
        self.provisional = provisional
        self._states = states
        self._epochs = epochs
        self._queue = queue
        self._gate = gate
        self._open_hooks = open_hooks
        #: a process is started as soon as the one that is killed is dead, even if no prompt waits.
        self._revive = False
        #: starts that failed in a row, and why the last one did.
        self._tries = 0
        self._trouble: object = None
        #: the process ends, or has ended, because the session was at rest for long.
        self._sleeps = False

    @property
    def asleep(self) -> bool:
        """True if the process has ended, or ends, because the session was at rest for long."""
        gone = self._states.current in (State.COLD, State.KILLING) and not self._states.closing
        return self._sleeps and gone

    def take(self, event: AgentEvent) -> list[Effect]:
        """Handle an event of the current process outside a turn."""
        match self._states.current, event:
            case State.STARTING, Started():
                return self._open()
            case State.STARTING, StartFailed(epoch, permanent, detail):
                self._count_failure(detail, permanent)
                return self._epochs.bury(epoch) + self.go_on()
            case State.RELOADING, Loaded(_, provisional):
                self.provisional = provisional
                return self._states.advance(Happened.SESSION_OPENED)
            case State.RELOADING, NeedsAuth(_, detail):
                return self._give_up(Happened.LOGIN_WANTED, Failed(Failure.NEEDS_AUTH, detail))
            case State.RELOADING, LoadRefused(_, permanent, detail):
                return self._fail(detail, permanent)
            case State.STARTING | State.RELOADING, AgentExited(_, detail):
                return self._fail(detail)
            case State.IDLE, WorkSeen() if self._counts_as_work:
                return self._states.advance(Happened.WORK_SEEN)
            case State.WORKING, WorkOver():
                return self._states.advance(Happened.WORK_OVER)
            case State.IDLE | State.WORKING | State.RUNNING | State.DRAINING, Leaked():
                self.reloads_after_cancel = True
                return self.replace(event)
            case State.IDLE | State.WORKING | State.UNAUTHENTICATED, AgentExited(_, detail):
                return self._tell_death(detail) + self.kill(revive=False)
            case _:
                return [Dropped(event)]

    @property
    def occupied(self) -> bool:
        """True while another session works in the current process."""
        return self._epochs.current in self._epochs.occupied

    @property
    def _counts_as_work(self) -> bool:
        """True if what the agent does between turns is neither a replay nor a leak."""
        return self._states.permits(provisional=self.provisional).updates is Phase.LIVE

    def _tell_death(self, detail: object) -> list[Effect]:
        """Run the hooks about a death, unless the user has just stopped the hooks that ran."""
        stopped = any(prompt.ending for prompt in self._queue.hooked)
        return [] if stopped else self._open_hooks.tell_death(detail)

    # --- a process starts ----------------------------------------------------------------------

    def warm(self, event: Warm) -> list[Effect]:
        """Start a process if there is none; if one is put to sleep, start the next after it."""
        if self._states.taken:
            return [Dropped(event)]
        if self._states.current is State.COLD:
            return self.begin()
        if self._states.current is State.KILLING and self.asleep:
            self._revive, self._sleeps = True, False
            return []
        return [Dropped(event)]

    def begin(self) -> list[Effect]:
        """Begin a restart: open the session again in a process that wanted a login, kill again what
        would not die, or start a process.
        """
        self._tries, self._trouble, self._revive = 0, None, True
        self._sleeps = False
        if self._states.current is State.UNAUTHENTICATED:
            return self._open()
        if self._epochs.dying:
            return self.kill(*sorted(self._epochs.dying))
        return self._start()

    def _start(self) -> list[Effect]:
        ready = self._epochs.spare is not None and self._epochs.spare_ready
        start = self._epochs.start()
        if ready:
            return self._open()
        return [*self._states.advance(Happened.PROCESS_STARTED), *start]

    def _open(self) -> list[Effect]:
        """Give the session to the current process, which is initialized and may replay it."""
        self._states.between_turns = Phase.REPLAY
        out = self._states.advance(Happened.SESSION_GIVEN)
        return [*out, Open(self._epochs.current)]

    # --- a process is replaced -----------------------------------------------------------------

    def replace(self, event: ReplaceProcess | Leaked) -> list[Effect]:
        """Replace the process, after its turn if it has one; drop the event if none has the
        session.
        """
        match self._states.current:
            case State.RUNNING | State.DRAINING:
                self.provisional = True
                return []
            case State.IDLE if isinstance(event, ReplaceProcess):
                return self.move()
            case State.IDLE | State.WORKING | State.RELOADING:
                return self.restart()
            case _:
                return [Dropped(event)]

    def restart(self) -> list[Effect]:
        """Kill the process and start another one after it, for which all tries are left."""
        self._tries, self._trouble = 0, None
        return self.kill()

    def move(self) -> list[Effect]:
        """Leave the process, in which the session is at rest, and get another one."""
        self._tries, self._trouble = 0, None
        return self._leave(revive=True)

    def end_opening(self, *, hurries: bool) -> list[Effect]:
        """End the process that does not have the session yet.

        One that is being given it, or wants a login, is left to others unless the end `hurries`.
        """
        starts = self._states.current is State.STARTING
        return self.kill() if hurries or starts else self._leave(revive=False)

    def sleep(self) -> list[Effect]:
        """Leave the process; the next is started when somebody needs one."""
        self._tries, self._trouble, self._sleeps = 0, None, True
        return self._leave(revive=False)

    def _leave(self, *, revive: bool) -> list[Effect]:
        self._revive = revive
        return [*self._states.advance(Happened.TOLD_TO_END), *self._epochs.leave()]

    def kill(self, *epochs: int, revive: bool = True) -> list[Effect]:
        """Kill these processes, or the current one; `revive`: then start another one."""
        self._revive = revive
        out = self._states.advance(Happened.TOLD_TO_END)
        return out + self._epochs.kill(*epochs or (self._epochs.current,))

    def end_at_once(self) -> list[Effect]:
        """Kill every process that lives, also one that was let end by itself; as another bridge has
        the session, none follows.
        """
        self._sleeps = False
        self._epochs.drop_spare()  # counts as dying, so it is among the next line's
        epochs = set(self._epochs.dying)
        if self._states.current not in (State.COLD, State.BLOCKED, State.KILLING):
            epochs.add(self._epochs.current)
        return self.kill(*sorted(epochs)) if epochs else []

    # --- a process could not be used -----------------------------------------------------------

    def _count_failure(self, detail: object, permanent: bool) -> None:
        """Count a try that failed; after a `permanent` failure another try is useless."""
        self._tries = MAX_TRIES if permanent else self._tries + 1
        self._trouble = detail

    def _fail(self, detail: object, permanent: bool = False) -> list[Effect]:
        """Count a try that failed, and kill its process."""
        self._count_failure(detail, permanent)
        return self.kill()

    def use_up(self) -> None:
        """Count all tries of the restart as used: their time is over, or a process does not die."""
        self._tries = MAX_TRIES

    def run_out(self) -> list[Effect]:
        """Answer all prompts that wait and kill the process: the tries together took too long."""
        self.use_up()
        out = self._drop(Failed(Failure.NO_AGENT, self._trouble))
        return out if self._states.current is State.KILLING else out + self.kill()

    def _give_up(self, happened: Happened, failure: Failed) -> list[Effect]:
        """Answer all prompts that wait with this failure; the next prompt tries again."""
        out = self._epochs.drop_spare()
        out += self._states.advance(happened)
        return out + self._drop(failure)

    def _drop(self, failure: Failed) -> list[Effect]:
        """Answer all prompts that wait, unless the journal is away: then they go on waiting."""
        return [] if self._gate.away else self._queue.drop(failure)

    # --- what is next --------------------------------------------------------------------------

    def bury(self, event: TreeDead | StartFailed) -> list[Effect]:
        """Release a process that was told to die and is dead."""
        current = event.epoch == self._epochs.current
        if current and isinstance(event, StartFailed) and event.permanent:
            self._count_failure(event.detail, permanent=True)
        return self._epochs.bury(event.epoch)

    def rest(self) -> list[Effect]:
        """Go on after a turn whose process lives: end it, replace it, or have it idle."""
        if self._states.closing:
            return self.close_agent()
        if self.provisional:
            return self.restart()
        return self._states.advance(Happened.TURN_OVER)

    def go_on(self) -> list[Effect]:
        """Go on without a process: end the session, give up, start one, or wait for a prompt."""
        if self._states.closing:
            return self.end()
        if self._states.taken:
            return self._states.advance(Happened.PROCESS_GONE)
        if self._tries >= MAX_TRIES:
            return self._give_up(Happened.GAVE_UP, Failed(Failure.NO_AGENT, self._trouble))
        begun = self._tries or self._epochs.spare is not None
        if self._revive and (begun or not self._gate.away):
            return self._start()
        return self._states.advance(Happened.PROCESS_GONE)

    def close_agent(self) -> list[Effect]:
        """Let the process end by itself: the session ends with it."""
        return [*self._states.advance(Happened.TOLD_TO_END), *self._epochs.close()]

    def end(self) -> list[Effect]:
        """End the session, after the hooks about a prompt if some run."""
        if self._queue.hooked:
            return self._states.advance(Happened.TOLD_TO_END)
        self._open_hooks.forget()
        return [*self._states.advance(Happened.SESSION_OVER), Closed()]
