"""The prompts of one session that have no answer yet: the one that runs and those that wait.

- They wait in the order of reading; a superseder (`interrupt`) goes first, the newest before all.
- Every prompt leaves with exactly one `AnswerPrompt` (or, when the bridge ends, one `Hold` or
  `Interrupted`). (invariant Q9)
- A prompt that was held since a restart is *carried* by a `/queue run`, the carrier, whose
  request stays open meanwhile. If it may not run it is held again. The carrier is answered when
  none of its prompts is left. (invariant R12)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acp_bridge.machine.effects import AnswerPrompt, Effect, Hold, Interrupted
from acp_bridge.machine.outcomes import Done, Outcome, Replied


@dataclass(slots=True, eq=False)
class QueuedPrompt:
    """A prompt without an answer; not frozen, because it becomes `committed`."""

    key: int
    #: the key of the request that stays open for it: its own, or that of its carrier.
    request: int
    #: None, or for a superseder the key of the oldest prompt without an answer when it was read.
    victim: int | None = None
    interrupt: bool = False
    committed: bool = False
    #: the journal has the agent's own answer, though it is shown as cancelled.
    noted: bool = False

    @property
    def carried(self) -> bool:
        """A carrier runs the prompt; its key is `request`."""
        return self.request != self.key


class PromptQueue:
    """Keeps the waiting prompts and the running one; methods that end a prompt return effects."""

    def __init__(self) -> None:
        #: the prompt that the agent has, or had when it died.
        self.running: QueuedPrompt | None = None
        self._waiting: list[QueuedPrompt] = []

    @property
    def unanswered(self) -> list[QueuedPrompt]:
        """All prompts, the oldest first: `session/cancel` means that one. (invariant C20)"""
        return [self.running, *self._waiting] if self.running else self._waiting

    @property
    def waiting(self) -> list[QueuedPrompt]:
        """The prompts that wait, in the order in which they will run."""
        urgent = [prompt for prompt in reversed(self._waiting) if prompt.interrupt]
        return urgent + [prompt for prompt in self._waiting if not prompt.interrupt]

    def find(self, key: int) -> QueuedPrompt | None:
        """Return the waiting prompt with this key, or None."""
        return next((prompt for prompt in self._waiting if prompt.key == key), None)

    def receive(self, key: int, interrupt: bool) -> None:
        """Append a prompt without a commit yet; raises ValueError if the key is here already."""
        self._refuse_again(key)
        victim = self.unanswered[0].key if interrupt and self.unanswered else None
        self._waiting.append(QueuedPrompt(key, key, victim, interrupt))

    def receive_held(self, carrier: int, keys: tuple[int, ...]) -> list[Effect]:
        """Append held prompts, committed long ago; raises ValueError if a key is here already."""
        self._refuse_again(carrier, *keys)
        self._waiting += [QueuedPrompt(key, carrier, committed=True) for key in keys]
        return self._settle(carrier, Done())

    def take_next(self) -> QueuedPrompt:
        """Make the next prompt the running one and return it."""
        self.running = self.waiting[0]
        self._waiting.remove(self.running)
        return self.running

    def finish(self, outcome: Outcome) -> list[Effect]:
        """Answer the running prompt, if there is one."""
        prompt, self.running = self.running, None
        if prompt is None:
            return []
        out: list[Effect] = [AnswerPrompt(prompt.key, outcome)]
        if prompt.carried:
            out += self._settle(prompt.request, Done() if isinstance(outcome, Replied) else outcome)
        return out

    def drop(
        self, outcome: Outcome, which: Callable[[QueuedPrompt], bool] = lambda prompt: True
    ) -> list[Effect]:
        """Answer the waiting prompts that `which` chooses; carried ones are held again."""
        gone = [prompt for prompt in self._waiting if which(prompt)]
        self._waiting = [prompt for prompt in self._waiting if prompt not in gone]
        out: list[Effect] = [
            AnswerPrompt(prompt.key, outcome) for prompt in gone if not prompt.carried
        ]
        if held := tuple(prompt.key for prompt in gone if prompt.carried):
            out.append(Hold(held))
        for carrier in dict.fromkeys(prompt.request for prompt in gone if prompt.carried):
            out += self._settle(carrier, outcome)
        return out

    def interrupt(self) -> list[Effect]:
        """Give up the running prompt because the bridge ends: nobody can be told. (invariant Q6)"""
        prompt, self.running = self.running, None
        return [Interrupted(prompt.key)] if prompt else []

    def hold(self) -> list[Effect]:
        """Hold all that wait for the user's word, because the bridge ends."""
        keys = tuple(prompt.key for prompt in self.waiting)
        self._waiting = []
        return [Hold(keys)] if keys else []

    def _settle(self, carrier: int, outcome: Outcome) -> list[Effect]:
        if any(prompt.request == carrier for prompt in self.unanswered):
            return []
        return [AnswerPrompt(carrier, outcome)]

    def _refuse_again(self, *keys: int) -> None:
        if any(prompt.key in keys or prompt.request in keys for prompt in self.unanswered):
            raise ValueError(f"received twice, one of {keys}")
