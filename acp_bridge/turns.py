"""The FIFO queue and the turn machine of one session. SANS-IO: `step(event)` gives effects.

Everything that decides what happens to a prompt lives here, and nothing here knows a clock, a
process or JSON. The rules that must always hold:

- One turn at a time; prompts in the order of reading, only after they are committed.
- Every prompt gets exactly one `Answer` (or, when the bridge ends, one `Hold`/`Interrupted`).
- What comes from an old epoch, an old turn or a disarmed timer is dropped.
- The end of a bad turn has one order: tree dead, terminals released, cards closed, prompt
  answered, session reloaded, next prompt.
- A session is opened in a process only when no other process of it lives.

      COLD -> STARTING -> RELOADING -> IDLE <-> RUNNING -> DRAINING -> IDLE
                ^                        |         |           |
                +---- KILLING <----------+---------+-----------+        BLOCKED, CLOSED
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto

from acp_bridge.signals import (
    AgentAnswered,
    AgentEvent,
    AgentExited,
    Answer,
    Arm,
    Cancel,
    Cancelled,
    CancelPrompt,
    ClientGone,
    Close,
    CloseAgent,
    CloseCards,
    Closed,
    Commit,
    CommitFailed,
    Committed,
    Deadline,
    Disarm,
    Done,
    Effect,
    Event,
    Failed,
    Failure,
    Hold,
    Interrupted,
    Kill,
    Loaded,
    LoadRefused,
    NeedsAuth,
    NoteOutcome,
    Open,
    Outcome,
    PromptReceived,
    Release,
    Renew,
    Replied,
    RunHeld,
    SendCancel,
    SendPrompt,
    Start,
    Started,
    StartFailed,
    Timer,
    TreeDead,
    Unclean,
    Warm,
)

#: a restart is given up after so many starts that failed.
MAX_TRIES = 3


class State(Enum):
    """Where a session is. All but COLD, IDLE, RUNNING, BLOCKED and CLOSED have a deadline."""

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
    #: the tree is not yet dead.
    KILLING = auto()
    #: needs authentication, or the restarts failed; tried again at the next prompt.
    BLOCKED = auto()
    #: gone.
    CLOSED = auto()


@dataclass(slots=True)
class _Prompt:
    key: int
    interrupt: bool = False
    committed: bool = False
    carrier: int | None = None


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
        #: the process that has the session, or gets it; the newest number given out.
        self.epoch = self._newest = epoch
        #: the number of the running turn, or of the last one.
        self.turn = 0
        #: the last turn was cancelled and nothing was sent since: what still comes is unclean.
        self.tainted = False
        self._clear = clear_on_cancel
        self._always_reload = always_reload
        self._queue: deque[_Prompt] = deque()
        self._running: _Prompt | None = None
        self._cancelled = False
        self._ending: Outcome = Cancelled()
        self._leaky = False
        self._renew = False
        self._revive = False
        self._tries = 0
        self._trouble: object = None
        self._spare = 0
        self._spare_ready = False
        #: a process lives in BLOCKED: one that waits for authentication, or one not yet dead.
        self._auth = self._undead = False
        self._closing: Close | ClientGone | None = None
        self._timers: dict[Timer, int] = {}
        self._token = 0
        self._out: list[Effect] = []

    @property
    def running(self) -> int | None:
        """The key of the prompt that the agent has, or None."""
        return self._running.key if self._running else None

    @property
    def waiting(self) -> tuple[int, ...]:
        """The keys in the queue, the next one first."""
        return tuple(prompt.key for prompt in self._queue)

    @property
    def awaited(self) -> bool:
        """True while somebody waits for an answer."""
        return self._running is not None or bool(self._queue)

    def step(self, event: Event) -> list[Effect]:
        """Take one event, return what is to be done, in order."""
        self._out = []
        match event:
            case PromptReceived() | Committed() | CommitFailed() | RunHeld():
                self._on_queue(event)
            case Cancel():
                self._on_cancel()
            case CancelPrompt(key):
                self._on_cancel_prompt(key)
            case Close() | ClientGone():
                self._on_end(event)
            case Warm():
                if self.state is State.COLD:
                    self._begin()
            case Renew():
                self._restart_before_next()
            case Deadline(timer, token):
                if self._timers.get(timer) == token:
                    del self._timers[timer]
                    self._on_deadline(timer)
            case _:
                self._on_agent(event)
        return self._out

    # --- prompts -------------------------------------------------------------------------------

    def _on_queue(self, event: PromptReceived | Committed | CommitFailed | RunHeld) -> None:
        match event:
            case PromptReceived(key, interrupt):
                self._receive(key, interrupt)
            case Committed(key):
                if prompt := self._waiting(key):
                    prompt.committed = True
                    if prompt.interrupt and self.state is State.RUNNING:
                        self._drain()
                    self._proceed()
            case CommitFailed(key, detail):
                if prompt := self._waiting(key):
                    self._queue.remove(prompt)
                    self._answer(key, Failed(Failure.JOURNAL, detail))
                    self._proceed()
            case RunHeld(carrier, keys):
                if self._closing:
                    self._answer(carrier, Failed(Failure.CLOSED))
                    return
                self._queue.extend(_Prompt(k, committed=True, carrier=carrier) for k in keys)
                self._settle_carrier(carrier, Done())
                self._proceed()

    def _receive(self, key: int, interrupt: bool) -> None:
        if self._closing:
            self._answer(key, Failed(Failure.CLOSED))
            return
        if self._waiting(key) or self.running == key:
            raise ValueError(f"prompt {key} was received before")
        prompt = _Prompt(key, interrupt)
        if interrupt:
            self._queue.appendleft(prompt)
        else:
            self._queue.append(prompt)
        self._out.append(Commit(key))

    def _proceed(self) -> None:
        """Start what the head of the queue waits for, if it can be started now."""
        if self._closing or not self._queue or not self._queue[0].committed:
            return
        if self.state is State.IDLE:
            self._running = self._queue.popleft()
            self._cancelled = self.tainted = False
            self.turn += 1
            self.state = State.RUNNING
            self._out.append(SendPrompt(self.epoch, self.turn, self._running.key))
        elif self.state in (State.COLD, State.BLOCKED):
            self._begin()

    def _waiting(self, key: int) -> _Prompt | None:
        return next((prompt for prompt in self._queue if prompt.key == key), None)

    def _answer(self, key: int, outcome: Outcome) -> None:
        self._out.append(Answer(key, outcome))

    def _take_out(self, prompts: list[_Prompt], outcome: Outcome) -> None:
        """Answer these waiting prompts; held ones go back to being held, their carrier ends."""
        for prompt in prompts:
            self._queue.remove(prompt)
            if prompt.carrier is None:
                self._answer(prompt.key, outcome)
        if held := tuple(prompt.key for prompt in prompts if prompt.carrier is not None):
            self._out.append(Hold(held))
        for carrier in dict.fromkeys(p.carrier for p in prompts if p.carrier is not None):
            self._settle_carrier(carrier, outcome)

    def _settle_carrier(self, carrier: int, outcome: Outcome) -> None:
        """Answer a carrier when none of its prompts is left."""
        left = [*self._queue, self._running] if self._running else self._queue
        if all(prompt.carrier != carrier for prompt in left):
            self._answer(carrier, outcome)

    # --- cancel --------------------------------------------------------------------------------

    def _on_cancel(self) -> None:
        if self._closing:
            return
        if self._running:
            self._cancel_running()
        elif self._queue:
            head = self._queue[0]
            self._take_out(
                [p for p in self._queue if p is head or self._same(p, head)], Cancelled()
            )
        if self._clear:
            self._take_out(list(self._queue), Cancelled())
        else:
            self._take_out([p for p in self._queue if p.interrupt], Cancelled())

    def _on_cancel_prompt(self, key: int) -> None:
        if self._closing:
            return
        if self._running and key in (self._running.key, self._running.carrier):
            self._cancel_running()
        else:
            self._take_out([p for p in self._queue if key in (p.key, p.carrier)], Cancelled())

    @staticmethod
    def _same(prompt: _Prompt, other: _Prompt) -> bool:
        return prompt.carrier is not None and prompt.carrier == other.carrier

    def _cancel_running(self) -> None:
        running = self._running
        assert running
        if self.state is State.RUNNING:
            self._drain()
        self._ending = Cancelled()
        self._take_out([p for p in self._queue if self._same(p, running)], Cancelled())

    def _drain(self) -> None:
        self.state = State.DRAINING
        self._cancelled = True
        self._ending = Cancelled()
        self._out.append(SendCancel(self.epoch, self.turn))
        self._arm(Timer.SPARE)
        self._arm(Timer.DRAIN)

    # --- what the agent does -------------------------------------------------------------------

    def _on_agent(self, event: AgentEvent) -> None:
        if self._spare and event.epoch == self._spare:
            self._on_spare(event)
            return
        if event.epoch != self.epoch:
            return
        match event:
            case Started():
                if self.state is State.STARTING:
                    self._open()
            case Loaded():
                if self.state is State.RELOADING:
                    self._ready()
            case NeedsAuth(_, detail):
                if self.state is State.RELOADING:
                    self._block(Failed(Failure.NEEDS_AUTH, detail))
                    self._auth = True
            case StartFailed(_, permanent, detail):
                if self.state is State.STARTING:
                    self._count_try(permanent, detail)
                    self._revive_or_rest()
            case LoadRefused(_, permanent, detail):
                if self.state is State.RELOADING:
                    self._count_try(permanent, detail)
                    self._kill()
            case AgentAnswered(_, turn, answer):
                if self._running and turn == self.turn:
                    self._on_answer(self._running.key, answer)
            case AgentExited(_, detail):
                self._on_exit(detail)
            case TreeDead():
                self._on_dead()
            case Unclean():
                self._leaky = True
                self._restart_before_next()

    def _on_spare(self, event: AgentEvent) -> None:
        match event:
            case Started():
                self._spare_ready = True
            case StartFailed() | AgentExited() | TreeDead():
                self._spare = 0

    def _on_answer(self, key: int, answer: object) -> None:
        if self.state is State.RUNNING:
            self._finish(Replied(answer))
            self._after_turn()
            return
        self._out.append(NoteOutcome(key, answer))
        if self.state is not State.DRAINING:
            return
        self._disarm(Timer.DRAIN)
        self._disarm(Timer.SPARE)
        if self._leaky or self._always_reload or self._renew:
            self._restart()
            return
        self._drop_spare()
        self._finish(Cancelled())
        self._after_turn()

    def _after_turn(self) -> None:
        self.state = State.IDLE
        if self._closing:
            self._close_agent()
        elif self._renew:
            self._restart()
        else:
            self._proceed()

    def _finish(self, outcome: Outcome) -> None:
        """The running prompt gets its answer."""
        running = self._running
        assert running
        if not isinstance(outcome, Replied):
            self._out.append(CloseCards())
        self._running = None
        self.tainted = self._cancelled
        self._answer(running.key, outcome)
        if running.carrier is not None:
            self._settle_carrier(
                running.carrier, outcome if isinstance(outcome, Cancelled) else Done()
            )

    def _on_exit(self, detail: object) -> None:
        match self.state:
            case State.RUNNING:
                self._ending = Failed(Failure.AGENT_DIED, detail)
                self._restart()
            case State.DRAINING:
                self._restart()
            case State.STARTING | State.RELOADING:
                self._count_try(False, detail)
                self._kill()
            case State.IDLE:
                self._kill()
            case State.BLOCKED if self._auth:
                self._auth = False
                self._kill()
            case _:
                pass

    def _on_dead(self) -> None:
        if self.state is State.BLOCKED:
            self._undead = False
        if self.state is not State.KILLING:
            return
        self._disarm(Timer.KILL)
        self._bury()
        if self._closing:
            self._end()
        else:
            self._revive_or_rest()

    def _bury(self) -> None:
        """The tree is dead, or can't be killed: what it leaves behind is put in order."""
        self._out.append(Release(self.epoch))
        if self._running:
            self._finish(self._ending)

    # --- restart -------------------------------------------------------------------------------

    def _restart_before_next(self) -> None:
        """The process may not get another prompt."""
        if self.state in (State.RUNNING, State.DRAINING):
            self._renew = True
        elif self.state in (State.IDLE, State.RELOADING):
            self._restart()

    def _restart(self) -> None:
        self._renew = self._revive = True
        self._tries = 0
        self._kill()

    def _kill(self) -> None:
        self.state = State.KILLING
        self._disarm(Timer.DRAIN)
        self._disarm(Timer.SPARE)
        self._arm(Timer.KILL)
        self._out.append(Kill(self.epoch))

    def _count_try(self, permanent: bool, detail: object) -> None:
        self._tries = MAX_TRIES if permanent else self._tries + 1
        self._trouble = detail
        self._revive = True

    def _revive_or_rest(self) -> None:
        """No process lives: start the next, give up, or wait for a prompt."""
        if self._tries >= MAX_TRIES:
            self._block(Failed(Failure.NO_AGENT, self._trouble))
        elif self._revive:
            self._start()
        else:
            self.state = State.COLD
            self._proceed()

    def _begin(self) -> None:
        """From COLD or BLOCKED: the first try of a start."""
        self._tries = 0
        self._revive = True
        if self._undead:
            self._undead = False
            self._kill()
        elif self._auth:
            self._auth = False
            self._open()
        else:
            self._start()

    def _start(self) -> None:
        if Timer.RESTART not in self._timers:
            self._arm(Timer.RESTART)
        if self._spare:
            self.epoch, self._spare = self._spare, 0
            if self._spare_ready:
                self._open()
                return
        else:
            self.epoch = self._next_epoch()
            self._out.append(Start(self.epoch))
        self.state = State.STARTING

    def _open(self) -> None:
        if Timer.RESTART not in self._timers:
            self._arm(Timer.RESTART)
        self.state = State.RELOADING
        self._out.append(Open(self.epoch))

    def _ready(self) -> None:
        self._disarm(Timer.RESTART)
        self._tries = 0
        self._renew = self._revive = self.tainted = False
        self.state = State.IDLE
        self._proceed()

    def _block(self, failure: Failed) -> None:
        """Nobody waits for ever: all that wait are answered; the next prompt tries again."""
        self._disarm(Timer.RESTART)
        self._drop_spare()
        self._tries = 0
        self._revive = False
        self.state = State.BLOCKED
        self._take_out(list(self._queue), failure)

    def _next_epoch(self) -> int:
        self._newest += 1
        return self._newest

    def _drop_spare(self) -> None:
        if self._spare:
            self._out.append(Kill(self._spare))
            self._spare = 0

    # --- the end -------------------------------------------------------------------------------

    def _on_end(self, event: Close | ClientGone) -> None:
        if self.state is State.CLOSED or isinstance(self._closing, ClientGone):
            return
        self._closing = event
        waiting = list(self._queue)
        if isinstance(event, Close):
            self._take_out(waiting, Cancelled())
            if self.state is State.RUNNING:
                self._drain()
                return
        else:
            self._queue.clear()
            if waiting:
                self._out.append(Hold(tuple(prompt.key for prompt in waiting)))
            self._let_go()
        match self.state:
            case State.IDLE:
                self._close_agent()
            case State.STARTING | State.RELOADING:
                self._disarm(Timer.RESTART)
                self._kill()
            case State.BLOCKED if self._auth or self._undead:
                self._kill()
            case State.COLD | State.BLOCKED:
                self._end()
            case _:
                pass

    def _let_go(self) -> None:
        """The bridge ends: a turn that nobody cancelled is interrupted."""
        if not self._running:
            return
        if self.state is State.RUNNING:
            self._out += [CloseCards(), Interrupted(self._running.key)]
            self._running = None
        else:
            self._finish(self._ending)
        if self.state is not State.KILLING:
            self._disarm(Timer.DRAIN)
            self._disarm(Timer.SPARE)
            self.state = State.IDLE

    def _close_agent(self) -> None:
        self.state = State.KILLING
        self._arm(Timer.KILL)
        self._out.append(CloseAgent(self.epoch))

    def _end(self) -> None:
        self._drop_spare()
        for timer in tuple(self._timers):
            self._disarm(timer)
        self.state = State.CLOSED
        self._out.append(Closed())

    # --- deadlines -----------------------------------------------------------------------------

    def _arm(self, timer: Timer) -> None:
        self._token += 1
        self._timers[timer] = self._token
        self._out.append(Arm(timer, self._token))

    def _disarm(self, timer: Timer) -> None:
        if self._timers.pop(timer, None) is not None:
            self._out.append(Disarm(timer))

    def _on_deadline(self, timer: Timer) -> None:
        match timer:
            case Timer.SPARE:
                if not self._closing:
                    self._spare, self._spare_ready = self._next_epoch(), False
                    self._out.append(Start(self._spare))
            case Timer.DRAIN:
                self._restart()
            case Timer.RESTART:
                self._tries = MAX_TRIES
                self._take_out(list(self._queue), Failed(Failure.NO_AGENT, self._trouble))
                if self.state is not State.KILLING:
                    self._kill()
            case Timer.KILL:
                self._bury()
                if self._closing:
                    self._end()
                else:
                    self._undead = True
                    self._block(Failed(Failure.NO_AGENT, self._trouble))
