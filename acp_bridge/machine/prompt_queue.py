"""The prompts of one session that have no answer yet: the one that runs and those that wait.

- They wait in the order of reading; a superseder (`interrupt`) goes first, the newest before all.
- Every prompt leaves with exactly one `AnswerPrompt` (or, when the bridge ends, one `Hold` or
  `Interrupted`). (invariant Q9)
- A prompt that was held since a restart is *carried* by a `/queue run`, the carrier, whose
  request stays open meanwhile. If it may not run it is held again. The carrier is answered when
  none of its prompts is left. (invariant R12)
- A hook's feedback is a prompt of its own, ahead of all but superseders, carried by the prompt at
  whose end the hook ran, or by that one's carrier. (invariant Q11)
- While hooks run about a prompt it is answered only when they have ended. (invariant C10)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from acp_bridge.machine.effects import (
    AnswerPrompt,
    Commit,
    Effect,
    EndTurn,
    Hold,
    Interrupted,
    RunHooks,
    StopHooks,
)
from acp_bridge.machine.outcomes import Cancelled, Done, Failed, Failure, Outcome, Refused, Replied
from acp_bridge.machine.states import Moment

#: the journal's failures: the agent has nothing of the prompt.
_UNWRITTEN = (Failure.JOURNAL, Failure.NOT_BEGUN)


class Hooks(Enum):
    """How far the hooks about a prompt are."""

    #: they run before it is sent.
    DUE = auto()
    #: they run now.
    RUNNING = auto()
    #: none is to run at this stage, or all have.
    PASSED = auto()


@dataclass(slots=True, eq=False)
class QueuedPrompt:
    """A prompt without an answer; not frozen, because it becomes `committed`."""

    key: int
    #: the key of the request that stays open for it: its own, or that of its carrier.
    request: int
    #: None, or for a superseder the `root` of the oldest prompt without an answer when it was read.
    victim: int | None = None
    interrupt: bool = False
    committed: bool = False
    #: the journal has the agent's own answer, though it is shown as cancelled.
    noted: bool = False
    hooks: Hooks = Hooks.PASSED
    #: the answer when its hooks have ended, if that is decided.
    ending: Outcome | None = None
    #: how the agent ended the turn: that of the prompt itself, or the one that feedback is about.
    replied: Outcome | None = None
    #: how many prompts of feedback lead to this one, which is the last of them; 0: it is none.
    again: int = 0
    #: for feedback, the key of the prompt with which it all began.
    origin: int | None = None

    @property
    def root(self) -> int:
        """The key of the prompt that this one is, or was at first."""
        return self.key if self.origin is None else self.origin

    @property
    def carried(self) -> bool:
        """A carrier runs the prompt; its key is `request`."""
        return self.request != self.key

    def settles_as(self, outcome: Outcome) -> Outcome:
        """Return what the request that stays open is answered if the prompt ends like this."""
        unwritten = isinstance(outcome, Failed) and outcome.why in _UNWRITTEN
        if self.again and unwritten:
            outcome = self.replied or outcome  # the agent's turn is over, and nothing follows it
        if self.request != self.root and isinstance(outcome, Replied | Refused):
            return Done()
        return outcome


class PromptQueue:
    """Keeps the waiting prompts and the running one; methods that end a prompt return effects."""

    def __init__(self) -> None:
        #: the prompt that the agent has, or had when it died.
        self.running: QueuedPrompt | None = None
        #: the prompt whose turn is over and whose hooks run.
        self.leaving: QueuedPrompt | None = None
        self._waiting: list[QueuedPrompt] = []

    @property
    def running_key(self) -> int | None:
        """The key of the running prompt, or None."""
        return self.running.key if self.running else None

    @property
    def unanswered(self) -> list[QueuedPrompt]:
        """All prompts, the oldest first: `session/cancel` means that one. (invariant C20)"""
        current = self.running or self.leaving
        return [current, *self._waiting] if current else self._waiting

    @property
    def waiting(self) -> list[QueuedPrompt]:
        """The prompts that wait, in the order in which they will run."""
        urgent = [prompt for prompt in reversed(self._waiting) if prompt.interrupt]
        return urgent + [prompt for prompt in self._waiting if not prompt.interrupt]

    @property
    def hooked(self) -> QueuedPrompt | None:
        """The prompt about which hooks run; there is one at most."""
        return next((p for p in self.unanswered if p.hooks is Hooks.RUNNING), None)

    def find(self, key: int) -> QueuedPrompt | None:
        """Return the waiting prompt with this key, or None."""
        return next((prompt for prompt in self._waiting if prompt.key == key), None)

    def receive(self, key: int, interrupt: bool, hooks: Hooks = Hooks.PASSED) -> None:
        """Append a prompt without a commit yet; raises ValueError if the key is here already."""
        self._refuse_again(key)
        victim = self.unanswered[0].root if interrupt and self.unanswered else None
        self._waiting.append(QueuedPrompt(key, key, victim, interrupt, hooks=hooks))

    def receive_held(
        self, carrier: int, keys: tuple[int, ...], hooks: Hooks = Hooks.PASSED
    ) -> list[Effect]:
        """Append held prompts, committed long ago; raises ValueError if a key is here already."""
        self._refuse_again(carrier, *keys)
        self._waiting += [QueuedPrompt(key, carrier, committed=True, hooks=hooks) for key in keys]
        return self._settle(carrier, Done())

    def take_next(self) -> QueuedPrompt:
        """Make the next prompt the running one and return it."""
        self.running = self.waiting[0]
        self._waiting.remove(self.running)
        return self.running

    def finish(self, outcome: Outcome) -> list[Effect]:
        """Answer the running prompt, if there is one."""
        prompt, self.running = self.running, None
        return self._answer(prompt, outcome) if prompt else []

    def drop(
        self, outcome: Outcome, which: Callable[[QueuedPrompt], bool] = lambda prompt: True
    ) -> list[Effect]:
        """Answer the waiting prompts that `which` chooses; carried ones are held again.

        One whose hooks run is answered when those have ended; a turn that is over already can't
        fail any more.
        """
        out = self._stop(outcome, which)
        gone = [p for p in self._waiting if which(p) and p.hooks is not Hooks.RUNNING]
        self._waiting = [prompt for prompt in self._waiting if prompt not in gone]
        again = [p for p in gone if p.carried and not p.again and not isinstance(outcome, Refused)]
        out += [AnswerPrompt(prompt.key, outcome) for prompt in gone if prompt not in again]
        if again:
            out.append(Hold(tuple(prompt.key for prompt in again)))
        carriers = {prompt.request: prompt for prompt in gone if prompt.carried}
        for carrier, prompt in carriers.items():
            out += self._settle(carrier, prompt.settles_as(outcome))
        return out

    def interrupt(self) -> list[Effect]:
        """Give up the running prompt because the bridge ends: nobody can be told. (invariant Q6)"""
        prompt, self.running = self.running, None
        return [Interrupted(prompt.key)] if prompt else []

    def hold(self) -> list[Effect]:
        """Hold all that wait for the user's word, because the bridge ends.

        What was cancelled, or has ended, is answered without a wait for its hooks.
        """
        out: list[Effect] = [StopHooks()] if self.hooked else []
        out += self.end_hooks()
        keys = tuple(prompt.key for prompt in self.waiting)
        self._waiting = []
        return [*out, Hold(keys)] if keys else out

    # --- hooks ---------------------------------------------------------------------------------

    def begin_hooks(self, prompt: QueuedPrompt) -> list[Effect]:
        """Run the hooks about a waiting prompt, which counts as the oldest from now on."""
        self._waiting.remove(prompt)
        self._waiting.insert(0, prompt)
        prompt.hooks = Hooks.RUNNING
        return [RunHooks(prompt.key, Moment.PROMPT)]

    def leave(self, answer: object) -> list[Effect]:
        """Run the hooks about the end of the running prompt's turn."""
        prompt, self.running = self.running, None
        assert prompt is not None
        prompt.hooks, prompt.replied = Hooks.RUNNING, Replied(answer)
        self.leaving = prompt
        out: list[Effect] = [EndTurn(prompt.key, answer)]
        return [*out, RunHooks(prompt.key, Moment.TURN_END, prompt.again)]

    def follow(self, key: int) -> list[Effect]:
        """Let feedback follow the prompt whose turn is over; raises ValueError for a known key."""
        self._refuse_again(key)
        before, self.leaving = self.leaving, None
        assert before is not None
        assert before.replied is not None
        feedback = QueuedPrompt(key, before.request, replied=before.replied)
        feedback.again, feedback.origin = before.again + 1, before.root
        self._waiting.insert(0, feedback)
        out: list[Effect] = [AnswerPrompt(before.key, before.replied)] if before.carried else []
        return [*out, Commit(key)]

    def end_hooks(self) -> list[Effect]:
        """Go on without the hooks that run: they have ended, or nobody waits for them any more."""
        prompt = self.hooked
        if prompt is None:
            return []
        prompt.hooks = Hooks.PASSED
        if prompt is self.leaving:
            self.leaving = None
            return self._answer(prompt, prompt.ending or prompt.replied or Cancelled())
        return self.drop(prompt.ending, lambda other: other is prompt) if prompt.ending else []

    def _stop(self, outcome: Outcome, which: Callable[[QueuedPrompt], bool]) -> list[Effect]:
        """Decide how the prompt ends whose hooks run, if `which` chooses it."""
        prompt, cancelled = self.hooked, isinstance(outcome, Cancelled)
        if prompt is None or not which(prompt) or (prompt is self.leaving and not cancelled):
            return []
        first = prompt.ending is None
        if first or cancelled:
            prompt.ending = outcome
        return [StopHooks()] if first else []

    # --- answers -------------------------------------------------------------------------------

    def _answer(self, prompt: QueuedPrompt, outcome: Outcome) -> list[Effect]:
        out: list[Effect] = [AnswerPrompt(prompt.key, outcome)]
        if prompt.carried:
            out += self._settle(prompt.request, prompt.settles_as(outcome))
        return out

    def _settle(self, carrier: int, outcome: Outcome) -> list[Effect]:
        if any(prompt.request == carrier for prompt in self.unanswered):
            return []
        return [AnswerPrompt(carrier, outcome)]

    def _refuse_again(self, *keys: int) -> None:
        if any(prompt.key in keys or prompt.request in keys for prompt in self.unanswered):
            raise ValueError(f"received twice, one of {keys}")
