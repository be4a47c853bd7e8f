"""The prompts of the reference, and what must hold of the hooks about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from acp_bridge.machine.effects import (
    Effect,
    EndTurn,
    RefuseFeedback,
    RunHooks,
    StopHooks,
    TellDeath,
)
from acp_bridge.machine.events import (
    AgentAnswered,
    AgentExited,
    Event,
    HookBegan,
    HookEnded,
    HooksDone,
    Moment,
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
    doomed: set[int] = field(default_factory=set)
    epoch: int = 0
    closing: bool = False

    def order(self) -> list[Asked]:
        """Return the prompt that runs, then those that wait in the order of reading."""
        return sorted(self.line, key=lambda asked: asked not in (self.running, self.leaving))

    @property
    def hooked(self) -> Asked | None:
        return next((asked for asked in self.line if asked.hooked), None)

    def next(self) -> list[Asked]:
        """Return those that wait, in the order in which they must run."""
        gone = (self.running, self.leaving)
        waiting = [asked for asked in self.line if asked not in gone]
        urgent = [asked for asked in waiting[::-1] if asked.interrupt]
        return urgent + [asked for asked in waiting if not asked.interrupt]

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
                assert not any([self.hooked, self.running, self.leaving])
                asked.hooked = True
                self.line.remove(asked)
                self.line.insert(0, asked)
            case StopHooks():
                assert self.hooked or self.asides
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
