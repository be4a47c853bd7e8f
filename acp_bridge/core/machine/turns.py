"""The turn machine of one session: `step(event)` gives effects.

What happens to a prompt is decided here, from its reading to its answer: when it is sent, how its
turn ends, what a Stop, a hook, a pause and the end of the session do to it. The rules:

- One turn runs at a time; prompts run in the user's order, only after they are committed. The
  user may edit, move and drop those that wait; while such a change is written nothing is sent.
- Words that are to join the running turn are sent into it while the agent takes them. They never
  run after a Stop of that turn, nor if the agent may have taken them.
- Every prompt gets exactly one `AnswerPrompt` (or, when the bridge ends, one `LeaveOver`
  or `Interrupted`), and is sent at most once: its key names its turn.
- What comes from an old epoch, an old turn or a disarmed timer is `Dropped`.
- Nothing is sent while the user has paused or held the session, or while hooks about a prompt
  run. No process is started for a prompt then; a restart that has begun goes on. A Stop ends a
  turn that is paused as any other, whatever came before or comes after it.
- While the journal is away nothing is sent either; a prompt that could not be noted as sent is the
  next when it is back. If another bridge has the session, all of it is ended here.
- The end of a bad turn has one order: tree dead, terminals released, cards closed, prompt
  answered, session reloaded, next prompt. `cancelled` is answered only when no hook of the turn
  runs any more. (invariant C10)
"""

from __future__ import annotations

from itertools import count
from typing import assert_never

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    Cancelled,
    CloseCards,
    Commit,
    Dropped,
    Effect,
    Failed,
    Failure,
    NoteOutcome,
    Outcome,
    RefuseChange,
    Refused,
    RefuseFeedback,
    Replied,
    SendCancel,
    SendPrompt,
    StillWaits,
    StopWork,
    WriteChange,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentEvent,
    AgentExited,
    Cancel,
    CancelPrompt,
    ChangeEvent,
    ChangeLeftOver,
    ChangeWritten,
    Close,
    CommitFailed,
    Committed,
    Deadline,
    DropWaiting,
    EditWaiting,
    Event,
    GateEvent,
    Go,
    HoldQueue,
    HookBegan,
    HookEnded,
    HookEvent,
    HooksDone,
    JournalAway,
    JournalBack,
    JournalLost,
    MaySteer,
    Moment,
    MoveWaiting,
    NotBegun,
    Occupied,
    Pause,
    PauseAnswered,
    PromptEvent,
    PromptReceived,
    ReplaceProcess,
    RunLeftOver,
    Shutdown,
    Sleep,
    StartFailed,
    SteerAnswered,
    SteeringEvent,
    SteerWaiting,
    Taken,
    Timer,
    TreeDead,
    Warm,
    WordsFollowed,
    WorkAsked,
    WorkOver,
)
from acp_bridge.core.machine.journal_word import JournalWord
from acp_bridge.core.machine.processes import Epochs, Processes
from acp_bridge.core.machine.prompt_queue import Hooks, OpenHooks, PromptQueue, QueuedPrompt
from acp_bridge.core.machine.states import (
    FREE,
    HAS_SESSION,
    Gate,
    Happened,
    Phase,
    Snapshot,
    State,
    States,
    Timers,
)

#: how often in a row hooks may send the agent back to work for one prompt of the user's.
MAX_AGAIN = 5


