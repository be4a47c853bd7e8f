"""The turn machine of one session. SANS-IO: `step(event)` gives effects.

Everything that decides what happens to a prompt lives here and in `prompt_queue.py`, and nothing
here knows a clock, a process or JSON. The rules that must always hold:

- One turn at a time; prompts in the order of reading, only after they are committed.
- Every prompt gets exactly one `Answer` (or, when the bridge ends, one `Hold` or `Interrupted`).
- What comes from an old epoch, an old turn or a disarmed timer is dropped.
- The end of a bad turn has one order: tree dead, terminals released, cards closed, prompt
  answered, session reloaded, next prompt.
- A session is opened in a process only when no other process that had it lives.
- A state that is on its way somewhere has a deadline, armed before anything else is done.

      COLD -> STARTING -> RELOADING -> IDLE <-> RUNNING -> DRAINING -> IDLE
                ^                        |         |           |
                +---- KILLING <----------+---------+-----------+        BLOCKED, CLOSED
"""

from __future__ import annotations

from enum import Enum, auto

from acp_bridge import signals as sig
from acp_bridge.prompt_queue import PromptQueue
from acp_bridge.signals import Cancelled, Failed, Failure, Outcome, Replied, Timer

#: a restart is given up after so many starts that failed.
MAX_TRIES = 3


class State(Enum):
    """Where a session is."""

    #: no process.
    COLD = auto()
    #: a process starts, up to `initialize`.
    STARTING = auto()
    #: the process takes the session and its settings.
    RELOADING = auto()
    #: ready for a prompt.
    IDLE = auto()
    #: the agent has a prompt.
    RUNNING = auto()
    #: the agent was told to cancel its prompt.
    DRAINING = auto()
    #: something that was told to die is not yet dead.
    KILLING = auto()
    #: needs authentication, or the restarts failed; tried again at the next prompt.
    BLOCKED = auto()
    #: gone.
    CLOSED = auto()


#: What is armed on the way into a state; everything else is disarmed. (HAZARDS C14, C21)
DEADLINES = {
    State.STARTING: (Timer.RESTART,),
    State.RELOADING: (Timer.RESTART,),
    State.DRAINING: (Timer.SPARE, Timer.DRAIN),
    State.KILLING: (Timer.KILL,),
}
#: What goes on if it was armed before: the tries of a restart share one deadline.
KEPT = {State.KILLING: (Timer.RESTART,)}


