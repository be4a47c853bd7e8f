"""What a session must do, said without a machine: a list of prompts and a few flags.

`before(event)` takes what happens, `after(event, effects)` judges what the machine asked for.
Knows events and effects, and nothing else of what it judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from acp_bridge import signals as sig

#: At the end of a bad turn, and everywhere else: what comes later has a higher rank.
ORDER = (sig.Release, sig.CloseCards, sig.Answer, sig.Start, sig.Open, sig.SendPrompt)


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
    turn: int = 0
    epoch: int = 0
    #: of the running turn: the cancel was sent; the agent answered; the agent's process ended.
    told = noted = died = False
    leaky = closing = gone = closed = False
    #: epochs by what is known of them.
    started: set[int] = field(default_factory=set)
    initialized: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    opening: int | None = None
    loaded: set[int] = field(default_factory=set)
    doomed: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    #: may not get another prompt.
    unfit: set[int] = field(default_factory=set)

    # --- what happens ----------------------------------------------------------------------

    def before(self, event: sig.Event) -> None:
        match event:
            case sig.PromptReceived(key, interrupt) if not self.closing:
                victim = next(iter(self.order()), None) if interrupt else None
                asked = Asked(key, key, False, interrupt, victim.key if victim else None)
                self.line.append(asked)
            case sig.RunHeld(carrier, keys) if not self.closing:
                self.held -= set(keys)
                self.carriers.add(carrier)
                self.line += [Asked(key, carrier, True) for key in keys]
            case sig.Committed(key):
                self.commit(key)
            case sig.Cancel():
                self.cancel()
            case sig.CancelPrompt(key):
                self.cancel_one(key)
            case sig.Renew():
                self.unfit |= self.loaded
            case sig.Close():
                self.closing = True
                for asked in self.line:
                    asked.cancelled = True
            case sig.ClientGone():
                self.closing = self.gone = True
            case _:
                self.outside(event)

    def outside(self, event: sig.Event) -> None:
        """What the processes do: only the truth about them is kept."""
        match event:
            case sig.Started(epoch) if epoch in self.started:
                self.initialized.add(epoch)
            case sig.Loaded(epoch) if epoch == self.opening:
                self.loaded.add(epoch)
            case sig.NeedsAuth(epoch) if epoch == self.opening:
                self.opening = None
            case sig.AgentExited(epoch) if epoch in self.started:
                self.unfit.add(epoch)
                self.died |= epoch == self.epoch
            case sig.TreeDead(epoch) if epoch in self.started:
                self.dead.add(epoch)
            case sig.StartFailed(epoch) if epoch in self.started - self.opened | self.doomed:
                self.dead.add(epoch)
            case sig.Unclean(epoch) if epoch in self.loaded and epoch not in self.doomed:
                self.leaky = True
                self.unfit.add(epoch)

    def order(self) -> list[Asked]:
        """The oldest first: the one that runs, then those that wait in the order of reading."""
        return sorted(self.line, key=lambda asked: asked is not self.running)

    def next(self) -> list[Asked]:
        """Those that wait, in the order in which they must run."""
        waiting = [asked for asked in self.line if asked is not self.running]
        urgent = [asked for asked in waiting[::-1] if asked.interrupt]
        return urgent + [asked for asked in waiting if not asked.interrupt]

    def commit(self, key: int) -> None:
        asked = next((a for a in self.next() if a.key == key and not a.committed), None)
        if asked:
            asked.committed = True
            for other in self.line:
                if other.key == asked.victim and not (other is self.running and self.died):
                    other.cancelled = True

    def cancel(self) -> None:
        if self.closing or not self.line:
            return
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

    def after(self, event: sig.Event, effects: list[sig.Effect]) -> None:
        ranks = [ORDER.index(type(effect)) for effect in effects if type(effect) in ORDER]
        assert ranks == sorted(ranks), f"out of order: {effects}"
        assert not (self.closed and not all(isinstance(e, sig.Answer) for e in effects))
        for effect in effects:
            self.judge(event, effect)
        for asked in self.next():
            assert not asked.cancelled, f"{asked} was cancelled and still waits"
        if self.running and self.running.cancelled:
            assert self.told or self.died, "the agent was not told"

    def judge(self, event: sig.Event, effect: sig.Effect) -> None:
        match effect:
            case sig.Commit(key):
                assert isinstance(event, sig.PromptReceived)
                assert event.key == key
            case sig.SendPrompt():
                self.sent(effect)
            case sig.SendCancel(epoch, turn):
                assert self.running is not None
                assert self.running.cancelled
                assert not self.told, "a second cancel"
                assert (epoch, turn) == (self.epoch, self.turn)
                self.told = True
                if self.leaky or self.always_reload:
                    self.unfit.add(epoch)
            case sig.Answer():
                self.answer(event, effect)
            case sig.NoteOutcome(key, answer):
                assert event == sig.AgentAnswered(self.epoch, self.turn, answer)
                assert self.running is not None
                assert self.running.key == key
                assert self.running.cancelled
                assert not self.noted, "a second outcome"
                self.noted = True
            case sig.Hold(keys):
                self.hold(event, keys)
            case sig.Interrupted(key):
                assert isinstance(event, sig.ClientGone)
                assert self.running is not None
                assert self.running.key == key
                assert not self.running.cancelled
                self.leave(self.running)
            case _:
                self.process(event, effect)

    def sent(self, effect: sig.SendPrompt) -> None:
        assert self.running is None, "two turns at once"
        assert not self.closing
        self.running = self.next()[0]
        assert self.running.key == effect.key, "not in order"
        assert self.running.committed
        assert not self.running.cancelled
        assert effect.turn == self.turn + 1
        assert effect.epoch in self.loaded - self.unfit - self.doomed
        self.told = self.noted = self.died = False
        self.turn, self.epoch = effect.turn, effect.epoch

    def process(self, event: sig.Event, effect: sig.Effect) -> None:
        match effect:
            case sig.Start(epoch):
                assert epoch not in self.started
                self.started.add(epoch)
            case sig.Open(epoch):
                assert epoch in self.initialized - self.doomed
                assert self.opened - self.dead <= {epoch}, "another process has the session"
                self.opened.add(epoch)
                self.opening = epoch
            case sig.Kill(epoch) | sig.CloseAgent(epoch):
                assert epoch in self.started
                assert not isinstance(effect, sig.CloseAgent) or self.closing
                self.doomed.add(epoch)
            case sig.Release(epoch):
                assert epoch in self.dead or (self.closing and late(event, sig.Timer.KILL))
                assert epoch not in self.released
                self.released.add(epoch)
            case sig.Closed():
                assert self.closing
                assert not self.line
                assert self.doomed <= self.dead or late(event, sig.Timer.KILL)
                assert self.released == self.started
                self.closed = True

    def answer(self, event: sig.Event, effect: sig.Answer) -> None:
        key, outcome = effect.key, effect.outcome
        assert key not in self.answered, "a second answer"
        self.answered.add(key)
        if outcome == sig.Failed(sig.Failure.CLOSED):
            assert self.closing
            assert isinstance(event, sig.PromptReceived | sig.RunHeld)
        elif key in self.carriers:
            assert all(asked.request != key for asked in self.line), "its prompts are not done"
            assert not isinstance(outcome, sig.Replied)
            self.carriers.remove(key)
        else:
            asked = next(asked for asked in self.line if asked.key == key)
            if asked is self.running:
                self.answer_running(event, asked, outcome)
            elif asked.cancelled:
                assert outcome == sig.Cancelled()
            else:
                self.answer_waiting(event, asked, outcome)
            self.leave(asked)

    def answer_running(self, event: sig.Event, asked: Asked, outcome: sig.Outcome) -> None:
        ended = self.epoch in self.dead or late(event, sig.Timer.KILL) or self.gone
        if asked.cancelled:
            assert outcome == sig.Cancelled()
            clean = self.noted and (self.closing or self.epoch not in self.unfit)
            assert ended or clean, "work goes on"
        elif self.died:
            assert isinstance(outcome, sig.Failed)
            assert outcome.why is sig.Failure.AGENT_DIED
            assert ended
        else:
            assert isinstance(outcome, sig.Replied)
            assert event == sig.AgentAnswered(self.epoch, self.turn, outcome.answer)

    def answer_waiting(self, event: sig.Event, asked: Asked, outcome: sig.Outcome) -> None:
        assert isinstance(outcome, sig.Failed)
        if isinstance(event, sig.CommitFailed):
            assert (asked.key, asked.committed) == (event.key, False)
            assert outcome.why is sig.Failure.JOURNAL
        elif isinstance(event, sig.NeedsAuth):
            assert outcome.why is sig.Failure.NEEDS_AUTH
        else:
            assert outcome.why is sig.Failure.NO_AGENT

    def hold(self, event: sig.Event, keys: tuple[int, ...]) -> None:
        for key in keys:
            asked = next(asked for asked in self.next() if asked.key == key)
            assert self.gone or asked.request != key, "only a held prompt is held again"
            self.leave(asked)
            self.held.add(key)

    def leave(self, asked: Asked) -> None:
        self.line.remove(asked)
        if asked is self.running:
            self.running = None


def late(event: sig.Event, timer: sig.Timer) -> bool:
    return isinstance(event, sig.Deadline) and event.timer is timer