class TurnMachine:
    """One session's machine: `step` handles an event, `snapshot` is the session's state."""

    def __init__(
        self,
        *,
        epoch: int = 0,
        clear_on_cancel: bool = False,
        always_reload: bool = False,
        provisional: bool = False,
        hooks: frozenset[Moment] = frozenset(),
        steers: bool = False,
    ) -> None:
        """`epoch` > 0 names a process that has the session open already (`session/new`).

        `clear_on_cancel`: a Stop cancels all prompts that wait, too. `always_reload`: no process is
        used again after a cancel. `provisional`: that process may not get a prompt; the shell feeds
        `ReplaceProcess` in time. `hooks`: the moments for which the session has hooks.
        `steers`: the agent can take words into a turn that runs.
        """
        self._tokens = count(1)
        self._clear_on_cancel = clear_on_cancel
        self._can_steer = steers
        #: the process that takes words into the turn that runs just now, or 0.
        self._may_steer = 0
        self._timers = Timers(self._tokens)
        self._states = States(self._timers, has_process=epoch > 0)
        self._queue = PromptQueue()
        self._gate = Gate()
        self._open_hooks = OpenHooks(hooks)
        self._epochs = Epochs(epoch)
        parts = self._states, self._epochs, self._queue, self._gate, self._open_hooks
        self._processes = Processes(*parts, always_reload=always_reload, provisional=provisional)
        self._journal = JournalWord(*parts, self._processes)
        #: what the running prompt is answered when its process is dead.
        self._outcome: Outcome = Cancelled()
        #: where the session stands since the last step.
        self.snapshot = self._take_snapshot()

    def _take_snapshot(self) -> Snapshot:
        states, queue, processes = self._states, self._queue, self._processes
        busy = (unanswered := queue.unanswered) or self._open_hooks.running or states.closing
        return Snapshot(
            state=states.current,
            epoch=self._epochs.current,
            permits=states.permits(provisional=processes.provisional),
            running=queue.running_key,
            waiting=tuple([prompt.key for prompt in queue.waiting]),
            unanswered=tuple(dict.fromkeys([prompt.request for prompt in unanswered])),
            oldest=unanswered[0].key if unanswered else None,
            standstill=self._gate.standstill(states.current),
            at_rest=states.current is State.IDLE and not busy,
            may_work=states.may_work,
            asleep=processes.asleep,
            provisional=states.current in FREE and processes.provisional,
            ending=states.closing,
            taken=states.taken,
        )

    def step(self, event: Event) -> list[Effect]:
        """Handle one event and return its effects, in order.

        An event that nothing takes gives `Dropped` and nothing else. Raises ValueError, and
        nothing has happened, if a prompt is received twice.
        """
        out = self._take(event)
        if self._gate.closed:
            out += self._wait_for_go()
        else:
            out += [] if self._gate.away else self._send_next()
            out += self._timers.disarm(Timer.SIGN)
        self.snapshot = self._take_snapshot()
        return out

    def _take(self, event: Event) -> list[Effect]:
        """Pass the event to the method for its kind."""
        match event:
            case PromptReceived() | Committed() | CommitFailed() | NotBegun() | RunLeftOver():
                return self._take_prompt(event)
            case JournalAway() | JournalBack() | JournalLost() | Taken():
                if isinstance(event, Taken) and self._states.current is State.RUNNING:
                    self._outcome = Failed(Failure.TAKEN, event.detail)
                return self._journal.take(event)
            case SteerWaiting() | SteerAnswered():
                return self._take_steering(event)
            case EditWaiting() | MoveWaiting() | DropWaiting() | ChangeLeftOver() | ChangeWritten():
                return self._take_change(event)
            case Cancel() | CancelPrompt():
                return self._cancel(event)
            case HooksDone() | HookBegan() | HookEnded():
                return self._take_hook(event)
            case Pause() | HoldQueue() | Go():
                return self._take_gate(event)
            case Close() | Shutdown():
                return self._end_session(event)
            case Deadline(timer, token) if self._timers.take(timer, token):
                return self._pass_deadline(timer)
            case WorkAsked():
                self._states.work_asked = True
                return []
            case Warm():
                return self._processes.warm(event)
            case Sleep(epoch) if epoch == self._epochs.current and self.snapshot.at_rest:
                return self._processes.sleep()
            case ReplaceProcess():
                return self._processes.replace(event)
            case Deadline() | Sleep():
                return [Dropped(event)]
            case _:
                return self._take_process(event)

    # --- prompts: read, committed, superseded, cancelled, sent ---------------------------------

    def _take_prompt(self, event: PromptEvent) -> list[Effect]:
        """Handle what client and journal say of prompts; ValueError for one that was read twice."""
        queue, state, closing = self._queue, self._states.current, self._states.closing
        match event:
            case PromptReceived(key) | RunLeftOver(key) if closing:
                return [AnswerPrompt(key, Failed(Failure.CLOSED))]
            case PromptReceived(key, interrupt, steers, lapses):
                prompt = queue.receive(key, interrupt, self._open_hooks.before_prompt)
                prompt.first, prompt.steers = steers, steers and state is State.RUNNING
                prompt.lapses = lapses
                return [Commit(key)]
            case RunLeftOver(carrier, keys):
                return queue.receive_left_over(carrier, keys, self._open_hooks.before_prompt)
            case Committed():
                return self._committed(event)
            case CommitFailed(key, detail):
                failure = Failed(Failure.JOURNAL, detail)
                out = queue.drop(failure, lambda p: p.key == key and not p.committed)
                return out or [Dropped(event)]
            case NotBegun():
                return self._not_begun(event)
            case _:
                assert_never(event)

    def _committed(self, event: Committed) -> list[Effect]:
        """Note that the prompt is on disk; an interrupting one now cancels the turn before it."""
        prompt = self._queue.find(event.key)
        if not prompt or prompt.committed:
            return [Dropped(event)]
        prompt.committed = True
        if prompt.victim is not None:
            return self._supersede(prompt.key, prompt.victim)
        joins = prompt.steers and self._can_steer
        return [] if joins else self._queue.tell_queued(prompt)

    def _supersede(self, key: int, victim: int) -> list[Effect]:
        """Cancel the prompt `victim`, which `key` interrupts, and feedback that followed it."""
        running = self._queue.running
        self._gate.end_older_pause(key)
        turn = self._states.current is State.RUNNING and running and running.root == victim
        out = [*self._drain(), *self._queue.give_back()] if turn else []
        return out + self._queue.drop(Cancelled(), lambda prompt: prompt.root == victim)

    def _cancel(self, event: Cancel | CancelPrompt) -> list[Effect]:
        """Cancel for the user's Stop, or for a cancel of one prompt's request. (invariant C20)

        It ends no prompt of another client than the one that sent it. (invariant V4)
        """
        queue, own = self._queue, event.requests
        if self._states.closing or not queue.unanswered or own == frozenset():
            stops = self._states.may_work and isinstance(event, Cancel)
            return self._drain(spares=event.spares) if stops else [Dropped(event)]
        oldest, running = queue.unanswered[0], queue.running
        if isinstance(event, CancelPrompt):
            key = event.key
            if not running or key not in (running.key, running.request):
                out = queue.drop(Cancelled(), lambda p: key in (p.key, p.request))
                return out or [Dropped(event)]
        elif own is not None and oldest.request not in own:
            first = next((p.request for p in queue.unanswered if p.request in own), None)
            return self._drop_with(first, own) or [Dropped(event)]
        self._gate.end_pause()
        out = self._cancel_turn(spares=event.spares) + queue.give_back()
        if not running:  # the agent has not said whether it took them into a turn that is over
            out += queue.end_joined(Cancelled())
        return out + self._drop_with(oldest.request, own)

    def _drop_with(self, request: int | None, own: frozenset[int] | None) -> list[Effect]:
        """Cancel this request's waiting prompts, and those of `own` that a Stop ends with them."""

        def goes(prompt: QueuedPrompt) -> bool:
            may_go = own is None or prompt.request in own
            return prompt.request == request or (
                may_go and (self._clear_on_cancel or prompt.interrupt)
            )

        return self._queue.drop(Cancelled(), goes)

    def _send_next(self) -> list[Effect]:
        """After every event: send the next committed prompt, or start a process for it."""
        queue = self._queue
        if self._states.taken:
            return self._journal.end()
        if self._states.closing or queue.leaving or queue.change:
            return []
        if self._states.current is State.RUNNING:
            return self._join_next()
        waiting = queue.waiting
        if not waiting or not waiting[0].committed or queue.joining:
            return []
        first, hooked, state = waiting[0], queue.hooked, self._states.current
        out: list[Effect] = []
        if first.hooks is Hooks.DUE and not hooked and not queue.running:
            out = queue.begin_hooks(first)
        if state in FREE:
            waits = hooked or first.hooks is not Hooks.PASSED or self._processes.provisional
            if not waits and state is State.IDLE and self._processes.occupied:
                return out + self._processes.move()
            return out if waits else out + self._send()
        idle = state in (State.COLD, State.BLOCKED, State.UNAUTHENTICATED)
        return out + self._processes.begin() if idle and not first.ending else out

    def _send(self) -> list[Effect]:
        """Send the next prompt to the agent, which is idle."""
        self._states.between_turns = Phase.LIVE
        out = self._states.advance(Happened.PROMPT_SENT)
        prompt = self._queue.take_next()
        return [*out, SendPrompt(self._epochs.current, prompt.key)]

    # --- prompts that wait: edited, moved, dropped ---------------------------------------------

    def _take_change(self, event: ChangeEvent) -> list[Effect]:
        """Handle the user's change of a prompt that waits, or that the journal has written one."""
        queue = self._queue
        match event:
            case ChangeWritten(made):
                known = queue.end_change(self._open_hooks.before_prompt, made=made)
                return [] if known else [Dropped(event)]
            case _ if self._states.closing:
                return [RefuseChange()]
            case EditWaiting(key):
                return queue.edit(key)
            case MoveWaiting(key, before, first):
                return queue.move(key, before, first=first)
            case DropWaiting(key):
                return queue.drop_for_good(key)
            case ChangeLeftOver(key):  # it may be run meanwhile
                return queue.begin_change(WriteChange(key))
            case _:
                assert_never(event)

    # --- words that join the running turn ------------------------------------------------------

    def _join_next(self) -> list[Effect]:
        """Send the next words that are to join the running turn, when their hooks have passed."""
        queue, epoch = self._queue, self._epochs.current
        prompt = queue.next_to_join() if self._may_steer == epoch else None
        if prompt is None or not prompt.committed or prompt.ending:
            return []
        if prompt.hooks is Hooks.DUE and not queue.hooked:
            return queue.begin_hooks(prompt)
        return queue.join(prompt, epoch) if prompt.hooks is Hooks.PASSED else []

    def _take_steering(self, event: SteeringEvent) -> list[Effect]:
        """Handle the user's wish that a prompt joins the turn, or an agent's answer to `Steer`."""
        match event:
            case SteerWaiting(key):
                prompt = self._queue.find(key)
                runs = self._states.current is State.RUNNING
                if not runs or not prompt or prompt.carried or prompt.again or prompt.interrupt:
                    return [Dropped(event)]
                prompt.first, prompt.steers, prompt.refused = True, True, False
                return []
            case SteerAnswered(key, how):
                stopped = self._states.closing or self._cancels
                out = self._queue.joined(key, how, stopped=stopped)
                return [Dropped(event)] if out is None else out
            case _:
                assert_never(event)

    # --- hooks: before a prompt is sent, after its turn, and those that run on their own -------

    def _take_hook(self, event: HookEvent) -> list[Effect]:
        """Handle the beginning or the end of hooks, and go on with what waited for that."""
        out: list[Effect] = []
        match event:
            case HooksDone(key):
                prompt = self._queue.hooked_as(key)
                if prompt is None:
                    return [Dropped(event)]
                out = self._hooks_done(prompt, event)
            case HookBegan() if self._states.current is State.CLOSED:
                return [Dropped(event)]
            case HookBegan(run):
                self._open_hooks.begin(run)
                if self._states.closing or self._states.taken or self._cancels:
                    out = self._open_hooks.stop()
            case HookEnded(run):
                if not self._open_hooks.end(run):
                    return [Dropped(event)]
            case _:
                assert_never(event)
        return out + self._after_hooks()

    def _hooks_done(self, prompt: QueuedPrompt, event: HooksDone) -> list[Effect]:
        """Let a prompt whose hooks ended go on, refuse it, or queue feedback. (invariant Q11)"""
        feedback, out = event.feedback, list[Effect]()
        if prompt is self._queue.leaving:
            enough = prompt.again >= MAX_AGAIN
            if feedback is not None and not prompt.ending and not enough:
                return self._queue.follow(feedback)
            if feedback is not None:
                out.append(RefuseFeedback(feedback, enough and not prompt.ending))
            self._mark_over(cancelled=isinstance(prompt.ending, Cancelled))
        elif event.refusal is not None and not prompt.ending:
            prompt.ending = Refused(event.refusal)
        return out + self._queue.end_hooks(prompt)

    # --- pause and hold ------------------------------------------------------------------------

    def _take_gate(self, event: GateEvent) -> list[Effect]:
        """Handle the user's pause, hold or go."""
        gate, unanswered = self._gate, self._queue.unanswered
        closing = self._states.closing or self._states.taken
        epoch, state = self._epochs.current, self._states.current
        match event:
            case Pause() if unanswered and not closing:
                gate.pause(max(prompt.key for prompt in unanswered))
                asks = state is State.RUNNING and not gate.at_agent
                return gate.pause_turn(epoch, next(self._tokens)) if asks else []
            case HoldQueue() if not closing:
                return gate.hold(epoch)
            case Go() if gate.closed:
                return gate.open(epoch)
            case _:
                return [Dropped(event)]

    def _wait_for_go(self) -> list[Effect]:
        """After every event in a pause or a hold: give signs of life while a prompt waits for go.

        A pause in which no prompt is left ends.
        """
        gate, queue = self._gate, self._queue
        if not queue.unanswered:
            gate.end_pause()
        elif self._states.current is not State.RUNNING:
            gate.forget_turn()
        waits = queue.unanswered and (not queue.running or gate.at_agent)
        return self._timers.arm(Timer.SIGN) if waits else self._timers.disarm(Timer.SIGN)

    # --- processes and deadlines ---------------------------------------------------------------

    def _take_process(self, event: AgentEvent) -> list[Effect]:
        """Handle an event of a process: the current one, a spare or a dying one, by its epoch."""
        match event:
            case TreeDead(epoch) | StartFailed(epoch) if epoch in self._epochs.dying:
                return self._processes.bury(event) + self._after_deaths()
            case AgentExited(epoch) if epoch in self._epochs.dying:
                return []  # as expected; the death of its tree is what counts
            case _ if event.epoch == self._epochs.spare:
                return self._epochs.on_spare(event)
            case _ if event.epoch == self._epochs.current:
                return self._take_current(event)
            case _:
                return [Dropped(event)]

    def _take_current(self, event: AgentEvent) -> list[Effect]:
        """Handle an event of the current process in a turn; else pass it to `Processes.take`."""
        queue = self._queue
        match self._states.current, event:
            case State.RUNNING, AgentAnswered(_, queue.running_key, answer):
                return self._answered(answer)
            case State.RUNNING, PauseAnswered(_, self._gate.asked, paused):
                self._gate.answered(paused)
                return []
            case State.RUNNING, AgentExited(_, detail):
                return self._died(detail)
            case State.DRAINING, AgentAnswered(_, queue.running_key):
                return self._note_answer(event) + self._end_drain()
            case State.DRAINING, WorkOver() if not queue.running:
                return self._end_drain()
            case State.DRAINING, AgentExited():
                return self._processes.restart()
            case State.KILLING, AgentAnswered(_, queue.running_key):
                return self._note_answer(event)
            case _, MaySteer(epoch, now):
                self._may_steer = epoch if now else 0
                return []
            case _, WordsFollowed() if queue.follow_words():
                return []
            case state, Occupied() if state in HAS_SESSION:
                return self._epochs.note_occupied(event)
            case _:
                return self._processes.take(event)

    def _pass_deadline(self, timer: Timer) -> list[Effect]:
        """Handle a timer that has passed: start a spare, kill, give up, or show a sign of life."""
        match timer:
            case Timer.SPARE:
                return [] if self._states.closing else self._epochs.start_spare()
            case Timer.DRAIN:
                return self._processes.restart()
            case Timer.RESTART:
                return self._processes.run_out()
            case Timer.KILL:
                return self._give_up_kill()
            case Timer.SIGN:
                return [StillWaits()]
            case _:
                assert_never(timer)

    def _give_up_kill(self) -> list[Effect]:
        """Go on although a killed process is still not dead: it is never used again."""
        out: list[Effect] = []
        self._open_hooks.forget()
        if self._states.closing:
            out = self._epochs.bury(*sorted(self._epochs.dying))
        if self._states.closing or self._states.taken:
            out += self._queue.end_all_hooks()
        self._processes.use_up()
        out += self._journal.tell(given_up=True)
        return out + self._finish_badly() + self._processes.go_on()

    # --- how the running turn ends, and work beside prompts ------------------------------------

    @property
    def _cancels(self) -> bool:
        """True if the running turn is about to be answered `cancelled`."""
        over = self._states.current in (State.DRAINING, State.KILLING) and self._queue.running
        return bool(over) and isinstance(self._outcome, Cancelled)

    @property
    def _hooks_hold_up(self) -> bool:
        """True if a turn may not end yet, because a hook runs: it is cancelled (invariant C10), or
        another bridge has the session.
        """
        if self._states.taken:
            return self._journal.hooks_live
        return self._open_hooks.running and self._cancels

    def _cancel_turn(self, *, spares: bool) -> list[Effect]:
        """Cancel the turn for the user's Stop; one that is ending is answered `cancelled`."""
        running, out = self._queue.running, list[Effect]()
        if self._states.current is State.RUNNING:
            out = self._drain(spares=spares)
        elif running:
            out = self._open_hooks.stop()
        self._mark_cancelled()
        return out

    def _mark_cancelled(self) -> None:
        """Make `cancelled` the answer of a turn that is ending, whatever ended it."""
        self._outcome = Cancelled()

    def _drain(self, *, spares: bool = False) -> list[Effect]:
        """Tell the agent to cancel the running prompt, or what it does outside of one; `spares`:
        but not what runs in the background."""
        self._outcome, self._states.work_asked = Cancelled(), False
        out, epoch = self._states.advance(Happened.CANCEL_SENT), self._epochs.current
        if prompt := self._queue.running:
            prompt.spares = spares
            return [SendCancel(epoch, prompt.key, spares), *out, *self._open_hooks.stop()]
        self._states.between_turns = Phase.LEAK
        return [StopWork(epoch, spares), *out, *self._open_hooks.stop()]

    def _died(self, detail: object) -> list[Effect]:
        """Fail the running turn, in which the agent's process ended by itself, and restart."""
        out = self._open_hooks.tell_death(detail)
        self._outcome = Failed(Failure.AGENT_DIED, detail)
        out += self._queue.lapse() + self._queue.drop(
            Failed(Failure.NOT_JOINED), lambda prompt: prompt.steers
        )
        return out + self._processes.restart()

    def _answered(self, answer: object) -> list[Effect]:
        """End a turn that nobody cancelled with the agent's answer, or first run its hooks."""
        ends = (
            self._queue.leave(answer)
            if self._open_hooks.after_turn
            else self._finish(Replied(answer))
        )
        return ends + self._processes.rest()

    def _not_begun(self, event: NotBegun) -> list[Effect]:
        """Take back a prompt that was not sent, because the journal could not note its start.

        It waits again if the journal may come back, and is answered otherwise.
        """
        state = self._states.current
        if event.key != self._queue.running_key:
            return [Dropped(event)]
        self._gate.away |= event.away
        if state is State.DRAINING:
            return self._end_drain()
        if event.away and not self._cancels:
            ends = self._queue.take_back()
        elif state is State.RUNNING:
            ends = self._finish(Failed(Failure.NOT_BEGUN, event.detail))
        else:
            return [Dropped(event)]
        return ends + (self._processes.rest() if state is State.RUNNING else [])

    def _end_drain(self) -> list[Effect]:
        """End a drain that the agent has heeded: replace its process, or finish if no hook runs."""
        processes = self._processes
        reloads = processes.reloads_after_cancel or processes.provisional
        if reloads and not self._states.closing:
            return processes.restart()
        if self._hooks_hold_up:
            return []
        return self._epochs.drop_spare() + self._finish_badly() + processes.rest()

    def _note_answer(self, event: AgentAnswered) -> list[Effect]:
        """Keep the agent's own answer to a cancelled prompt, for the journal. (invariant C13)"""
        prompt = self._queue.running
        if prompt and not prompt.noted and isinstance(self._outcome, Cancelled):
            prompt.noted = True
            return [NoteOutcome(prompt.key, event.answer)]
        return [Dropped(event)]

    def _after_hooks(self) -> list[Effect]:
        """Go on with a turn that waited for the end of hooks, or with the end of the session."""
        state, running = self._states.current, self._queue.running
        if state is State.DRAINING and running and running.noted and not self._hooks_hold_up:
            return self._end_drain()
        return self._after_deaths()

    def _after_deaths(self) -> list[Effect]:
        """Go on when every process that was told to die is dead, and no hook holds the turn up."""
        if self._states.current is not State.KILLING or self._epochs.dying or self._hooks_hold_up:
            return []
        return self._journal.tell() + self._finish_badly() + self._processes.go_on()

    def _finish_badly(self) -> list[Effect]:
        """Close the cards of the running turn, if there is one, and answer its prompt (C22)."""
        prompt = self._queue.running
        return [CloseCards(prompt.spares), *self._finish(self._outcome)] if prompt else []

    def _abandon(self) -> list[Effect]:
        """Leave waiting prompts over; interrupt the turn unless it was cancelled. (invariant Q6)"""
        out = self._queue.leave_over()
        if self._states.current is State.RUNNING:
            return [*out, CloseCards(), *self._queue.interrupt()]
        return out + (self._finish_badly() if self._queue.running else self._queue.interrupt())

    def _finish(self, outcome: Outcome) -> list[Effect]:
        self._mark_over(cancelled=isinstance(outcome, Cancelled))
        return self._queue.finish(outcome)

    def _mark_over(self, *, cancelled: bool) -> None:
        """Set how the agent's updates are treated from the end of this turn on.

        A process that was given the session meanwhile may replay it, and knows of no such turn.
        """
        if self._states.between_turns is not Phase.REPLAY:
            self._states.between_turns = Phase.LEAK if cancelled else Phase.LIVE

    # --- the end of the session ----------------------------------------------------------------

    def _end_session(self, event: Close | Shutdown) -> list[Effect]:
        """Begin to end the session, or hurry if it ends already.

        A close cancels what is asked of the session, or keeps the prompts that wait; the end of
        the bridge leaves those over, and interrupts the running one. Either way nothing new is
        taken, and a process that lives is ended first.
        """
        self._states.closing = True
        self._gate.forget()
        out = self._epochs.drop_spare()
        if self._states.current is not State.RUNNING or isinstance(event, Shutdown):
            out += self._open_hooks.stop()
        if isinstance(event, Close):
            self._mark_cancelled()
            queue = self._queue
            out += queue.keep() if event.keeps_prompts else queue.drop(Cancelled())
            out += [] if queue.running else queue.end_joined(Cancelled())
        else:
            out += self._abandon()
        return out + self._end_process(event)

    def _end_process(self, event: Close | Shutdown) -> list[Effect]:
        processes, dying = self._processes, sorted(self._epochs.dying)
        match self._states.current:
            case State.IDLE | State.WORKING:
                return processes.close_agent()
            case State.RUNNING | State.DRAINING if not self._queue.running:
                return processes.close_agent()
            case State.RUNNING:
                return self._drain()
            case State.STARTING | State.RELOADING | State.UNAUTHENTICATED:
                return processes.end_opening(hurries=isinstance(event, Shutdown))
            case State.COLD | State.BLOCKED if dying:
                return processes.kill(*dying)
            case State.COLD | State.BLOCKED:
                return processes.end()
            case State.CLOSED:
                return [Dropped(event)]
            case State.DRAINING | State.KILLING:
                return []  # what is on its way leads to the end
            case _:
                assert_never(self._states.current)