class Turns:
    """One session's machine. Feed it with `step`; read `state`, `epoch`, `turn`, `tainted`."""

    def __init__(
        self,
        *,
        epoch: int = 0,
        clear_on_cancel: bool = False,
        always_reload: bool = False,
    ) -> None:
        """`epoch` > 0: a process that has the session open already (`session/new`)."""
        self.state = State.IDLE if epoch else State.COLD
        #: the process that has the session, or gets it.
        self.epoch = epoch
        #: the number of the running turn, or of the last one.
        self.turn = 0
        #: the last turn was cancelled and nothing was sent since: what still comes is unclean.
        self.tainted = False
        self._queue = PromptQueue()
        self._clear = clear_on_cancel
        #: no process is used again after a cancel: the setting, or the agent was seen to leak.
        self._distrust = always_reload
        #: what the running prompt is answered if its agent doesn't, or when it was cancelled.
        self._ending: Outcome = Cancelled()
        #: the agent's answer of the running prompt is in the journal, though not yet shown.
        self._noted = False
        #: the process may not get another prompt; cleared by a new one only. (HAZARDS C12)
        self._renew = False
        #: after KILLING: start again, whether or not somebody waits.
        self._revive = False
        self._tries = 0
        self._trouble: object = None
        #: the replacement started during a drain, and whether it is initialized.
        self._spare: int | None = None
        self._spare_ready = False
        #: BLOCKED with a process that waits for authentication.
        self._unauthenticated = False
        #: told to die and not yet dead.
        self._dying: set[int] = set()
        self._newest = epoch
        self._closing: sig.Close | sig.ClientGone | None = None
        self._timers: dict[Timer, int] = {}
        self._token = 0
        self._out: list[sig.Effect] = []

    @property
    def running(self) -> int | None:
        """The key of the prompt that the agent has, or None."""
        return self._queue.running.key if self._queue.running else None

    @property
    def waiting(self) -> tuple[int, ...]:
        """The keys in the queue, the next one first."""
        return tuple(prompt.key for prompt in self._queue.waiting)

    @property
    def awaited(self) -> bool:
        """True while somebody waits for an answer."""
        return bool(self._queue.unanswered)

    def step(self, event: sig.Event) -> list[sig.Effect]:
        """Take one event, return what is to be done, in order.

        Raises ValueError, and nothing has happened, if a prompt is received twice.
        """
        self._out = []
        match event:
            case sig.PromptReceived() | sig.Committed() | sig.CommitFailed() | sig.RunHeld():
                self._on_prompt(event)
            case sig.Cancel() | sig.CancelPrompt():
                self._on_cancel(event)
            case sig.Close() | sig.ClientGone():
                self._on_end(event)
            case sig.Deadline(timer, token):
                if self._timers.get(timer) == token:
                    del self._timers[timer]
                    self._on_deadline(timer)
            case sig.Warm():
                if self.state is State.COLD:
                    self._begin()
            case sig.Renew():
                self._replace()
            case _:
                self._on_agent(event)
        self._proceed()
        return self._out

    # --- prompts -------------------------------------------------------------------------------

    def _on_prompt(
        self, event: sig.PromptReceived | sig.Committed | sig.CommitFailed | sig.RunHeld
    ) -> None:
        match event:
            case sig.PromptReceived(key) | sig.RunHeld(key) if self._closing:
                self._out.append(sig.Answer(key, Failed(Failure.CLOSED)))
            case sig.PromptReceived(key, interrupt):
                self._queue.receive(key, interrupt)
                self._out.append(sig.Commit(key))
            case sig.RunHeld(carrier, keys):
                self._out += self._queue.receive_held(carrier, keys)
            case sig.Committed(key):
                prompt = self._queue.find(key)
                if prompt and not prompt.committed:
                    prompt.committed = True
                    if prompt.victim is not None:
                        self._supersede(prompt.victim)
            case sig.CommitFailed(key, detail):
                failure = Failed(Failure.JOURNAL, detail)
                self._out += self._queue.drop(failure, lambda p: p.key == key and not p.committed)

    def _supersede(self, victim: int) -> None:
        if self.state is State.RUNNING and self.running == victim:
            self._drain()
        self._out += self._queue.drop(Cancelled(), lambda prompt: prompt.key == victim)

    def _proceed(self) -> None:
        """Whatever happened: the next prompt runs if it can, or what it waits for starts."""
        waiting = self._queue.waiting
        if self._closing or not waiting or not waiting[0].committed:
            return
        if self.state is State.IDLE:
            self.turn += 1
            self.tainted = self._noted = False
            self._enter(State.RUNNING)
            prompt = self._queue.take_next()
            self._out.append(sig.SendPrompt(self.epoch, self.turn, prompt.key))
        elif self.state in (State.COLD, State.BLOCKED):
            self._begin()

    def _finish(self, outcome: Outcome) -> None:
        if self._queue.running:
            self.tainted = isinstance(outcome, Cancelled)
            self._out += self._queue.finish(outcome)

    # --- cancel --------------------------------------------------------------------------------

    def _on_cancel(self, event: sig.Cancel | sig.CancelPrompt) -> None:
        if self._closing or not self._queue.unanswered:
            return
        oldest, running = self._queue.unanswered[0], self._queue.running
        if isinstance(event, sig.CancelPrompt):
            key = event.key
            if not running or key not in (running.key, running.request):
                self._out += self._queue.drop(Cancelled(), lambda p: key in (p.key, p.request))
                return
        if self.state is State.RUNNING:
            self._drain()
        self._ending = Cancelled()
        self._out += self._queue.drop(
            Cancelled(), lambda p: self._clear or p.interrupt or p.request == oldest.request
        )

    def _drain(self) -> None:
        self._ending = Cancelled()
        self._enter(State.DRAINING)
        self._out.append(sig.SendCancel(self.epoch, self.turn))

    # --- what the agent does -------------------------------------------------------------------

    def _on_agent(self, event: sig.AgentEvent) -> None:
        if event.epoch in self._dying and isinstance(event, sig.TreeDead | sig.StartFailed):
            self._on_dead(event)
        elif event.epoch == self._spare:
            self._on_spare(event)
        elif event.epoch != self.epoch:
            pass
        elif isinstance(event, sig.AgentAnswered):
            self._on_answer(event)
        elif isinstance(event, sig.Unclean):
            if self.state in (State.IDLE, State.RUNNING, State.DRAINING):
                self._distrust = True
                self._replace()
        else:
            self._on_process(event)

    def _on_process(self, event: sig.AgentEvent) -> None:
        match self.state, event:
            case State.STARTING, sig.Started():
                self._open()
            case State.STARTING, sig.StartFailed(_, permanent, detail):
                self._count_failure(permanent, detail)
                self._out.append(sig.Release(self.epoch))
                self._go_on()
            case State.RELOADING, sig.Loaded():
                self._renew = self.tainted = False
                self._enter(State.IDLE)
            case State.RELOADING, sig.NeedsAuth(_, detail):
                self._block(Failed(Failure.NEEDS_AUTH, detail))
                self._unauthenticated = True
            case State.RELOADING, sig.LoadRefused(_, permanent, detail):
                self._count_failure(permanent, detail)
                self._kill(self.epoch)
            case ((State.STARTING | State.RELOADING), sig.AgentExited(_, detail)):
                self._count_failure(False, detail)
                self._kill(self.epoch)
            case State.RUNNING, sig.AgentExited(_, detail):
                self._ending = Failed(Failure.AGENT_DIED, detail)
                self._restart()
            case State.DRAINING, sig.AgentExited():
                self._restart()
            case State.IDLE, sig.AgentExited():
                self._kill(self.epoch, revive=False)
            case State.BLOCKED, sig.AgentExited() if self._unauthenticated:
                self._unauthenticated = False
                self._kill(self.epoch, revive=False)

    def _on_answer(self, event: sig.AgentAnswered) -> None:
        prompt = self._queue.running
        if not prompt or self._noted or event.turn != self.turn:
            return
        if self.state is State.RUNNING:
            self._finish(Replied(event.answer))
            self._rest()
            return
        self._noted = True
        self._out.append(sig.NoteOutcome(prompt.key, event.answer))
        if self.state is not State.DRAINING:
            return
        if (self._distrust or self._renew) and not self._closing:
            self._restart()
            return
        self._drop_spare()
        self._out.append(sig.CloseCards())
        self._finish(self._ending)
        self._rest()

    def _rest(self) -> None:
        """A turn has ended well."""
        if self._closing:
            self._close_agent()
        elif self._renew:
            self._restart()
        else:
            self._enter(State.IDLE)

    def _on_spare(self, event: sig.AgentEvent) -> None:
        match event:
            case sig.Started():
                self._spare_ready = True
            case sig.StartFailed() | sig.TreeDead():
                self._out.append(sig.Release(event.epoch))
                self._spare = None
            case sig.AgentExited():
                self._drop_spare()

    # --- restart -------------------------------------------------------------------------------

    def _replace(self) -> None:
        """The process may not get another prompt."""
        if self.state in (State.RUNNING, State.DRAINING):
            self._renew = True
        elif self.state in (State.IDLE, State.RELOADING):
            self._restart()

    def _restart(self) -> None:
        self._tries, self._trouble = 0, None
        self._kill(self.epoch)

    def _kill(self, *epochs: int, revive: bool = True) -> None:
        self._revive = revive
        self._dying.update(epochs)
        self._enter(State.KILLING)
        self._out += [sig.Kill(epoch) for epoch in epochs]

    def _on_dead(self, event: sig.TreeDead | sig.StartFailed) -> None:
        """Something that was told to die is dead."""
        self._dying.remove(event.epoch)
        self._out.append(sig.Release(event.epoch))
        if event.epoch == self.epoch and isinstance(event, sig.StartFailed) and event.permanent:
            self._count_failure(True, event.detail)
        if self.state is State.KILLING and not self._dying:
            self._bury()
            self._go_on()

    def _bury(self) -> None:
        """The tree is dead, or won't die in time: what the turn left open is closed."""
        self._out.append(sig.CloseCards())
        self._finish(self._ending)

    def _count_failure(self, permanent: bool, detail: object) -> None:
        self._tries = MAX_TRIES if permanent else self._tries + 1
        self._trouble = detail

    def _go_on(self) -> None:
        """No process has the session: end, give up, start one, or wait for a prompt."""
        if self._closing:
            self._end()
        elif self._tries >= MAX_TRIES:
            self._block(Failed(Failure.NO_AGENT, self._trouble))
        elif self._revive:
            self._start()
        else:
            self._enter(State.COLD)

    def _begin(self) -> None:
        """From COLD or BLOCKED, the first try."""
        self._tries, self._trouble, self._revive = 0, None, True
        if self._unauthenticated:
            self._unauthenticated = False
            self._open()
        elif self._dying:
            self._kill(*sorted(self._dying))
        else:
            self._start()

    def _start(self) -> None:
        if self._spare is None:
            self.epoch = self._new_epoch()
            self._enter(State.STARTING)
            self._out.append(sig.Start(self.epoch))
            return
        self.epoch, self._spare = self._spare, None
        if self._spare_ready:
            self._open()
        else:
            self._enter(State.STARTING)

    def _open(self) -> None:
        self._enter(State.RELOADING)
        self._out.append(sig.Open(self.epoch))

    def _block(self, failure: Failed) -> None:
        """All that wait are answered; the next prompt tries again."""
        self._drop_spare()
        self._enter(State.BLOCKED)
        self._out += self._queue.drop(failure)

    def _new_epoch(self) -> int:
        self._newest += 1
        return self._newest

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._dying.add(self._spare)
            self._out.append(sig.Kill(self._spare))
            self._spare = None

    # --- the end -------------------------------------------------------------------------------

    def _on_end(self, event: sig.Close | sig.ClientGone) -> None:
        if self.state is State.CLOSED or isinstance(self._closing, sig.ClientGone):
            return
        self._closing = event
        self._drop_spare()
        if isinstance(event, sig.Close):
            self._ending = Cancelled()
            self._out += self._queue.drop(Cancelled())
        else:
            self._abandon()
        match self.state:
            case State.RUNNING if self._queue.running:
                self._drain()
            case State.DRAINING if self._queue.running:
                pass
            case State.RUNNING | State.DRAINING | State.IDLE:
                self._close_agent()
            case State.STARTING | State.RELOADING:
                self._kill(self.epoch)
            case State.BLOCKED if self._unauthenticated:
                self._kill(self.epoch)
            case State.BLOCKED if self._dying:
                self._kill(*sorted(self._dying))
            case State.COLD | State.BLOCKED:
                self._end()

    def _abandon(self) -> None:
        """The bridge ends: a turn that nobody cancelled is interrupted. (HAZARDS Q6)"""
        self._out += self._queue.hold()
        if self.state is State.RUNNING:
            self._out += [sig.CloseCards(), *self._queue.interrupt()]
        elif self._queue.running:
            self._out.append(sig.CloseCards())
            self._finish(self._ending)

    def _close_agent(self) -> None:
        self._dying.add(self.epoch)
        self._enter(State.KILLING)
        self._out.append(sig.CloseAgent(self.epoch))

    def _end(self) -> None:
        self._enter(State.CLOSED)
        self._out.append(sig.Closed())

    # --- deadlines -----------------------------------------------------------------------------

    def _enter(self, state: State) -> None:
        wanted = DEADLINES.get(state, ())
        for timer in tuple(self._timers):
            if timer not in wanted and timer not in KEPT.get(state, ()):
                del self._timers[timer]
                self._out.append(sig.Disarm(timer))
        for timer in wanted:
            if timer not in self._timers:
                self._token += 1
                self._timers[timer] = self._token
                self._out.append(sig.Arm(timer, self._token))
        self.state = state

    def _on_deadline(self, timer: Timer) -> None:
        match timer:
            case Timer.SPARE:
                if not self._closing:
                    self._spare, self._spare_ready = self._new_epoch(), False
                    self._out.append(sig.Start(self._spare))
            case Timer.DRAIN:
                self._restart()
            case Timer.RESTART:
                self._tries = MAX_TRIES
                self._out += self._queue.drop(Failed(Failure.NO_AGENT, self._trouble))
                if self.state is not State.KILLING:
                    self._kill(self.epoch)
            case Timer.KILL:
                if self._closing:
                    self._out += [sig.Release(epoch) for epoch in sorted(self._dying)]
                    self._dying.clear()
                self._bury()
                self._tries = MAX_TRIES
                self._go_on()
