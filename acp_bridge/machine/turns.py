"""The turn machine of one session: `step(event)` gives effects. SANS-IO.

Everything that decides what happens to a prompt lives here and in the three files that it uses,
and nothing here knows a clock, a process or JSON. The rules that must always hold:

- One turn runs at a time; prompts run in the order of reading, only after they are committed.
- Every prompt gets exactly one `AnswerPrompt` (or, when the bridge ends, one `Hold` or
  `Interrupted`), and is sent at most once: its key names its turn.
- What comes from an old epoch, an old turn or a disarmed timer is `Dropped`.
- The end of a bad turn has one order: tree dead, terminals released, cards closed, prompt
  answered, session reloaded, next prompt.
- A session is opened in a process only when no other process that had it lives.
- A state that is on its way somewhere has a deadline, armed before anything else is done.
- Nothing starts while the user has paused or held the session; a Stop ends a turn that is paused
  as any other, whatever came before or comes after it.
- Hooks run before a prompt is sent and after its turn, whatever the process does meanwhile; nothing
  is sent while they run, and `cancelled` is answered only when they have ended (invariant C10).
- A session sleeps only when nothing is asked of it; whatever is asked while its process ends waits
  for the next one (invariant R16).

      COLD -> STARTING -> RELOADING -> IDLE <-> RUNNING -> DRAINING -> IDLE
                ^           |            |         |           |
                +-- KILLING <------------+---------+-----------+
                                                  BLOCKED, UNAUTHENTICATED, CLOSED
"""

from __future__ import annotations

from itertools import count
from typing import assert_never

from acp_bridge.machine import effects, events
from acp_bridge.machine.epochs import Epochs
from acp_bridge.machine.gate import Gate
from acp_bridge.machine.outcomes import Cancelled, Failed, Failure, Outcome, Refused, Replied
from acp_bridge.machine.prompt_queue import Hooks, PromptQueue
from acp_bridge.machine.states import (
    DEADLINES,
    KEPT,
    Moment,
    Permits,
    Phase,
    Standstill,
    State,
    Timer,
    permits,
)

#: a restart is given up after so many starts that failed.
MAX_TRIES = 3
#: hooks send the agent back to work so often in a row for one prompt of the user's.
MAX_AGAIN = 5


