"""A bench for one machine: a test feeds events by hand, and the timers are kept aside."""

from __future__ import annotations

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    Arm,
    Cancelled,
    Commit,
    Disarm,
    Dropped,
    Effect,
    Failed,
    Failure,
    Replied,
    SendPrompt,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    Committed,
    Deadline,
    Event,
    HooksDone,
    Loaded,
    Moment,
    PromptReceived,
    Started,
    Timer,
    TreeDead,
)
from acp_bridge.core.machine.states import Snapshot
from acp_bridge.core.machine.turns import TurnMachine


class Bench:
    """Holds a machine, its armed timers and what it dropped; `do` returns the other effects."""

    def __init__(
        self,
        *,
        epoch: int = 1,
        clear_on_cancel: bool = False,
        always_reload: bool = False,
        hooks: frozenset[Moment] = frozenset(),
        steers: bool = False,
    ) -> None:
        self.turns = TurnMachine(
            epoch=epoch,
            clear_on_cancel=clear_on_cancel,
            always_reload=always_reload,
            hooks=hooks,
            steers=steers,
        )
        self.armed: dict[Timer, int] = {}
        self.dropped: list[Event] = []
        #: the key of the prompt that was sent last.
        self.sent = 0

    @property
    def now(self) -> Snapshot:
        return self.turns.snapshot

    @property
    def state(self) -> str:
        return self.now.state.name

    def do(self, *events: Event) -> list[Effect]:
        shown: list[Effect] = []
        for event in events:
            for effect in self.turns.step(event):
                match effect:
                    case Arm(timer, token):
                        self.armed[timer] = token
                    case Disarm(timer):
                        del self.armed[timer]
                    case Dropped(what):
                        self.dropped.append(what)
                    case SendPrompt(_, key):
                        self.sent = key
                        shown.append(effect)
                    case _:
                        shown.append(effect)
        return shown

    def prompt(self, *keys: int, interrupt: bool = False) -> list[Effect]:
        """Let prompts be read and written down; return what follows, without the writing."""
        events: list[Event] = []
        for key in keys:
            events += [PromptReceived(key, interrupt), Committed(key)]
        return [effect for effect in self.do(*events) if not isinstance(effect, Commit)]

    def hooks(
        self, key: int, *, refusal: object = None, feedback: int | None = None
    ) -> list[Effect]:
        """Let the hooks about a prompt end."""
        return self.do(HooksDone(key, refusal, feedback))

    def fire(self, timer: Timer) -> list[Effect]:
        """Let an armed deadline pass."""
        return self.do(Deadline(timer, self.armed.pop(timer)))

    def answer(self, answer: object = "end_turn") -> list[Effect]:
        """Let the agent answer the prompt that was sent last."""
        return self.do(AgentAnswered(self.now.epoch, self.sent, answer))

    def dead(self) -> list[Effect]:
        """Let the tree of the process that has the session be dead."""
        return self.do(TreeDead(self.now.epoch))

    def ready(self) -> list[Effect]:
        """Let the process that was started take the session."""
        return self.do(Started(self.now.epoch), Loaded(self.now.epoch))


def cancelled(key: int) -> AnswerPrompt:
    return AnswerPrompt(key, Cancelled())


def replied(key: int, answer: object = "end_turn") -> AnswerPrompt:
    return AnswerPrompt(key, Replied(answer))


def failed(key: int, why: Failure, detail: object = None) -> AnswerPrompt:
    return AnswerPrompt(key, Failed(why, detail))
