"""The turn machine of one session. SANS-IO: `step(event)` gives effects.

Everything that decides what happens to a prompt lives here, in `prompt_queue.py` (who is answered)
and `epochs.py` (which processes live), and nothing here knows a clock, a process or JSON.
The rules that must always hold:

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
from itertools import count

from acp_bridge import signals as sig
from acp_bridge.epochs import Epochs
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
    #: what was told to die is not yet dead.
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
        self, *, epoch: int = 0, clear_on_cancel: bool = False, always_reload: bool = False
    ) -> None:
        """`epoch` > 0: a process that has the session open already (`session/new`)."""
        self.state = State.IDLE if epoch else State.COLD
        #: the number of the running turn, or of the last one.
        self.turn = 0
        #: the last turn was cancelled and nothing was sent since: what still comes is unclean.
        self.tainted = False
        self._queue = PromptQueue()
        self._epochs = Epochs(epoch)
        self._clear = clear_on_cancel
        #: no process is used again after a cancel: the setting, or the agent was seen to leak.
        self._distrust = always_reload
        #: what the running prompt is answered when its process is dead.
        self._ending: Outcome = Cancelled()
        #: the process may not get another prompt; cleared by a new one only. (HAZARDS C12)
        self._renew = False
        #: KILLING ends in a start, whether or not somebody waits.
        self._revive = False
        #: starts that failed in a row, and why the last one did.
        self._tries = 0
        self._trouble: object = None
        #: BLOCKED, with a process that waits for authentication.
        self._unauthenticated = False
        self._closing = False
        self._timers: dict[Timer, int] = {}
        self._tokens = count(1)
        self._out: list[sig.Effect] = []

    @property
    def epoch(self) -> int:
        """The process that has the session, or gets it."""
        return self._epochs.current

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
            case sig.TreeDead(epoch) | sig.StartFailed(epoch) if epoch in self._epochs.dying:
                self._on_dead(event)
            case _ if event.epoch == self._epochs.spare:
                self._emit(*self._epochs.on_spare(event))
            case _ if event.epoch == self.epoch:
                self._on_agent(event)
        self._proceed()
        return self._out

    # --- what the agent does, by state ---------------------------------------------------------

    def _on_agent(self, event: sig.AgentEvent) -> None:
        match self.state, event:
            case State.STARTING, sig.Started():
                self._open()
            case State.STARTING, sig.StartFailed(epoch, permanent, detail):
                self._count_failure(detail, permanent)
                self._emit(*self._epochs.bury(epoch))
                self._go_on()
            case State.RELOADING, sig.Loaded():
                self._renew = self.tainted = False
                self._enter(State.IDLE)
            case State.RELOADING, sig.NeedsAuth(_, detail):
                self._block(Failed(Failure.NEEDS_AUTH, detail))
                self._unauthenticated = True
            case State.RELOADING, sig.LoadRefused(_, permanent, detail):
                self._count_failure(detail, permanent)
                self._kill()
            case State.STARTING | State.RELOADING, sig.AgentExited(_, detail):
                self._count_failure(detail)
                self._kill()
            case State.IDLE | State.RUNNING | State.DRAINING, sig.Unclean():
                self._distrust = True
                self._replace()
            case State.IDLE, sig.AgentExited():
                self._kill(revive=False)
            case State.RUNNING, sig.AgentAnswered(_, self.turn, answer):
                self._finish(Replied(answer))
                self._rest()
            case State.RUNNING, sig.AgentExited(_, detail):
                self._ending = Failed(Failure.AGENT_DIED, detail)
                self._restart()
            case State.DRAINING, sig.AgentAnswered(_, self.turn, answer):
                self._drained(answer)
            case State.DRAINING, sig.AgentExited():
                self._restart()
            case State.KILLING, sig.AgentAnswered(_, self.turn, answer):
                self._note(answer)
            case State.BLOCKED, sig.AgentExited() if self._unauthenticated:
                self._unauthenticated = False
                self._kill(revive=False)

    def _on_dead(self, event: sig.TreeDead | sig.StartFailed) -> None:
        """Something that was told to die is dead."""
        self._emit(*self._epochs.bury(event.epoch))
        if event.epoch == self.epoch and isinstance(event, sig.StartFailed) and event.permanent:
            self._count_failure(event.detail, permanent=True)
        if self.state is State.KILLING and not self._epochs.dying:
            self._finish_badly()
            self._go_on()

    def _on_deadline(self, timer: Timer) -> None:
        match timer:
            case Timer.SPARE:
                if not self._closing:
                    self._emit(*self._epochs.start_spare())
            case Timer.DRAIN:
                self._restart()
            case Timer.RESTART:
                self._tries = MAX_TRIES
                self._emit(*self._queue.drop(Failed(Failure.NO_AGENT, self._trouble)))
                if self.state is not State.KILLING:
                    self._kill()
            case Timer.KILL:
                if self._closing:
                    self._emit(*self._epochs.bury(*sorted(self._epochs.dying)))
                self._tries = MAX_TRIES
                self._finish_badly()
                self._go_on()

    # --- prompts -------------------------------------------------------------------------------

    def _on_prompt(self, event: sig.PromptEvent) -> None:
        match event:
            case sig.PromptReceived(key) | sig.RunHeld(key) if self._closing:
                self._emit(sig.Answer(key, Failed(Failure.CLOSED)))
            case sig.PromptReceived(key, interrupt):
                self._queue.receive(key, interrupt)
                self._emit(sig.Commit(key))
            case sig.RunHeld(carrier, keys):
                self._emit(*self._queue.receive_held(carrier, keys))
            case sig.Committed(key):
                prompt = self._queue.find(key)
                if prompt and not prompt.committed:
                    prompt.committed = True
                    if prompt.victim is not None:
                        self._supersede(prompt.victim)
            case sig.CommitFailed(key, detail):
                failure = Failed(Failure.JOURNAL, detail)
                self._emit(*self._queue.drop(failure, lambda p: p.key == key and not p.committed))

    def _supersede(self, victim: int) -> None:
        if self.state is State.RUNNING and self.running == victim:
            self._drain()
        self._emit(*self._queue.drop(Cancelled(), lambda prompt: prompt.key == victim))

    def _proceed(self) -> None:
        """Whatever happened: the next prompt runs if it can, or what it waits for starts."""
        waiting = self._queue.waiting
        if self._closing or not waiting or not waiting[0].committed:
            return
        if self.state is State.IDLE:
            self.turn += 1
            self.tainted = False
            self._enter(State.RUNNING)
            prompt = self._queue.take_next()
            self._emit(sig.SendPrompt(self.epoch, self.turn, prompt.key))
        elif self.state in (State.COLD, State.BLOCKED):
            self._begin()

    # --- the end of a turn ---------------------------------------------------------------------

    def _on_cancel(self, event: sig.Cancel | sig.CancelPrompt) -> None:
        if self._closing or not self._queue.unanswered:
            return
        oldest, running = self._queue.unanswered[0], self._queue.running
        if isinstance(event, sig.CancelPrompt):
            key = event.key
            if not running or key not in (running.key, running.request):
                self._emit(*self._queue.drop(Cancelled(), lambda p: key in (p.key, p.request)))
                return
        if self.state is State.RUNNING:
            self._drain()
        self._ending = Cancelled()
        self._emit(
            *self._queue.drop(
                Cancelled(), lambda p: self._clear or p.interrupt or p.request == oldest.request
            )
        )

    def _drain(self) -> None:
        self._ending = Cancelled()
        self._enter(State.DRAINING)
        self._emit(sig.SendCancel(self.epoch, self.turn))

    def _drained(self, answer: object) -> None:
        """The agent answered its cancelled prompt in time."""
        self._note(answer)
        if (self._distrust or self._renew) and not self._closing:
            self._restart()
            return
        self._emit(*self._epochs.drop_spare())
        self._finish_badly()
        self._rest()

    def _note(self, answer: object) -> None:
        """What the agent said of the cancelled prompt is for the journal. (HAZARDS C13)"""
        prompt = self._queue.running
        if prompt and not prompt.noted and isinstance(self._ending, Cancelled):
            prompt.noted = True
            self._emit(sig.NoteOutcome(prompt.key, answer))

    def _rest(self) -> None:
        """The turn is over and its process lives."""
        if self._closing:
            self._close_agent()
        elif self._renew:
            self._restart()
        else:
            self._enter(State.IDLE)

    def _finish_badly(self) -> None:
        """Nothing more comes of the turn, if there is one, nor of an open tool card."""
        self._emit(sig.CloseCards())
        self._finish(self._ending)

    def _finish(self, outcome: Outcome) -> None:
        if self._queue.running:
            self.tainted = isinstance(outcome, Cancelled)
            self._emit(*self._queue.finish(outcome))

    # --- restart -------------------------------------------------------------------------------

    def _replace(self) -> None:
        """The process may not get another prompt."""
        if self.state in (State.RUNNING, State.DRAINING):
            self._renew = True
        elif self.state in (State.IDLE, State.RELOADING):
            self._restart()

    def _restart(self) -> None:
        self._tries, self._trouble = 0, None
        self._kill()

    def _kill(self, *epochs: int, revive: bool = True) -> None:
        """Kill these, or the process that has the session."""
        self._revive = revive
        self._enter(State.KILLING)
        self._emit(*self._epochs.kill(*epochs or (self.epoch,)))

    def _count_failure(self, detail: object, permanent: bool = False) -> None:
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
        elif self._epochs.dying:
            self._kill(*sorted(self._epochs.dying))
        else:
            self._start()

    def _start(self) -> None:
        ready = self._epochs.spare is not None and self._epochs.spare_ready
        start = self._epochs.start()
        if ready:
            self._open()
        else:
            self._enter(State.STARTING)
            self._emit(*start)

    def _open(self) -> None:
        self._enter(State.RELOADING)
        self._emit(sig.Open(self.epoch))

    def _block(self, failure: Failed) -> None:
        """All that wait are answered; the next prompt tries again."""
        self._emit(*self._epochs.drop_spare())
        self._enter(State.BLOCKED)
        self._emit(*self._queue.drop(failure))

    # --- the end -------------------------------------------------------------------------------

    def _on_end(self, event: sig.Close | sig.ClientGone) -> None:
        self._closing = True
        self._emit(*self._epochs.drop_spare())
        if isinstance(event, sig.Close):
            self._ending = Cancelled()
            self._emit(*self._queue.drop(Cancelled()))
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
                self._kill()
            case State.BLOCKED if self._unauthenticated:
                self._kill()
            case State.BLOCKED if self._epochs.dying:
                self._kill(*sorted(self._epochs.dying))
            case State.COLD | State.BLOCKED:
                self._end()

    def _abandon(self) -> None:
        """The bridge ends: a turn that nobody cancelled is interrupted. (HAZARDS Q6)"""
        self._emit(*self._queue.hold())
        if self.state is State.RUNNING:
            self._emit(sig.CloseCards(), *self._queue.interrupt())
        elif self._queue.running:
            self._finish_badly()

    def _close_agent(self) -> None:
        self._enter(State.KILLING)
        self._emit(*self._epochs.close())

    def _end(self) -> None:
        self._enter(State.CLOSED)
        self._emit(sig.Closed())

    # --- effects and deadlines -----------------------------------------------------------------

    def _emit(self, *effects: sig.Effect) -> None:
        self._out += effects

    def _enter(self, state: State) -> None:
        wanted = DEADLINES.get(state, ())
        for timer in tuple(self._timers):
            if timer not in wanted and timer not in KEPT.get(state, ()):
                del self._timers[timer]
                self._emit(sig.Disarm(timer))
        for timer in wanted:
            if timer not in self._timers:
                self._timers[timer] = next(self._tokens)
                self._emit(sig.Arm(timer, self._timers[timer]))
        self.state = state