class Turns:
    """One session's machine: `step` feeds it, the properties say where it stands."""

    def __init__(
        self,
        *,
        epoch: int = 0,
        clear_on_cancel: bool = False,
        always_reload: bool = False,
        provisional: bool = False,
        hooks: frozenset[Moment] = frozenset(),
    ) -> None:
        """`epoch` > 0 names a process that has the session open already (`session/new`).

        `provisional`: that process may not get a prompt; the shell feeds `Renew` in time.
        `hooks`: the moments for which the session has hooks.
        """
        self.state = State.IDLE if epoch else State.COLD
        #: the last turn was cancelled and nothing was sent since: what still comes is unclean.
        self.tainted = False
        #: the process was given the session and no prompt since: it may replay what is known.
        self.replaying = False
        self._queue = PromptQueue()
        self._epochs = Epochs(epoch)
        self._gate = Gate()
        self._hooks = hooks
        #: the hooks that run of which the machine was only told.
        self._asides: set[int] = set()
        self._clear = clear_on_cancel
        #: no process is used again after a cancel: the setting, or the agent was seen to leak.
        self._distrust = always_reload
        #: what the running prompt is answered when its process is dead.
        self._ending: Outcome = Cancelled()
        #: the process may not get another prompt; only a new process clears it. (invariant C12)
        self._renew = provisional
        #: KILLING ends in a start, even if no prompt waits.
        self._revive = False
        #: starts that failed in a row, and why the last one did.
        self._tries = 0
        self._trouble: object = None
        self._closing = False
        #: the process ends, or has ended, because the session was at rest for long.
        self._sleeps = False
        self._timers: dict[Timer, int] = {}
        self._tokens = count(1)
        self._out: list[effects.Effect] = []

    @property
    def epoch(self) -> int:
        """The process that has the session, or gets it."""
        return self._epochs.current

    @property
    def running(self) -> int | None:
        """The key of the prompt that the agent has, or None."""
        return self._queue.running.key if self._queue.running else None

    @property
    def ending(self) -> bool:
        """The session is being closed, or ends with the bridge."""
        return self._closing

    @property
    def at_rest(self) -> bool:
        """The process has the session, and neither a prompt nor a hook is about."""
        busy = self._queue.unanswered or self._asides or self._closing
        return self.state is State.IDLE and not busy

    @property
    def provisional(self) -> bool:
        """The process has the session, and is to be replaced before it gets a prompt."""
        return self.state is State.IDLE and self._renew

    @property
    def asleep(self) -> bool:
        """There is no process, or it ends, because the session was at rest for long."""
        gone = self.state in (State.COLD, State.KILLING) and not self._closing
        return self._sleeps and gone

    @property
    def waiting(self) -> tuple[int, ...]:
        """The keys in the queue, the next one first."""
        return tuple(prompt.key for prompt in self._queue.waiting)

    @property
    def standstill(self) -> Standstill:
        """What the user's pause or hold has come to."""
        gate = self._gate
        if not gate.closed:
            return Standstill.OPEN
        if gate.asked is not None:
            return Standstill.PAUSING
        refused = self.state is State.RUNNING and not gate.turn_waits
        return Standstill.PAUSED if gate.paused and not refused else Standstill.HELD

    @property
    def permits(self) -> Permits:
        """What the state permits."""
        return permits(self.state, provisional=self.provisional)

    @property
    def stopped(self) -> bool:
        """The agent may change nothing through the client: its turn is, or was, cancelled."""
        return self.permits.stopped or self.phase(self.epoch) is Phase.TAINTED

    def phase(self, epoch: int) -> Phase:
        """Return how what the process of this epoch says now is to be taken."""
        if epoch != self.epoch:
            return Phase.NOTHING
        if self.state is State.IDLE and self.replaying:
            return Phase.REPLAY
        if self.state is State.IDLE and self.tainted:
            return Phase.TAINTED
        return self.permits.updates

    def step(self, event: events.Event) -> list[effects.Effect]:
        """Take one event and return what is to be done, in order.

        An event that nothing takes gives `Dropped` and nothing else. Raises ValueError, and
        nothing has happened, if a prompt is received twice.
        """
        self._out = []
        match event:
            case (
                events.PromptReceived()
                | events.Committed()
                | events.CommitFailed()
                | events.NotBegun()
                | events.RunHeld()
            ):
                self._on_prompt(event)
            case events.HooksDone() | events.HookBegan() | events.HookEnded():
                self._on_hooks(event)
            case events.Cancel() | events.CancelPrompt():
                self._on_cancel(event)
            case events.Pause() | events.HoldQueue() | events.Go():
                self._on_gate(event)
            case events.Close() | events.Shutdown():
                self._on_end(event)
            case events.Deadline(timer, token) if self._timers.get(timer) == token:
                del self._timers[timer]
                self._on_deadline(timer)
            case events.Warm() if self.state is State.COLD:
                self._begin()
            case events.Warm() if self.state is State.KILLING and self._sleeps:
                self._revive, self._sleeps = True, False
            case events.Sleep(self.epoch) if self.at_rest:
                self._tries, self._trouble, self._sleeps = 0, None, True
                self._kill(revive=False)
            case events.Deadline() | events.Warm() | events.Sleep():
                self._drop(event)
            case events.Renew():
                self._replace(event)
            case _:
                self._on_process(event)
        self._proceed()
        self._keep_sign()
        return self._out

    # --- what the processes do -----------------------------------------------------------------

    def _on_process(self, event: events.AgentEvent) -> None:
        match event:
            case events.TreeDead(epoch) | events.StartFailed(epoch) if epoch in self._epochs.dying:
                self._on_dead(event)
            case events.AgentExited(epoch) if epoch in self._epochs.dying:
                pass  # as expected; the death of its tree is what counts
            case _ if event.epoch == self._epochs.spare:
                self._emit(*self._epochs.on_spare(event))
            case _ if event.epoch == self.epoch:
                self._on_agent(event)
            case _:
                self._drop(event)

    def _on_agent(self, event: events.AgentEvent) -> None:
        """Take an event of the current process, by state."""
        match self.state, event:
            case State.STARTING, events.Started():
                self._open()
            case State.STARTING, events.StartFailed(epoch, permanent, detail):
                self._count_failure(detail, permanent)
                self._emit(*self._epochs.bury(epoch))
                self._go_on()
            case State.RELOADING, events.Loaded(_, provisional):
                self._renew, self.tainted = provisional, False
                self._enter(State.IDLE)
            case State.RELOADING, events.NeedsAuth(_, detail):
                self._give_up(State.UNAUTHENTICATED, Failed(Failure.NEEDS_AUTH, detail))
            case State.RELOADING, events.LoadRefused(_, permanent, detail):
                self._count_failure(detail, permanent)
                self._kill()
            case State.STARTING | State.RELOADING, events.AgentExited(_, detail):
                self._count_failure(detail)
                self._kill()
            case State.IDLE | State.RUNNING | State.DRAINING, events.Unclean():
                self._distrust = True
                self._replace(event)
            case State.IDLE | State.UNAUTHENTICATED, events.AgentExited(_, detail):
                self._tell_death(detail)
                self._kill(revive=False)
            case State.RUNNING, events.AgentAnswered(_, self.running, answer):
                self._answered(answer)
            case State.RUNNING, events.PauseAnswered(_, self._gate.asked, paused):
                self._gate.answered(paused)
            case State.RUNNING, events.AgentExited(_, detail):
                self._died(detail)
            case State.DRAINING, events.AgentAnswered(_, self.running):
                self._drained(event)
            case State.DRAINING, events.AgentExited():
                self._restart()
            case State.KILLING, events.AgentAnswered(_, self.running):
                self._note(event)
            case _:
                self._drop(event)

    def _on_dead(self, event: events.TreeDead | events.StartFailed) -> None:
        """Take the news that a process which was told to die is dead."""
        self._emit(*self._epochs.bury(event.epoch))
        if event.epoch == self.epoch and isinstance(event, events.StartFailed) and event.permanent:
            self._count_failure(event.detail, permanent=True)
        if self.state is State.KILLING and not self._epochs.dying and not self._hooks_hold_up():
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
                self._asides.clear()
                if self._closing:
                    self._emit(*self._epochs.bury(*sorted(self._epochs.dying)))
                    self._emit(*self._queue.end_hooks())
                self._tries = MAX_TRIES
                self._finish_badly()
                self._go_on()
            case Timer.SIGN:
                self._emit(effects.StillWaits())
            case _:
                assert_never(timer)

    # --- prompts -------------------------------------------------------------------------------

    def _on_prompt(self, event: events.PromptEvent) -> None:
        match event:
            case events.PromptReceived(key) | events.RunHeld(key) if self._closing:
                self._emit(effects.AnswerPrompt(key, Failed(Failure.CLOSED)))
            case events.PromptReceived(key, interrupt):
                self._queue.receive(key, interrupt, self._hooks_due())
                self._emit(effects.Commit(key))
            case events.RunHeld(carrier, keys):
                self._emit(*self._queue.receive_held(carrier, keys, self._hooks_due()))
            case events.Committed(key):
                prompt = self._queue.find(key)
                if not prompt or prompt.committed:
                    self._drop(event)
                    return
                prompt.committed = True
                if prompt.victim is not None:
                    self._supersede(prompt.key, prompt.victim)
            case events.CommitFailed(key, detail):
                failure = Failed(Failure.JOURNAL, detail)
                out = self._queue.drop(failure, lambda p: p.key == key and not p.committed)
                self._emit(*out or [effects.Dropped(event)])
            case events.NotBegun(self.running) if self.state is State.RUNNING:
                self._finish(Failed(Failure.NOT_BEGUN))
                self._rest()
            case events.NotBegun(self.running) if self.state is State.DRAINING:
                self._end_drain()
            case events.NotBegun():
                self._drop(event)
            case _:
                assert_never(event)

    def _supersede(self, key: int, victim: int) -> None:
        running = self._queue.running
        self._gate.end_older_pause(key)
        if self.state is State.RUNNING and running and running.root == victim:
            self._drain()
        self._emit(*self._queue.drop(Cancelled(), lambda prompt: prompt.root == victim))

    def _proceed(self) -> None:
        """After every event: send the next committed prompt, or start a process for it."""
        waiting = self._queue.waiting
        if not self._queue.unanswered:
            self._gate.end_pause()
        if self._closing or self._gate.closed or self._queue.leaving:
            return
        if not waiting or not waiting[0].committed:
            return
        first, hooked = waiting[0], self._queue.hooked
        if first.hooks is Hooks.DUE and not hooked and not self._queue.running:
            self._emit(*self._queue.begin_hooks(first))
        if self.state is State.IDLE and (hooked or first.hooks is not Hooks.PASSED):
            return
        if self.state is State.IDLE and not self.provisional:
            self.tainted = self.replaying = False
            self._enter(State.RUNNING)
            prompt = self._queue.take_next()
            self._emit(effects.SendPrompt(self.epoch, prompt.key))
        elif self.state in (State.COLD, State.BLOCKED, State.UNAUTHENTICATED) and not first.ending:
            self._begin()

    def _on_gate(self, event: events.GateEvent) -> None:
        """Take the user's word that nothing more is to start, or that all goes on."""
        gate, unanswered = self._gate, self._queue.unanswered
        match event:
            case events.Pause() if unanswered and not self._closing:
                gate.pause(max(prompt.key for prompt in unanswered))
                if self.state is State.RUNNING and not gate.at_agent:
                    self._emit(*gate.pause_turn(self.epoch, next(self._tokens)))
            case events.HoldQueue() if not self._closing:
                self._emit(*gate.hold(self.epoch))
            case events.Go() if gate.closed:
                self._emit(*gate.open(self.epoch))
            case _:
                self._drop(event)

    def _keep_sign(self) -> None:
        """Let signs of life come while a prompt waits for the user's go, and no longer."""
        stands = self._queue.unanswered and (not self._queue.running or self._gate.at_agent)
        if self._gate.closed and stands:
            self._arm(Timer.SIGN)
        else:
            self._disarm(Timer.SIGN)

    # --- hooks ---------------------------------------------------------------------------------

    def _on_hooks(self, event: events.HookEvent) -> None:
        match event:
            case events.HooksDone(key):
                prompt = self._queue.hooked
                if prompt is None or prompt.key != key:
                    self._drop(event)
                    return
                self._on_hooks_done(event)
            case events.HookBegan() if self.state is State.CLOSED:
                self._drop(event)
                return
            case events.HookBegan(run):
                self._asides.add(run)
                if self._closing or isinstance(self._ending_now, Cancelled):
                    self._emit(effects.StopHooks())
            case events.HookEnded(run):
                if run not in self._asides:
                    self._drop(event)
                    return
                self._asides.remove(run)
            case _:
                assert_never(event)
        self._after_hooks()

    def _on_hooks_done(self, event: events.HooksDone) -> None:
        """Go on with the prompt whose hooks have ended."""
        prompt, feedback = self._queue.hooked, event.feedback
        assert prompt is not None
        if prompt is self._queue.leaving:
            enough = prompt.again >= MAX_AGAIN
            if feedback is not None and not prompt.ending and not enough:
                self._emit(*self._queue.follow(feedback))
                return
            if feedback is not None:
                self._emit(effects.RefuseFeedback(feedback, enough and not prompt.ending))
            self.tainted = isinstance(prompt.ending, Cancelled)
        elif event.refusal is not None and not prompt.ending:
            prompt.ending = Refused(event.refusal)
        self._emit(*self._queue.end_hooks())

    def _stop_asides(self) -> None:
        if self._asides:
            self._emit(effects.StopHooks())

    def _hooks_due(self) -> Hooks:
        return Hooks.DUE if Moment.PROMPT in self._hooks else Hooks.PASSED

    def _tell_death(self, detail: object) -> None:
        hooked = self._queue.hooked
        if Moment.DEATH in self._hooks and not (hooked and hooked.ending):
            self._emit(effects.TellDeath(detail))

    @property
    def _ending_now(self) -> Outcome | None:
        """How the running turn ends, if it does."""
        over = self.state in (State.DRAINING, State.KILLING) and self._queue.running
        return self._ending if over else None

    def _hooks_hold_up(self) -> bool:
        """A cancelled turn may not end yet, because a hook of it runs. (invariant C10)"""
        return bool(self._asides) and isinstance(self._ending_now, Cancelled)

    def _after_hooks(self) -> None:
        """Go on with what waited for the end of hooks."""
        running = self._queue.running
        if self._hooks_hold_up():
            return
        if self.state is State.KILLING and not self._epochs.dying:
            self._finish_badly()
            self._go_on()
        elif self.state is State.DRAINING and running and running.noted:
            self._end_drain()

    # --- the end of a turn ---------------------------------------------------------------------

    def _on_cancel(self, event: events.Cancel | events.CancelPrompt) -> None:
        if self._closing or not self._queue.unanswered:
            self._drop(event)
            return
        oldest, running = self._queue.unanswered[0], self._queue.running
        if isinstance(event, events.CancelPrompt):
            key = event.key
            if not running or key not in (running.key, running.request):
                out = self._queue.drop(Cancelled(), lambda p: key in (p.key, p.request))
                self._emit(*out or [effects.Dropped(event)])
                return
        self._gate.end_pause()
        if self.state is State.RUNNING:
            self._drain()
        elif running:
            self._stop_asides()
        self._ending = Cancelled()
        self._emit(
            *self._queue.drop(
                Cancelled(), lambda p: self._clear or p.interrupt or p.request == oldest.request
            )
        )

    def _drain(self) -> None:
        self._ending = Cancelled()
        self._enter(State.DRAINING)
        if prompt := self._queue.running:
            self._emit(effects.SendCancel(self.epoch, prompt.key))
        self._stop_asides()

    def _died(self, detail: object) -> None:
        """Go on from a turn in which the agent's process ended by itself."""
        self._tell_death(detail)
        self._ending = Failed(Failure.AGENT_DIED, detail)
        self._restart()

    def _answered(self, answer: object) -> None:
        """Take the agent's answer to a prompt that nobody cancelled."""
        if Moment.TURN_END in self._hooks:
            self._emit(*self._queue.leave(answer))
        else:
            self._finish(Replied(answer))
        self._rest()

    def _drained(self, event: events.AgentAnswered) -> None:
        """Take the answer that came in time to a cancelled prompt."""
        self._note(event)
        self._end_drain()

    def _end_drain(self) -> None:
        """Go on from a cancelled turn that the agent has ended, unless a hook of it runs."""
        if (self._distrust or self._renew) and not self._closing:
            self._restart()
            return
        if self._hooks_hold_up():
            return
        self._emit(*self._epochs.drop_spare())
        self._finish_badly()
        self._rest()

    def _note(self, event: events.AgentAnswered) -> None:
        """Keep what the agent says of its cancelled prompt, for the journal. (invariant C13)"""
        prompt = self._queue.running
        if prompt and not prompt.noted and isinstance(self._ending, Cancelled):
            prompt.noted = True
            self._emit(effects.NoteOutcome(prompt.key, event.answer))
        else:
            self._drop(event)

    def _rest(self) -> None:
        """Go on after a turn whose process lives."""
        if self._closing:
            self._close_agent()
        elif self._renew:
            self._restart()
        else:
            self._enter(State.IDLE)

    def _finish_badly(self) -> None:
        """Answer the prompt of a turn of which nothing more comes; its open cards end (C22)."""
        if self._queue.running:
            self._emit(effects.CloseCards())
            self._finish(self._ending)

    def _finish(self, outcome: Outcome) -> None:
        if self._queue.running:
            self.tainted = isinstance(outcome, Cancelled)
            self._emit(*self._queue.finish(outcome))

    # --- restart -------------------------------------------------------------------------------

    def _replace(self, event: events.Renew | events.Unclean) -> None:
        """Give the process no further prompt; drop the event if none has the session."""
        match self.state:
            case State.RUNNING | State.DRAINING:
                self._renew = True
            case State.IDLE | State.RELOADING:
                self._restart()
            case _:
                self._drop(event)

    def _restart(self) -> None:
        self._tries, self._trouble = 0, None
        self._kill()

    def _kill(self, *epochs: int, revive: bool = True) -> None:
        """Kill these processes, or the one that has the session."""
        self._revive = revive
        self._enter(State.KILLING)
        self._emit(*self._epochs.kill(*epochs or (self.epoch,)))

    def _count_failure(self, detail: object, permanent: bool = False) -> None:
        self._tries = MAX_TRIES if permanent else self._tries + 1
        self._trouble = detail

    def _go_on(self) -> None:
        """End, give up, start a process, or wait for a prompt: no process has the session."""
        if self._closing:
            self._end()
        elif self._tries >= MAX_TRIES:
            self._give_up(State.BLOCKED, Failed(Failure.NO_AGENT, self._trouble))
        elif self._revive:
            self._start()
        else:
            self._enter(State.COLD)

    def _begin(self) -> None:
        """Make the first try, from a state in which nothing is on its way."""
        self._tries, self._trouble, self._revive = 0, None, True
        self._sleeps = False
        if self.state is State.UNAUTHENTICATED:
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
        self.replaying = True
        self._enter(State.RELOADING)
        self._emit(effects.Open(self.epoch))

    def _give_up(self, state: State, failure: Failed) -> None:
        """Answer all that wait; the next prompt tries again."""
        self._emit(*self._epochs.drop_spare())
        self._enter(state)
        self._emit(*self._queue.drop(failure))

    # --- the end -------------------------------------------------------------------------------

    def _on_end(self, event: events.Close | events.Shutdown) -> None:
        self._closing, self._sleeps = True, False
        self._gate = Gate()
        self._emit(*self._epochs.drop_spare())
        if self.state is not State.RUNNING or isinstance(event, events.Shutdown):
            self._stop_asides()
        if isinstance(event, events.Close):
            self._ending = Cancelled()
            self._emit(*self._queue.drop(Cancelled()))
        else:
            self._abandon()
        match self.state:
            case State.IDLE | State.RUNNING | State.DRAINING if not self._queue.running:
                self._close_agent()
            case State.RUNNING:
                self._drain()
            case State.STARTING | State.RELOADING | State.UNAUTHENTICATED:
                self._kill()
            case State.BLOCKED if self._epochs.dying:
                self._kill(*sorted(self._epochs.dying))
            case State.COLD | State.BLOCKED:
                self._end()
            case State.CLOSED:
                self._drop(event)
            case State.IDLE | State.DRAINING | State.KILLING:
                pass  # what is on its way leads to the end
            case _:
                assert_never(self.state)

    def _abandon(self) -> None:
        """Hold what waits; interrupt the turn unless it was cancelled. (invariant Q6)"""
        self._emit(*self._queue.hold())
        if self.state is State.RUNNING:
            self._emit(effects.CloseCards(), *self._queue.interrupt())
        elif self._queue.running:
            self._finish_badly()

    def _close_agent(self) -> None:
        self._enter(State.KILLING)
        self._emit(*self._epochs.close())

    def _end(self) -> None:
        if self._queue.hooked:
            self._enter(State.KILLING)
            return
        self._asides.clear()
        self._enter(State.CLOSED)
        self._emit(effects.Closed())

    # --- effects and deadlines -----------------------------------------------------------------

    def _emit(self, *asked: effects.Effect) -> None:
        self._out += asked

    def _drop(self, event: events.Event) -> None:
        self._emit(effects.Dropped(event))

    def _enter(self, state: State) -> None:
        wanted = DEADLINES.get(state, ())
        for timer in tuple(self._timers):
            if timer not in (*wanted, *KEPT.get(state, ()), Timer.SIGN):
                self._disarm(timer)
        for timer in wanted:
            self._arm(timer)
        if state is not State.RUNNING:
            self._gate.forget_turn()
        self.state = state

    def _arm(self, timer: Timer) -> None:
        if timer not in self._timers:
            self._timers[timer] = next(self._tokens)
            self._emit(effects.Arm(timer, self._timers[timer]))

    def _disarm(self, timer: Timer) -> None:
        if self._timers.pop(timer, None) is not None:
            self._emit(effects.Disarm(timer))
