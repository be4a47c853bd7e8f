"""A second opinion on what a session must do: a list of prompts and a few flags.

`before(event)` takes what happens, `after(event, effects)` judges what the machine asked for.
It knows events and effects, and nothing else of what it judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from acp_bridge.machine.effects import (
    AnswerPrompt,
    CloseAgent,
    CloseCards,
    Closed,
    Commit,
    Dropped,
    Effect,
    Hold,
    Interrupted,
    Kill,
    NoteOutcome,
    Open,
    Release,
    SendCancel,
    SendGo,
    SendPause,
    SendPrompt,
    Start,
    StillWaits,
)
from acp_bridge.machine.events import (
    AgentAnswered,
    AgentExited,
    Cancel,
    CancelPrompt,
    Close,
    CommitFailed,
    Committed,
    Deadline,
    Event,
    Go,
    HoldQueue,
    Loaded,
    NeedsAuth,
    Pause,
    PauseAnswered,
    PromptReceived,
    Renew,
    RunHeld,
    Shutdown,
    Started,
    StartFailed,
    TreeDead,
    Unclean,
)
from acp_bridge.machine.outcomes import Cancelled, Failed, Failure, Outcome, Replied
from acp_bridge.machine.states import Standstill, Timer

#: The order of effects at the end of a bad turn, and everywhere else.
ORDER = (Release, CloseCards, AnswerPrompt, Start, Open, SendPrompt)


@dataclass(eq=False)
class Asked:
    """A prompt without an answer."""

    key: int
    request: int
    committed: bool
    interrupt: bool = False
    victim: int | None = None
    cancelled: bool = False


@dataclass
class Reference:
    clear: bool
    always_reload: bool
    #: prompts in the order of reading; the running one is the first of them to have been sent.
    line: list[Asked] = field(default_factory=list)
    running: Asked | None = None
    carriers: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    sent_keys: set[int] = field(default_factory=set)
    sent_last: int = 0
    epoch: int = 0
    #: for the running turn: the cancel was sent; the agent answered; the agent's process ended.
    told = noted = died = False
    leaky = closing = gone = closed = False
    #: the user's word; the newest prompt when the pause was read; what the agent knows of it.
    paused = on_hold = False
    paused_at = pause_token = 0
    pause_told = pause_open = pause_refused = False
    #: epochs by what is known of them.
    started: set[int] = field(default_factory=set)
    initialized: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    opening: int | None = None
    loaded: set[int] = field(default_factory=set)
    doomed: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    #: epochs that may not get another prompt.
    unfit: set[int] = field(default_factory=set)

    # --- what happens ----------------------------------------------------------------------

    def before(self, event: Event) -> None:
        match event:
            case PromptReceived(key, interrupt) if not self.closing:
                victim = next(iter(self.order()), None) if interrupt else None
                asked = Asked(key, key, False, interrupt, victim.key if victim else None)
                self.line.append(asked)
            case RunHeld(carrier, keys) if not self.closing:
                self.held -= set(keys)
                self.carriers.add(carrier)
                self.line += [Asked(key, carrier, True) for key in keys]
            case Pause() if self.line and not self.closing:
                self.paused, self.paused_at = True, max(asked.key for asked in self.line)
                self.pause_refused = False
            case HoldQueue() if not self.closing:
                self.on_hold, self.paused = True, False
            case Go():
                self.on_hold = self.paused = False
            case PauseAnswered(epoch, token, paused):
                if self.pause_open and (epoch, token) == (self.epoch, self.pause_token):
                    self.pause_open, self.pause_refused = False, not paused
                    self.pause_told &= paused
            case Committed(key):
                self.commit(key)
            case Cancel():
                self.cancel()
            case CancelPrompt(key):
                self.cancel_one(key)
            case Renew():
                self.unfit |= self.loaded
            case Close():
                self.closing, self.paused, self.on_hold = True, False, False
                for asked in self.line:
                    asked.cancelled = True
            case Shutdown():
                self.closing = self.gone = True
                self.paused = self.on_hold = False
            case _:
                self.outside(event)

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
            case Unclean(epoch) if epoch in self.loaded and epoch not in self.doomed:
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

    def order(self) -> list[Asked]:
        """Return the prompt that runs, then those that wait in the order of reading."""
        return sorted(self.line, key=lambda asked: asked is not self.running)

    def next(self) -> list[Asked]:
        """Return those that wait, in the order in which they must run."""
        waiting = [asked for asked in self.line if asked is not self.running]
        urgent = [asked for asked in waiting[::-1] if asked.interrupt]
        return urgent + [asked for asked in waiting if not asked.interrupt]

    def commit(self, key: int) -> None:
        asked = next((a for a in self.next() if a.key == key and not a.committed), None)
        if asked:
            asked.committed = True
            if asked.victim is not None:
                self.paused &= asked.key <= self.paused_at
            for other in self.line:
                if other.key == asked.victim and not (other is self.running and self.died):
                    other.cancelled = True

    def cancel(self) -> None:
        if self.closing or not self.line:
            return
        self.paused = False
        oldest = self.order()[0]
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
        assert not (self.closed and not all(isinstance(e, AnswerPrompt | Dropped) for e in effects))
        if isinstance(event, TreeDead) and event.epoch in self.doomed:
            assert (effects == [Dropped(event)]) == (event.epoch in self.released)
        for effect in effects:
            self.judge(event, effect)
        self.paused &= bool(self.line)
        if self.running is None or self.told or self.died:
            self.pause_told = self.pause_open = False
        for asked in self.next():
            assert not asked.cancelled, f"{asked} was cancelled and still waits"
        if self.running and self.running.cancelled:
            assert self.told or self.died, "the agent was not told"

    def judge(self, event: Event, effect: Effect) -> None:
        match effect:
            case Commit(key):
                assert isinstance(event, PromptReceived)
                assert event.key == key
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
                assert not isinstance(event, PromptReceived | RunHeld), "nobody answers it"
            case Hold(keys):
                self.hold(event, keys)
            case Interrupted(key):
                assert isinstance(event, Shutdown)
                assert self.running is not None
                assert self.running.key == key
                assert not self.running.cancelled
                self.leave(self.running)
            case _:
                self.process(event, effect)

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
        assert not self.closing
        self.running = self.next()[0]
        assert self.running.key == effect.key, "not in order"
        assert self.running.committed
        assert not self.running.cancelled
        assert effect.key not in self.sent_keys, "sent twice"
        assert effect.epoch in self.loaded - self.unfit - self.doomed
        self.told = self.noted = self.died = False
        self.sent_keys.add(effect.key)
        self.sent_last, self.epoch = effect.key, effect.epoch

    def process(self, event: Event, effect: Effect) -> None:
        match effect:
            case Start(epoch):
                assert epoch not in self.started
                self.started.add(epoch)
            case Open(epoch):
                assert epoch in self.initialized - self.doomed
                assert self.opened - self.dead <= {epoch}, "another process has the session"
                self.opened.add(epoch)
                self.opening = epoch
            case Kill(epoch) | CloseAgent(epoch):
                assert epoch in self.started
                assert not isinstance(effect, CloseAgent) or self.closing
                self.doomed.add(epoch)
            case Release(epoch):
                assert epoch in self.dead or (self.closing and late(event, Timer.KILL))
                assert epoch not in self.released
                self.released.add(epoch)
            case Closed():
                assert self.closing
                assert not self.line
                assert self.doomed <= self.dead or late(event, Timer.KILL)
                assert self.released == self.started
                self.closed = True

    def answer(self, event: Event, effect: AnswerPrompt) -> None:
        key, outcome = effect.key, effect.outcome
        assert key not in self.answered, "a second answer"
        self.answered.add(key)
        if outcome == Failed(Failure.CLOSED):
            assert self.closing
            assert isinstance(event, PromptReceived | RunHeld)
        elif key in self.carriers:
            assert all(asked.request != key for asked in self.line), "its prompts are not done"
            assert not isinstance(outcome, Replied)
            self.carriers.remove(key)
        else:
            asked = next(asked for asked in self.line if asked.key == key)
            if asked is self.running:
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
            clean = self.noted and (self.closing or self.epoch not in self.unfit)
            assert ended or clean, "work goes on"
        elif self.died:
            assert isinstance(outcome, Failed)
            assert outcome.why is Failure.AGENT_DIED
            assert ended
        else:
            assert isinstance(outcome, Replied)
            assert event == AgentAnswered(self.epoch, asked.key, outcome.answer)

    def answer_waiting(self, event: Event, asked: Asked, outcome: Outcome) -> None:
        assert isinstance(outcome, Failed)
        if isinstance(event, CommitFailed):
            assert (asked.key, asked.committed) == (event.key, False)
            assert outcome.why is Failure.JOURNAL
        elif isinstance(event, NeedsAuth):
            assert outcome.why is Failure.NEEDS_AUTH
        else:
            assert outcome.why is Failure.NO_AGENT

    def hold(self, event: Event, keys: tuple[int, ...]) -> None:
        for key in keys:
            asked = next(asked for asked in self.next() if asked.key == key)
            assert self.gone or asked.request != key, "only a held prompt is held again"
            self.leave(asked)
            self.held.add(key)

    def leave(self, asked: Asked) -> None:
        self.line.remove(asked)
        if asked is self.running:
            self.running = None


def late(event: Event, timer: Timer) -> bool:
    return isinstance(event, Deadline) and event.timer is timer
