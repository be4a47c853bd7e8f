"""The prompts of one session that have no answer yet: the one that runs and those that wait.

- They wait in the order of reading; a superseder (`interrupt`) goes first, the newest before all.
- Every prompt leaves with exactly one `Answer` (or, when the bridge ends, one `Hold` or
  `Interrupted`). (HAZARDS Q9)
- A held prompt runs for its *carrier*, the `/queue run` whose request stays open meanwhile. If it
  may not run it is held again; the carrier is answered when none of its prompts is left. (R12)

Part of the turn machine (`turns.py`), and like it without `await`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acp_bridge.signals import Answer, Done, Effect, Hold, Interrupted, Outcome, Replied


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt without an answer; not frozen, because it becomes `committed`."""

    key: int
    #: the key of the request that waits for it: its own, or that of its carrier.
    request: int
    #: None, or for a superseder the key of the oldest prompt without an answer when it was read.
    victim: int | None = None
    interrupt: bool = False
    committed: bool = False
    #: the journal has the agent's own answer, though it is shown as cancelled.
    noted: bool = False

    @property
    def held(self) -> bool:
        """True if a carrier runs it."""
        return self.request != self.key


class PromptQueue:
    """A FIFO queue and the prompt taken from it; what ends a prompt returns the effects."""

    def __init__(self) -> None:
        #: the prompt that the agent has, or had when it died.
        self.running: Prompt | None = None
        self._waiting: list[Prompt] = []

    @property
    def unanswered(self) -> list[Prompt]:
        """All of them, the oldest first: that one is what `session/cancel` means. (HAZARDS C20)"""
        return [self.running, *self._waiting] if self.running else self._waiting

    @property
    def waiting(self) -> list[Prompt]:
        """What waits, in the order in which it will run."""
        urgent = [prompt for prompt in reversed(self._waiting) if prompt.interrupt]
        return urgent + [prompt for prompt in self._waiting if not prompt.interrupt]

    def find(self, key: int) -> Prompt | None:
        """The waiting prompt with this key."""
        return next((prompt for prompt in self._waiting if prompt.key == key), None)

    def receive(self, key: int, interrupt: bool) -> None:
        """Append a prompt that is not yet committed; `ValueError` if the key is here already."""
        self._refuse_again(key)
        victim = self.unanswered[0].key if interrupt and self.unanswered else None
        self._waiting.append(Prompt(key, key, victim, interrupt))

    def receive_held(self, carrier: int, keys: tuple[int, ...]) -> list[Effect]:
        """Append held prompts, committed long ago; `ValueError` if a key is here already."""
        self._refuse_again(carrier, *keys)
        self._waiting += [Prompt(key, carrier, committed=True) for key in keys]
        return self._settle(carrier, Done())

    def take_next(self) -> Prompt:
        """Let the next prompt run."""
        self.running = self.waiting[0]
        self._waiting.remove(self.running)
        return self.running

    def finish(self, outcome: Outcome) -> list[Effect]:
        """Answer the running prompt, if there is one."""
        prompt, self.running = self.running, None
        if prompt is None:
            return []
        out: list[Effect] = [Answer(prompt.key, outcome)]
        if prompt.held:
            out += self._settle(prompt.request, Done() if isinstance(outcome, Replied) else outcome)
        return out

    def drop(
        self, outcome: Outcome, which: Callable[[Prompt], bool] = lambda prompt: True
    ) -> list[Effect]:
        """Answer the waiting prompts that `which` chooses; held ones are held again."""
        gone = [prompt for prompt in self._waiting if which(prompt)]
        self._waiting = [prompt for prompt in self._waiting if prompt not in gone]
        out: list[Effect] = [Answer(prompt.key, outcome) for prompt in gone if not prompt.held]
        if held := tuple(prompt.key for prompt in gone if prompt.held):
            out.append(Hold(held))
        for carrier in dict.fromkeys(prompt.request for prompt in gone if prompt.held):
            out += self._settle(carrier, outcome)
        return out

    def interrupt(self) -> list[Effect]:
        """The bridge ends while the prompt runs: nobody can be told. (HAZARDS Q6)"""
        prompt, self.running = self.running, None
        return [Interrupted(prompt.key)] if prompt else []

    def hold(self) -> list[Effect]:
        """The bridge ends: what waits is kept for the user's word."""
        keys = tuple(prompt.key for prompt in self.waiting)
        self._waiting = []
        return [Hold(keys)] if keys else []

    def _settle(self, carrier: int, outcome: Outcome) -> list[Effect]:
        if any(prompt.request == carrier for prompt in self.unanswered):
            return []
        return [Answer(carrier, outcome)]

    def _refuse_again(self, *keys: int) -> None:
        if any(prompt.key in keys or prompt.request in keys for prompt in self.unanswered):
            raise ValueError(f"received twice, one of {keys}")
