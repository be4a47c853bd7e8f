"""A second opinion on what a session must do: a list of prompts and a few flags.

`before(event)` takes what happens, `after(event, effects)` judges what the machine asked for.
It knows events and effects, and nothing else of what it judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    Cancelled,
    CloseAgent,
    CloseCards,
    Closed,
    Commit,
    Dropped,
    Effect,
    EndTurn,
    Failed,
    Failure,
    Interrupted,
    Kill,
    Leave,
    LeaveOver,
    NoteOutcome,
    Open,
    Outcome,
    RefuseChange,
    Refused,
    RefuseFeedback,
    Release,
    Replied,
    RunHooks,
    SendCancel,
    SendGo,
    SendPause,
    SendPrompt,
    Start,
    StillWaits,
    StopHooks,
    StopWork,
    TellDeath,
    TellTaken,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentExited,
    Cancel,
    CancelPrompt,
    ChangeWritten,
    Close,
    CommitFailed,
    Committed,
    Deadline,
    DropWaiting,
    Event,
    Go,
    HoldQueue,
    HookBegan,
    HookEnded,
    HooksDone,
    JournalAway,
    JournalBack,
    JournalLost,
    Leaked,
    Loaded,
    Moment,
    NeedsAuth,
    NotBegun,
    Occupied,
    Pause,
    PauseAnswered,
    PromptReceived,
    ReplaceProcess,
    RunLeftOver,
    Shutdown,
    Sleep,
    Started,
    StartFailed,
    Taken,
    Timer,
    TreeDead,
    Warm,
    WorkAsked,
    WorkOver,
    WorkSeen,
)
from acp_bridge.core.machine.states import Standstill
from tests.core.machine.reference_hooks import Asked, Line

#: The order of effects at the end of a bad turn, and everywhere else.
ORDER = (Release, CloseCards, AnswerPrompt, Start, Open, SendPrompt)


@dataclass
class Reference(Line):
    clear: bool
    always_reload: bool
    left_over: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    sent_keys: set[int] = field(default_factory=set)
    sent_last: int = 0
    #: for the running turn: the cancel was sent; the agent answered; the agent's process ended.
    told = noted = died = unsent = False
    #: the last cancel lets go on what runs in the background.
    spares = False
    leaky = gone = closed = False
    #: the process was told to end because nothing was asked of the session, and nothing was since.
    asleep = False
    #: the user's word; the newest prompt when the pause was read; what the agent knows of it.
    paused = on_hold = False
    paused_at = pause_token = 0
    pause_told = pause_open = pause_refused = False
    #: the journal can't be written for now.
    away = False
    #: another bridge has the session; clients were told so.
    taken = told_taken = False
    #: epochs by what is known of them.
    started: set[int] = field(default_factory=set)
    initialized: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    opening: int | None = None
    loaded: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    #: the client has asked for work beside prompts, and has not said Stop since.
    work_asked: bool = False
    #: the agent was seen to work outside of a prompt.
    work_seen: bool = False
    #: the agent was told to stop that, and has not done so yet.
    work_stops: bool = False
    #: a Stop has ended work outside of a prompt, and no prompt was sent since.
    work_stopped: bool = False
    #: epochs that may not get another prompt.
    unfit: set[int] = field(default_factory=set)
    #: epochs in whose processes another session works.
    occupied: set[int] = field(default_factory=set)

    # --- what happens ----------------------------------------------------------------------

    def before(self, event: Event) -> None:
        match event:
            case PromptReceived(key, interrupt) if not self.closing:
                self.read(key, interrupt)
            case RunLeftOver(carrier, keys) if not self.closing:
                self.left_over -= set(keys)
                self.carriers.add(carrier)
                unchecked = Moment.PROMPT not in self.hooks
                self.line += [Asked(key, carrier, True, checked=unchecked) for key in keys]
            case NotBegun(key, away) if self.running and self.running.key == key:
                self.not_begun(self.running, away)
            case JournalAway() | JournalBack() | JournalLost() | Taken():
                self.note_journal(event)
            case HooksDone() | HookBegan() | HookEnded():
                self.note_hooks(event)
            case Pause() | HoldQueue() | Go() | PauseAnswered():
                self.note_gate(event)
            case Committed(key):
                self.commit(key)
            case DropWaiting() | ChangeWritten():
                self.note_change(event)
            case WorkAsked():
                self.work_asked = not self.closing
            case Cancel(None):
                self.cancel()
            case CancelPrompt(key):
                self.cancel_one(key)
            case ReplaceProcess():
                self.unfit |= self.loaded
            case Close(keeps_prompts):
                self.closing, self.paused, self.on_hold, self.away = True, False, False, False
                for asked in self.line:
                    begun = asked in (self.running, self.leaving) or asked.again > 0
                    asked.kept |= keeps_prompts and not begun and not asked.cancelled
                    asked.cancelled |= begun or not keeps_prompts
            case Shutdown():
                self.closing = self.gone = True
                self.paused = self.on_hold = self.away = False
            case _:
                self.outside(event)

    def not_begun(self, asked: Asked, away: bool) -> None:
        """Note that the prompt that runs was not sent; perhaps it is the next to be."""
        self.unsent |= not self.died
        self.away |= away and not self.closing
        if away and not asked.cancelled:
            self.running = None
            self.sent_keys.remove(asked.key)
            self.line.remove(asked)
            self.line.insert(0, asked)

    def note_journal(self, event: JournalAway | JournalBack | JournalLost | Taken) -> None:
        if isinstance(event, Taken):
            if not self.taken:
                self.away = self.paused = self.on_hold = self.asleep = False
            self.taken = True
            return
        if not (self.closing or self.taken) or isinstance(event, JournalBack):
            self.away = isinstance(event, JournalAway)
            for asked in self.next() if isinstance(event, JournalLost) else ():
                asked.lost |= asked.committed

    def note_gate(self, event: Event) -> None:
        match event:
            case Pause() if self.line and not (self.closing or self.taken):
                self.paused, self.paused_at = True, max(asked.key for asked in self.line)
                self.pause_refused = False
            case HoldQueue() if not (self.closing or self.taken):
                self.on_hold, self.paused = True, False
            case Go():
                self.on_hold = self.paused = False
            case PauseAnswered(epoch, token, paused):
                if self.pause_open and (epoch, token) == (self.epoch, self.pause_token):
                    self.pause_open, self.pause_refused = False, not paused
                    self.pause_told &= paused

    def outside(self, event: Event) -> None:
        """Note what the processes did, whatever the machine makes of it."""
        match event:
            case Started(epoch) if epoch in self.started:
                self.initialized.add(epoch)
            case Loaded(epoch) if epoch == self.opening:
                self.loaded.add(epoch)
            case NeedsAuth(epoch) if epoch == self.opening:
                self.opening = None
            case AgentExited(epoch) if epoch in self.started:
                self.unfit.add(epoch)
                self.died |= epoch == self.epoch
            case TreeDead(epoch) if epoch in self.started:
                self.dead.add(epoch)
            case StartFailed(epoch) if epoch in self.started - self.opened | self.doomed:
                self.dead.add(epoch)
            case Occupied(epoch, now) if epoch in self.opened - self.doomed:
                self.occupied = self.occupied | {epoch} if now else self.occupied - {epoch}
            case WorkSeen(epoch) if epoch in self.loaded - self.doomed:
                self.work_seen = not self.work_stops
            case WorkOver(epoch) if epoch in self.loaded - self.doomed:
                self.work_seen = self.work_stops = False
            case Leaked(epoch) if epoch in self.loaded and epoch not in self.doomed:
                self.leaky = True
                self.unfit.add(epoch)

    @property
    def gate_closed(self) -> bool:
        """The user wants nothing to start."""
        return self.on_hold or self.paused

    def check_gate(self, standstill: Standstill, state: str, sign: bool) -> None:
        """Assert that what is told of a pause or a hold is so, and no turn waits unasked."""
        turn_waits = state == "RUNNING" and self.pause_told
        assert self.gate_closed or not turn_waits, "it waits for nobody"
        if not self.gate_closed:
            assert standstill is Standstill.OPEN
        elif turn_waits:
            assert standstill is (Standstill.PAUSING if self.pause_open else Standstill.PAUSED)
        elif state == "RUNNING":
            assert standstill is Standstill.HELD
            assert not self.paused or self.pause_refused, "the agent was not asked"
        else:
            assert standstill is (Standstill.PAUSED if self.paused else Standstill.HELD)
        stands = bool(self.line) and (self.running is None or turn_waits)
        assert sign is (self.gate_closed and stands and not self.closing)

    def commit(self, key: int) -> None:
        asked = next((a for a in self.next() if a.key == key and not a.committed), None)
        if asked:
            asked.committed = True
            if asked.victim is not None:
                self.paused &= asked.key <= self.paused_at
            for other in self.line:
                if other.root == asked.victim and not (
                    other is self.running and (self.died or self.taken)
                ):
                    other.cancelled = True

    def cancel(self) -> None:
        if self.closing or not self.line:
            return
        self.paused = False
        oldest = self.foremost()
        for asked in self.line:
            if self.clear or asked.interrupt or asked.request == oldest.request:
                asked.cancelled = True
        oldest.cancelled = True

    def cancel_one(self, key: int) -> None:
        if self.running and key in (self.running.key, self.running.request):
            self.cancel()
        elif not self.closing:
            for asked in self.line:
                asked.cancelled |= key in (asked.key, asked.request)

    # --- what is asked for -------------------------------------------------------------------

    def after(self, event: Event, effects: list[Effect]) -> None:
        ranks = [ORDER.index(type(effect)) for effect in effects if type(effect) in ORDER]
        assert ranks == sorted(ranks), f"out of order: {effects}"
        ended = (AnswerPrompt, RefuseChange, Dropped, *([StopHooks] * isinstance(event, Taken)))
        assert not (self.closed and not all(isinstance(e, ended) for e in effects))
        if isinstance(event, TreeDead) and event.epoch in self.doomed:
            assert (effects == [Dropped(event)]) == (event.epoch in self.released)
        if isinstance(event, Sleep) and effects != [Dropped(event)]:
            assert Leave(event.epoch) in effects
            assert event.epoch in self.loaded - self.doomed
            assert not self.line
            assert not self.work_stops
            assert not self.asides
            assert not self.closing
            self.asleep = True
        if any(isinstance(effect, TellTaken) for effect in effects):
            self.tell_taken(event)
        for effect in effects:
            if isinstance(effect, SendCancel | StopWork | CloseCards):
                self.spare(event, effect)
            self.judge(event, effect)
        self.asleep &= not (self.closing or isinstance(event, Warm))
        if late(event, Timer.KILL) and effects != [Dropped(event)]:
            self.asides.clear()  # given up
        self.paused &= bool(self.line)
        if self.running is None or self.told or self.died:
            self.pause_told = self.pause_open = False
        for asked in self.next():
            ends = asked.cancelled or asked.kept or asked.lost
            assert asked.hooked or not ends, f"{asked} has ended, and still waits"
        if self.running and self.running.cancelled:
            assert self.told or self.died or self.taken, "the agent was not told"
        begun = [each for each in effects if isinstance(each, Start | Open | SendPrompt | RunHooks)]
        assert not (self.taken and begun), "another bridge has it"
        if self.taken and not self.closed:
            assert self.started <= self.dead | self.doomed, "it works on"
            waits = [asked for asked in self.next() if asked.committed and self.told_taken]
            assert not waits or self.gate_closed or self.away or self.hooked

    def judge(self, event: Event, effect: Effect) -> None:
        match effect:
            case Commit(key) if isinstance(event, HooksDone):
                self.follow(event, key)
            case Commit(key):
                assert isinstance(event, PromptReceived)
                assert event.key == key
            case EndTurn() | RunHooks() | StopHooks() | RefuseFeedback() | TellDeath():
                self.hook(event, effect)
            case SendPrompt():
                self.sent(effect)
            case SendCancel(epoch, key):
                assert self.running is not None
                assert self.running.cancelled
                assert not self.told, "a second cancel"
                assert (epoch, key) == (self.epoch, self.running.key)
                self.told = True
                if self.leaky or self.always_reload:
                    self.unfit.add(epoch)
            case AnswerPrompt():
                self.answer(event, effect)
            case SendPause() | SendGo() | StillWaits():
                self.at_gate(event, effect)
            case NoteOutcome(key, answer):
                assert event == AgentAnswered(self.epoch, key, answer)
                assert self.running is not None
                assert self.running.key == key
                assert self.running.cancelled
                assert not self.noted, "a second outcome"
                self.noted = True
            case Dropped():
                assert effect == Dropped(event)
                assert not isinstance(event, PromptReceived | RunLeftOver), "nobody answers it"
            case LeaveOver(keys):
                self.leave_over(event, keys)
            case Interrupted(key):
                self.interrupted(event, key)
            case _:
                self.process(event, effect)

    def spare(self, event: Event, effect: SendCancel | StopWork | CloseCards) -> None:
        """Judge what goes on in the background: what the Stop spares, and nothing without one."""
        if isinstance(effect, CloseCards):
            assert effect.spares is (self.told and self.spares), "not what the agent was told"
        else:
            assert effect.spares is (isinstance(event, Cancel | CancelPrompt) and event.spares)
            self.spares = effect.spares

    def tell_taken(self, event: Event) -> None:
        assert self.taken
        assert not self.closing
        assert not self.told_taken
        if not late(event, Timer.KILL):
            assert self.started <= self.dead, "it works on"
            assert not self.asides
            assert not self.hooked
        self.told_taken = True

    def interrupted(self, event: Event, key: int) -> None:
        assert isinstance(event, Shutdown)
        assert self.running is not None
        assert self.running.key == key
        assert not self.running.cancelled
        self.leave(self.running)

    def at_gate(self, event: Event, effect: SendPause | SendGo | StillWaits) -> None:
        match effect:
            case SendPause(epoch, token):
                assert isinstance(event, Pause)
                assert self.running is not None
                assert not self.running.cancelled
                assert not self.died
                assert not self.pause_told
                assert token > self.pause_token
                assert epoch == self.epoch
                self.pause_told, self.pause_open, self.pause_token = True, True, token
            case SendGo(epoch):
                assert isinstance(event, Go | HoldQueue)
                assert self.running is not None
                assert not self.running.cancelled
                assert not self.died
                assert self.pause_told
                assert epoch == self.epoch
                self.pause_told = self.pause_open = False
            case StillWaits():
                assert late(event, Timer.SIGN)
                assert self.gate_closed

    def sent(self, effect: SendPrompt) -> None:
        assert self.running is None, "two turns at once"
        assert not self.gate_closed, "the user wants nothing to start"
        assert not self.away, "the journal can't note it"
        assert self.leaving is None, "the turn before has not ended"
        assert self.hooked is None, "hooks run"
        assert self.next()[0].checked, "its hooks did not run"
        assert not self.closing
        assert not self.change, "the user's change is not on disk"
        assert not self.work_stops, "what was stopped goes on"
        self.running = self.next()[0]
        assert self.running.key == effect.key, "not in order"
        assert self.running.committed
        assert not self.running.cancelled
        assert effect.key not in self.sent_keys, "sent twice"
        assert effect.epoch in self.loaded - self.unfit - self.doomed
        assert effect.epoch not in self.occupied or self.work_seen, "another session works there"
        self.told = self.noted = self.died = self.unsent = self.work_stopped = False
        self.work_seen = False
        self.sent_keys.add(effect.key)
        self.sent_last, self.epoch = effect.key, effect.epoch

    def process(self, event: Event, effect: Effect) -> None:
        match effect:
            case Start(epoch):
                assert epoch not in self.started
                assert not self.asleep or self.line or isinstance(event, Warm), "nobody woke it"
                self.asleep = False
                self.started.add(epoch)
            case Open(epoch):
                assert epoch in self.initialized - self.doomed
                assert self.opened - self.dead <= {epoch}, "another process has the session"
                self.opened.add(epoch)
                self.opening = epoch
            case Kill() | CloseAgent() | Leave():
                self.end(event, effect)
            case Release(epoch):
                assert epoch in self.dead or (self.closing and late(event, Timer.KILL))
                assert epoch not in self.released
                self.released.add(epoch)
            case StopWork(epoch):
                assert isinstance(event, Cancel)
                assert self.work_asked or self.work_seen, "there is no work"
                assert not self.running
                assert not self.line or event.requests == frozenset(), "a prompt is meant"
                assert epoch in self.loaded - self.doomed
                self.work_asked = self.work_seen = False
                self.work_stops = self.work_stopped = True
                self.unfit |= {epoch} if self.leaky or self.always_reload else set()
            case Closed():
                assert self.closing
                assert not self.line
                assert self.doomed <= self.dead or late(event, Timer.KILL)
                assert self.released == self.started
                self.closed = True
            case _:
                self.change_asked(event, effect)

    def end(self, event: Event, effect: Kill | CloseAgent | Leave) -> None:
        epoch = effect.epoch
        assert epoch in self.started
        rests = self.rests_in(epoch) or (isinstance(event, Close) and self.opens_in(epoch))
        assert not isinstance(effect, Leave) or rests, "work is left there"
        assert not isinstance(effect, CloseAgent) or self.closing
        self.doomed.add(epoch)
        self.asleep &= isinstance(event, Sleep)  # else somebody needs another one
        self.work_seen &= epoch not in self.opened
        self.work_stops &= epoch not in self.opened

    def rests_in(self, epoch: int) -> bool:
        """Return True if the process has the session, and no prompt of it."""
        has_it = epoch in self.loaded - self.doomed
        return has_it and not (self.running or self.work_stops)

    def opens_in(self, epoch: int) -> bool:
        """Return True if the process is given the session, or wants a login for it."""
        return epoch in self.opened - self.loaded - self.doomed

    def answer(self, event: Event, effect: AnswerPrompt) -> None:
        key, outcome = effect.key, effect.outcome
        assert key not in self.answered, "a second answer"
        self.answered.add(key)
        if outcome == Failed(Failure.CLOSED):
            assert self.closing
            assert isinstance(event, PromptReceived | RunLeftOver)
        elif key in self.carriers:
            assert all(asked.request != key for asked in self.line), "its prompts are not done"
            assert not isinstance(outcome, Replied) or key in self.sent_keys
            self.carriers.remove(key)
        elif isinstance(event, HooksDone) and event.feedback is not None and self.told_before(key):
            assert self.leaving is not None
            assert outcome == Replied(self.leaving.replied)
        else:
            asked = next(asked for asked in self.line if asked.key == key)
            if asked.hooked:
                assert self.gone or late(event, Timer.KILL), "its hooks run"
            if asked is self.leaving:
                assert asked.cancelled or outcome == Replied(asked.replied)
                assert not asked.cancelled or outcome == Cancelled()
            elif asked is self.running:
                self.answer_running(event, asked, outcome)
            elif asked.cancelled:
                assert outcome == Cancelled()
            else:
                self.answer_waiting(event, asked, outcome)
            self.leave(asked)

    def answer_running(self, event: Event, asked: Asked, outcome: Outcome) -> None:
        ended = self.epoch in self.dead or late(event, Timer.KILL) or self.gone
        if asked.cancelled:
            assert outcome == Cancelled()
            assert not self.asides or self.gone or late(event, Timer.KILL), "a hook runs"
            clean = (self.noted or self.unsent) and (self.closing or self.epoch not in self.unfit)
            assert ended or clean, "work goes on"
        elif isinstance(event, NotBegun):
            assert event.key == asked.key
            assert outcome == Failed(Failure.NOT_BEGUN)
        elif isinstance(outcome, Failed) and outcome.why is Failure.TAKEN:
            assert self.taken
            assert ended
            assert not self.asides or self.gone or late(event, Timer.KILL), "a hook runs"
        elif self.died:
            assert isinstance(outcome, Failed)
            assert outcome.why is Failure.AGENT_DIED
            assert ended
        else:
            assert isinstance(outcome, Replied)
            assert event == AgentAnswered(self.epoch, asked.key, outcome.answer)

    def answer_waiting(self, event: Event, asked: Asked, outcome: Outcome) -> None:
        if isinstance(outcome, Refused):
            assert isinstance(event, HooksDone)
            assert (event.key, event.refusal) == (asked.key, outcome.reason)
            return
        assert isinstance(outcome, Failed)
        assert (outcome.why is Failure.KEPT) <= asked.kept
        if self.taken and outcome.why is Failure.NOT_BEGUN:
            assert self.told_taken or self.closing or asked.lost, "clients are told first"
        elif isinstance(event, HooksDone):
            assert asked.doomed
        elif asked.kept:
            assert outcome.why is Failure.KEPT or asked.doomed
        elif isinstance(event, CommitFailed):
            assert (asked.key, asked.committed) == (event.key, False)
            assert outcome.why is Failure.JOURNAL
        elif asked.lost and outcome.why is Failure.NOT_BEGUN:
            assert isinstance(event, JournalLost) or asked.doomed
        else:
            assert not self.away, "it may be sent later"
            login = isinstance(event, NeedsAuth)
            assert outcome.why is (Failure.NEEDS_AUTH if login else Failure.NO_AGENT)

    def leave_over(self, event: Event, keys: tuple[int, ...]) -> None:
        for key in keys:
            asked = next(asked for asked in self.next() if asked.key == key)
            assert self.gone or asked.request != key, "only a left-over prompt is put back"
            assert self.gone or not asked.dropped, "the user does not want it"
            assert self.gone or not asked.again, "feedback is not left over"
            assert self.gone or not asked.hooked or late(event, Timer.KILL), "its hooks run"
            self.leave(asked)
            self.left_over.add(key)

    def leave(self, asked: Asked) -> None:
        self.line.remove(asked)
        if asked is self.running:
            self.running = None
        if asked is self.leaving:
            self.leaving = None


def late(event: Event, timer: Timer) -> bool:
    return isinstance(event, Deadline) and event.timer is timer
