"""The prompts of the reference, and what must hold of the hooks about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from acp_bridge.core.machine.effects import (
    Effect,
    EndTurn,
    RefuseChange,
    RefuseFeedback,
    RunHooks,
    StopHooks,
    TellDeath,
    WriteChange,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentExited,
    ChangeLeftOver,
    ChangeWritten,
    DropWaiting,
    EditWaiting,
    Event,
    HookBegan,
    HookEnded,
    HooksDone,
    Moment,
    MoveWaiting,
    Taken,
)


@dataclass(eq=False)
class Asked:
    """A prompt without an answer."""

    key: int
    request: int
    committed: bool
    interrupt: bool = False
    victim: int | None = None
    cancelled: bool = False
    #: its hooks before it is sent have let it pass.
    checked: bool = True
    #: hooks run about it.
    hooked: bool = False
    #: it failed while its hooks ran.
    doomed: bool = False
    #: it waited as the session was closed for all.
    kept: bool = False
    #: it waited as the journal was lost.
    lost: bool = False
    #: the user wants it never to run.
    dropped: bool = False
    #: how the agent ended its turn.
    replied: object = None
    #: the prompt of the user's that it follows, and how many lead there.
    root: int = 0
    again: int = 0

    def __post_init__(self) -> None:
        self.root = self.root or self.key


@dataclass(kw_only=True)
class Line:
    """The prompts without an answer, and the hooks that run."""

    hooks: frozenset[Moment] = frozenset()
    #: hooks of which the machine was only told.
    asides: set[int] = field(default_factory=set)
    #: prompts in the order of reading; the running one is the first of them to have been sent.
    line: list[Asked] = field(default_factory=list)
    running: Asked | None = None
    #: the prompt whose turn is over and whose hooks run.
    leaving: Asked | None = None
    carriers: set[int] = field(default_factory=set)
    #: the change that the journal takes just now.
    change: WriteChange | None = None
    doomed: set[int] = field(default_factory=set)
    epoch: int = 0
    closing: bool = False

    def order(self) -> list[Asked]:
        """Return the prompt that runs, then those that wait in the user's order."""
        return sorted(self.line, key=lambda asked: asked not in (self.running, self.leaving))

    def foremost(self) -> Asked:
        """Return the prompt that runs, else the one that runs next."""
        return next(iter([*filter(None, [self.running or self.leaving]), *self.next()]))

    @property
    def hooked(self) -> Asked | None:
        return next((asked for asked in self.line if asked.hooked), None)

    def next(self) -> list[Asked]:
        """Return those that wait, in the order in which they must run."""
        gone = (self.running, self.leaving)
        waiting = [asked for asked in self.line if asked not in gone]
        urgent = [asked for asked in waiting[::-1] if asked.interrupt]
        return urgent + [asked for asked in waiting if not asked.interrupt]

    def movable(self) -> list[int]:
        """Return the keys of those that the user may move, as they run."""
        fixed = [asked for asked in self.line if asked.interrupt or asked.again or asked.hooked]
        return [asked.key for asked in self.next() if asked not in fixed]

    def read(self, key: int, interrupt: bool) -> None:
        """Note a prompt that was read."""
        victim = next(iter(self.order()), None) if interrupt else None
        asked = Asked(key, key, False, interrupt, victim.root if victim else None)
        asked.checked = Moment.PROMPT not in self.hooks
        self.line.append(asked)

    def note_change(self, event: DropWaiting | ChangeWritten) -> None:
        """Note that the user drops a prompt, or what the journal says of a change."""
        if isinstance(event, ChangeWritten):
            self.written(event.made)
        elif not self.closing:
            for asked in self.next():
                asked.dropped |= asked.key == event.key
                asked.cancelled |= asked.key == event.key

    def change_asked(self, event: Event, effect: Effect) -> None:
        """Judge what the machine makes of the user's change; other effects are nothing here."""
        if isinstance(effect, WriteChange):
            self.write(event, effect)
        elif isinstance(effect, RefuseChange):
            self.refused(event)

    def refused(self, event: Event) -> None:
        """Judge that the user's change is not made."""
        assert isinstance(event, EditWaiting | MoveWaiting | DropWaiting | ChangeLeftOver)
        key = event.key
        waiting = {asked.key: asked for asked in self.next()}
        asked = None if self.closing else waiting.get(key)
        match event:
            case DropWaiting():
                assert asked is None
            case MoveWaiting(_, before):
                free = self.movable() if asked and not self.change else []
                assert key not in free or before not in {None, *free} - {key}
            case ChangeLeftOver():
                assert self.closing or self.change
            case _:
                assert isinstance(event, EditWaiting)
                assert not asked or asked.again or asked.hooked or self.change

    def write(self, event: Event, effect: WriteChange) -> None:
        """Judge what the journal is to write for the user's change."""
        assert not self.change, "two at once"
        key, self.change = effect.key, effect
        if isinstance(event, MoveWaiting):
            rest = [each for each in self.movable() if each != key]
            at = len(rest) if event.before is None else rest.index(event.before)
            assert effect.order == (*rest[:at], key, *rest[at:])
        else:
            assert event in (EditWaiting(key), ChangeLeftOver(key))
            if isinstance(event, EditWaiting):
                assert key in [asked.key for asked in self.next() if not asked.again]
            assert not effect.order

    def written(self, made: bool) -> None:
        """Note the change that the journal has, or could not take."""
        change, self.change = self.change, None
        waiting = {asked.key: asked for asked in self.next()}
        if not change or not made or change.key not in waiting:
            return
        if not change.order:
            waiting[change.key].checked = Moment.PROMPT not in self.hooks
            return
        free = self.movable()
        keys = [key for key in change.order if key in free]
        places = [n for n, asked in enumerate(self.line) if asked.key in keys]
        for n, key in zip(places, keys, strict=True):
            self.line[n] = waiting[key]

    def note_hooks(self, event: HooksDone | HookBegan | HookEnded) -> None:
        match event:
            case HookBegan(run):
                self.asides.add(run)
            case HookEnded(run):
                self.asides.discard(run)
            case HooksDone(key) if self.hooked and self.hooked.key == key:
                self.hooked.checked = True
                self.hooked.hooked = False

    def hook(self, event: Event, effect: Effect) -> None:
        match effect:
            case EndTurn(key, answer):
                assert self.running is not None
                assert event == AgentAnswered(self.epoch, key, answer)
                assert self.running.key == key
                assert not self.running.cancelled
                self.leaving, self.running = self.running, None
                self.leaving.replied = answer
            case RunHooks(key, Moment.TURN_END, again):
                assert self.leaving is not None
                assert (self.leaving.key, self.leaving.again) == (key, again)
                assert self.hooked is None, "two at once"
                self.leaving.hooked = True
            case RunHooks(key, moment):
                assert moment is Moment.PROMPT
                asked = self.next()[0]
                assert (asked.key, asked.again) == (key, 0)
                assert asked.committed
                assert not any([asked.cancelled, asked.checked, self.closing])
                assert not any([self.hooked, self.running, self.leaving, self.change])
                asked.hooked = True
                self.line.remove(asked)
                self.line.insert(0, asked)
            case StopHooks():
                assert self.hooked or self.asides or isinstance(event, Taken)
                if self.hooked and not self.hooked.cancelled:
                    self.hooked.doomed = True
            case RefuseFeedback(key, enough):
                assert isinstance(event, HooksDone)
                assert event.feedback == key
                assert self.leaving is not None
                assert enough == (self.leaving.again == 5 and not self.leaving.cancelled)
                assert enough or self.leaving.cancelled
            case TellDeath():
                assert isinstance(event, AgentExited)
                assert event.epoch not in self.doomed

    def follow(self, event: HooksDone, key: int) -> None:
        """Note that feedback follows the turn that is over."""
        before = self.leaving
        assert before is not None
        assert event.feedback == key
        assert event.key == before.key
        assert not before.cancelled
        feedback = Asked(key, before.request, False, root=before.root, again=before.again + 1)
        feedback.replied = before.replied
        assert feedback.again <= 5
        self.line.remove(before)
        self.leaving = None
        self.line.insert(0, feedback)
        if before.request == before.key:
            self.carriers.add(before.key)

    def told_before(self, key: int) -> bool:
        """Return True for a carried prompt whose turn is over and which feedback follows."""
        leaving = self.leaving
        follows = leaving is not None and leaving.again < 5 and not leaving.cancelled
        return follows and leaving is not None and leaving.key == key != leaving.request
