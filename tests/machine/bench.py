"""One machine on a bench: events go in by hand, the timers are kept aside."""

from __future__ import annotations

from acp_bridge import signals as sig
from acp_bridge.turns import Turns


class Bench:
    """A machine and its armed timers. `do` returns all effects but those of the timers."""

    def __init__(
        self, *, epoch: int = 1, clear_on_cancel: bool = False, always_reload: bool = False
    ) -> None:
        self.turns = Turns(
            epoch=epoch, clear_on_cancel=clear_on_cancel, always_reload=always_reload
        )
        self.armed: dict[sig.Timer, int] = {}

    @property
    def state(self) -> str:
        return self.turns.state.name

    def do(self, *events: sig.Event) -> list[sig.Effect]:
        shown: list[sig.Effect] = []
        for event in events:
            for effect in self.turns.step(event):
                match effect:
                    case sig.Arm(timer, token):
                        self.armed[timer] = token
                    case sig.Disarm(timer):
                        del self.armed[timer]
                    case _:
                        shown.append(effect)
        return shown

    def prompt(self, *keys: int, interrupt: bool = False) -> list[sig.Effect]:
        """Prompts are read and written down; what follows, without the writing."""
        events: list[sig.Event] = []
        for key in keys:
            events += [sig.PromptReceived(key, interrupt), sig.Committed(key)]
        return [effect for effect in self.do(*events) if not isinstance(effect, sig.Commit)]

    def fire(self, timer: sig.Timer) -> list[sig.Effect]:
        """An armed deadline passes."""
        return self.do(sig.Deadline(timer, self.armed.pop(timer)))

    def answer(self, answer: object = "end_turn") -> list[sig.Effect]:
        """The agent answers the turn that runs."""
        return self.do(sig.AgentAnswered(self.turns.epoch, self.turns.turn, answer))

    def dead(self) -> list[sig.Effect]:
        """The tree of the process that has the session is dead."""
        return self.do(sig.TreeDead(self.turns.epoch))

    def ready(self) -> list[sig.Effect]:
        """The process that was started takes the session."""
        return self.do(sig.Started(self.turns.epoch), sig.Loaded(self.turns.epoch))


def cancelled(key: int) -> sig.Answer:
    return sig.Answer(key, sig.Cancelled())


def replied(key: int, answer: object = "end_turn") -> sig.Answer:
    return sig.Answer(key, sig.Replied(answer))


def failed(key: int, why: sig.Failure, detail: object = None) -> sig.Answer:
    return sig.Answer(key, sig.Failed(why, detail))
