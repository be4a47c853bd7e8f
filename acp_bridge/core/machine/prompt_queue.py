"""The prompts of one session that have no answer yet: the one that runs and those that wait.

Everything that keeps a prompt from being sent stands together in `TurnMachine._send_next`.

- They wait in the user's order: that of reading, until the user moves one. A superseder
  (`interrupt`) goes first, the newest before all; behind it a hook's feedback, then what was to
  join a turn.
- While the journal takes a change of the user's nothing is sent, so neither the old words nor the
  old order run meanwhile. (invariant Q16)
- A prompt that `steers` is to join the turn that runs. It is sent into the turn one at a time, and
  is answered with the turn's end. If the agent did not take it, it is the next to run; a Stop
  gives it back. One that may have been lost at the agent is left over, and never sent again.
- Every prompt leaves with exactly one `AnswerPrompt` (or, when the bridge ends, one `LeaveOver` or
  `Interrupted`). (invariant Q9)
- A prompt that is left over from a bridge that ended is *carried* by a `/queue run`, the carrier,
  whose request stays open meanwhile. A prompt that may not run is left over again. The carrier is
  answered when none of its prompts is left. (invariant R12)
- A hook's feedback is a prompt of its own, ahead of all but superseders, carried by the prompt at
  whose end the hook ran, or by that one's carrier. (invariant Q11)
- While hooks run about a prompt it is answered only when they have ended. (invariant C10)
- A prompt of which the agent has nothing, since the journal was away, waits again as the next one;
  its hooks are not asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from itertools import takewhile

from msgspec import Struct

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    Cancelled,
    Commit,
    Done,
    Effect,
    EndTurn,
    Failed,
    Failure,
    GiveBack,
    Interrupted,
    LeaveOver,
    Outcome,
    Queued,
    RefuseChange,
    Refused,
    Replied,
    RunHooks,
    Steer,
    StopHooks,
    TellDeath,
    WriteChange,
)
from acp_bridge.core.machine.events import Moment, Steered

#: the journal's failures: the agent has nothing of the prompt.
_UNWRITTEN = (Failure.JOURNAL, Failure.NOT_BEGUN)


class Hooks(Enum):
    """How far the hooks about a prompt are."""

    #: the hooks are still to run before the prompt is sent.
    DUE = auto()
    #: the hooks run now.
    RUNNING = auto()
    #: the hooks have run, or there are none.
    PASSED = auto()


class QueuedPrompt(Struct, eq=False):
    """A prompt without an answer; not frozen, because it becomes `committed`."""

    key: int
    #: the key of the request that stays open for it: its own, or that of its carrier.
    request: int
    #: None, or for a superseder the `root` of the oldest prompt without an answer when it was read.
    victim: int | None = None
    interrupt: bool = False
    committed: bool = False
    #: it is to join the turn that runs.
    steers: bool = False
    #: it goes before those that wait in the order of reading, since it was to join a turn.
    first: bool = False
    #: the agent did not take it into the turn: it waits for a turn of its own.
    refused: bool = False
    #: it does not run if the turn that it is to join ends without it.
    lapses: bool = False
    #: who asked has been told that it waits for a turn of its own.
    told: bool = False
    #: the agent's answer when the prompt was sent into a turn; None: not sent, or no answer yet.
    steered: Steered | None = None
    #: the agent has shown something of the turn since it took the prompt into it.
    followed: bool = False
    #: the user wants it never to run.
    dropped: bool = False
    #: the journal has the agent's own answer, though it is shown as cancelled.
    noted: bool = False
    #: the cancel of its turn spares what runs in the background.
    spares: bool = False
    hooks: Hooks = Hooks.PASSED
    #: how the prompt is answered when its hooks have ended; None: it goes on.
    ending: Outcome | None = None
    #: the agent's answer to this prompt; for feedback, to the prompt before it.
    replied: Outcome | None = None
    #: how often in a row hooks sent the agent back, this time included; 0: this is no feedback.
    again: int = 0
    #: for feedback, the key of the prompt with which it all began.
    origin: int | None = None

    @property
    def root(self) -> int:
        """The key of the user's prompt behind this one: its own key, unless it is feedback."""
        return self.key if self.origin is None else self.origin

    @property
    def movable(self) -> bool:
        """True if the user may move the prompt, or move another one before it."""
        keeps = self.interrupt or self.again or self.steers or (self.first and not self.told)
        return not keeps and self.hooks is not Hooks.RUNNING and self.ending is None

    @property
    def carried(self) -> bool:
        """True if a carrier runs the prompt; `request` is the carrier's key."""
        return self.request != self.key

    def settles_as(self, outcome: Outcome) -> Outcome:
        """Return what the request is answered if this, its last prompt, ends with `outcome`."""
        unwritten = isinstance(outcome, Failed) and outcome.why in _UNWRITTEN
        if self.again and unwritten:
            outcome = self.replied or outcome  # the agent's turn is over, and nothing follows it
        if self.request != self.root and isinstance(outcome, Replied | Refused):
            return Done()
        return outcome


def _rank(prompt: QueuedPrompt) -> int:
    """Return the group in which a prompt waits: 0 feedback of hooks, 1 words that were to join a
    turn, 2 all others. The lower one runs first, and within a group the order is that of reading.
    """
    return 0 if prompt.again else 1 if prompt.first else 2


class PromptQueue:
    """Keeps the waiting prompts and the running one; methods that end a prompt return effects."""

    def __init__(self) -> None:
        #: the prompt that the agent has, or had when it died.
        self.running: QueuedPrompt | None = None
        #: the prompt whose turn is over and whose hooks run.
        self.leaving: QueuedPrompt | None = None
        #: the prompts that were sent into the running turn, in order.
        self.joining: list[QueuedPrompt] = []
        self._waiting: list[QueuedPrompt] = []
        #: the change that is being written to the journal; None: none is.
        self.change: WriteChange | None = None

    @property
    def running_key(self) -> int | None:
        """The key of the running prompt, or None."""
        return self.running.key if self.running else None

    @property
    def unanswered(self) -> list[QueuedPrompt]:
        """All prompts as they run: `session/cancel` means the first one. (invariant C20)"""
        current = self.running or self.leaving
        if not current and not self.joining:
            return self.waiting
        return [*([current] if current else []), *self.joining, *self.waiting]

    @property
    def waiting(self) -> list[QueuedPrompt]:
        """The prompts that wait, in the order in which they will run."""
        if len(self._waiting) < 2 or not any(p.interrupt or _rank(p) < 2 for p in self._waiting):
            return self._waiting
        urgent = [prompt for prompt in reversed(self._waiting) if prompt.interrupt]
        return urgent + sorted((p for p in self._waiting if not p.interrupt), key=_rank)

    @property
    def hooked(self) -> list[QueuedPrompt]:
        """The prompts about which hooks run: at most one whose turn is over, and one that waits."""
        may_be = [self.leaving, *self._waiting] if self.leaving else self._waiting
        return [prompt for prompt in may_be if prompt.hooks is Hooks.RUNNING]

    def hooked_as(self, key: int) -> QueuedPrompt | None:
        """Return the prompt with this key, if hooks run about it."""
        return next((prompt for prompt in self.hooked if prompt.key == key), None)

    def find(self, key: int) -> QueuedPrompt | None:
        """Return the waiting prompt with this key, or None."""
        for prompt in self._waiting:
            if prompt.key == key:
                return prompt
        return None

    def receive(self, key: int, interrupt: bool, hooks: Hooks = Hooks.PASSED) -> QueuedPrompt:
        """Append a new prompt, not committed yet; ValueError if the queue has the key already."""
        self._refuse_again(key)
        oldest = self.running or self.leaving or next(iter([*self.joining, *self._waiting]), None)
        victim = oldest.root if interrupt and oldest else None
        prompt = QueuedPrompt(key, key, victim, interrupt, hooks=hooks)
        self._waiting.append(prompt)
        return prompt

    def receive_left_over(
        self, carrier: int, keys: tuple[int, ...], hooks: Hooks = Hooks.PASSED
    ) -> list[Effect]:
        """Append the left-over prompts `keys`, which are committed, under the request `carrier`.

        If there are none it is answered at once. ValueError if the queue has a key already.
        """
        self._refuse_again(carrier, *keys)
        self._waiting += [QueuedPrompt(key, carrier, committed=True, hooks=hooks) for key in keys]
        return self._settle(carrier, Done())

    def take_next(self) -> QueuedPrompt:
        """Make the next prompt the running one and return it."""
        self.running = self.waiting[0]
        self._waiting.remove(self.running)
        return self.running

    def take_back(self) -> list[Effect]:
        """Let the running prompt be the next to run: the agent has nothing of it."""
        prompt, self.running = self.running, None
        assert prompt is not None
        # What was to join its turn must not overtake it.
        prompt.first = prompt.told = prompt.refused = True
        self._waiting.insert(0, prompt)
        return self.end_joined(Replied(None))

    def finish(self, outcome: Outcome) -> list[Effect]:
        """Answer the running prompt, and those that have joined its turn."""
        prompt, self.running = self.running, None
        assert prompt is not None
        joined = self.end_joined(outcome)
        first = [effect for effect in joined if isinstance(effect, GiveBack)]  # before `cancelled`
        then = [effect for effect in joined if effect not in first]
        return [*first, *self._answer(prompt, outcome), *then]

    def drop(
        self, outcome: Outcome, which: Callable[[QueuedPrompt], bool] = lambda prompt: True
    ) -> list[Effect]:
        """Answer the waiting prompts that `which` chooses; carried ones are left over again.

        A prompt whose hooks run is answered when they have ended. One whose turn is over can still
        be cancelled, and can no longer fail.
        """
        out = self._stop(outcome, which)
        gone = [p for p in self._waiting if which(p) and p.hooks is not Hooks.RUNNING]
        if not gone:
            return out
        self._waiting = [prompt for prompt in self._waiting if prompt not in gone]
        refused = isinstance(outcome, Refused)
        again = [p for p in gone if p.carried and not (p.again or p.dropped or refused)]
        out += [AnswerPrompt(prompt.key, outcome) for prompt in gone if prompt not in again]
        if again:
            out.append(LeaveOver(tuple(prompt.key for prompt in again)))
        carriers = {prompt.request: prompt for prompt in gone if prompt.carried}
        for carrier, prompt in carriers.items():
            own = (prompt.replied or Done()) if prompt.dropped else outcome
            out += self._settle(carrier, prompt.settles_as(own))
        return out

    def keep(self) -> list[Effect]:
        """Answer the waiting prompts as left over, because the session is closed for all clients.

        A prompt whose turn is over is cancelled, and so is the feedback that follows such a one.
        """
        begun = self.drop(Cancelled(), lambda prompt: prompt is self.leaving or prompt.again > 0)
        return begun + self.lapse() + self.drop(Failed(Failure.KEPT))

    def interrupt(self) -> list[Effect]:
        """Give up the running prompt because the bridge ends: nobody can be told. (invariant Q6)"""
        prompt, self.running = self.running, None
        joined, self.joining = self.joining, []
        if prompt is None:  # the turn has ended well, and the agent has not said that it took these
            return [AnswerPrompt(each.key, Failed(Failure.PERHAPS_UNREAD)) for each in joined]
        return [Interrupted(each.key) for each in (prompt, *joined)]

    def leave_over(self) -> list[Effect]:
        """Leave over the prompts that wait, because the bridge ends.

        A prompt that was cancelled, or whose turn is over, is answered without a wait for hooks.
        """
        out: list[Effect] = [StopHooks()] if self.hooked else []
        out += self.end_all_hooks()
        keys = tuple(prompt.key for prompt in self.waiting)
        self._waiting = []
        return [*out, LeaveOver(keys)] if keys else out

    # --- hooks ---------------------------------------------------------------------------------

    def begin_hooks(self, prompt: QueuedPrompt) -> list[Effect]:
        """Run the hooks about a waiting prompt, which counts as the oldest from now on."""
        self._waiting.remove(prompt)
        self._waiting.insert(0, prompt)
        prompt.hooks = Hooks.RUNNING
        return [RunHooks(prompt.key, Moment.PROMPT)]

    def leave(self, answer: object) -> list[Effect]:
        """Note the agent's answer to the running prompt, and run the hooks about its turn's end."""
        prompt, self.running = self.running, None
        assert prompt is not None
        prompt.hooks, prompt.replied = Hooks.RUNNING, Replied(answer)
        self.leaving = prompt
        out: list[Effect] = [EndTurn(prompt.key, answer), *self.end_joined(Replied(answer))]
        return [*out, RunHooks(prompt.key, Moment.TURN_END, prompt.again)]

    def follow(self, key: int) -> list[Effect]:
        """Queue a hook's feedback as the prompt `key`, right behind the one whose turn is over.

        Raises ValueError if the queue has the key already.
        """
        self._refuse_again(key)
        before, self.leaving = self.leaving, None
        assert before is not None
        assert before.replied is not None
        feedback = QueuedPrompt(key, before.request, replied=before.replied)
        feedback.again, feedback.origin = before.again + 1, before.root
        self._waiting.insert(0, feedback)
        out: list[Effect] = [AnswerPrompt(before.key, before.replied)] if before.carried else []
        return [*out, Commit(key)]

    def end_all_hooks(self) -> list[Effect]:
        """Wait for no hook about a prompt any longer."""
        return [effect for prompt in self.hooked for effect in self.end_hooks(prompt)]

    def end_hooks(self, prompt: QueuedPrompt) -> list[Effect]:
        """Go on with a prompt whose hooks ran: they have ended, or are waited for no longer."""
        prompt.hooks = Hooks.PASSED
        if prompt is self.leaving:
            self.leaving = None
            return self._answer(prompt, prompt.ending or prompt.replied or Cancelled())
        return self.drop(prompt.ending, lambda other: other is prompt) if prompt.ending else []

    def _stop(self, outcome: Outcome, which: Callable[[QueuedPrompt], bool]) -> list[Effect]:
        """Note how the chosen prompts whose hooks run are to end, and kill these hooks."""
        cancelled, stopped = isinstance(outcome, Cancelled), list[QueuedPrompt]()
        hooked = self.hooked
        for prompt in hooked:
            if not which(prompt) or (prompt is self.leaving and not cancelled):
                continue
            if prompt.ending is None:
                stopped.append(prompt)
            if prompt.ending is None or cancelled:
                prompt.ending = outcome
        # A turn that runs, or that is over, has hooks of its own: they go on without these words.
        if self.running or len(stopped) < len(hooked):
            return [StopHooks(prompt.key) for prompt in stopped]
        return [StopHooks()] if stopped else []

    # --- the user's changes --------------------------------------------------------------------

    def edit(self, key: int) -> list[Effect]:
        """Have other words written for a waiting prompt, unless a hook wrote it or hooks run."""
        prompt = self.find(key)
        if prompt is None or prompt.again or prompt.hooks is Hooks.RUNNING:
            return [RefuseChange()]
        return self.begin_change(WriteChange(key))

    def move(self, key: int, before: int | None, *, first: bool) -> list[Effect]:
        """Have it written that a waiting prompt moves before the prompt `before`; None: last.

        `first`: before all that can be moved.
        """
        rest = [p.key for p in self.waiting if p.movable and p.key != key]
        prompt = self.find(key)
        if prompt is None or not prompt.movable or before not in (None, *rest):
            return [RefuseChange()]
        place = len(rest) if before is None else rest.index(before)
        rest.insert(0 if first else place, key)
        return self.begin_change(WriteChange(key, tuple(rest)))

    def drop_for_good(self, key: int) -> list[Effect]:
        """Cancel a waiting prompt; one that a `/queue run` carries is not left over again."""
        prompt = self.find(key)
        if prompt is None:
            return [RefuseChange()]
        prompt.dropped = True
        return self.drop(Cancelled(), lambda other: other is prompt)

    def begin_change(self, change: WriteChange) -> list[Effect]:
        """Have the journal write this change; refuse it while another one is being written."""
        if self.change:
            return [RefuseChange()]
        self.change = change
        return [change]

    def end_change(self, hooks: Hooks, *, made: bool) -> bool:
        """Make the change that was being written, if the journal has it; False if there was none.

        `hooks`: how far the hooks about the prompt are now, if it got other words.
        """
        change, self.change = self.change, None
        prompt = self.find(change.key) if change and made else None
        if change and prompt and change.order:
            self._reorder(prompt, change.order)
        elif prompt:
            prompt.hooks = hooks
        return change is not None

    def _reorder(self, moved: QueuedPrompt, order: tuple[int, ...]) -> None:
        """Put the waiting prompts `order` into this order, since one was moved; others stay."""
        # It may be to join the turn by now, and goes before all of them then.
        here = {p.key: p for p in self._waiting if p.movable or p is moved}
        keys = [key for key in order if key in here]
        behind = keys[keys.index(moved.key) + 1 :]
        if moved.movable:
            moved.first = bool(behind) and here[behind[0]].first
            moved.told |= moved.first  # its place is known, and it may be moved again
        following = iter(keys)
        self._waiting = [here[next(following)] if p.key in keys else p for p in self._waiting]

    # --- words that join the running turn ------------------------------------------------------

    def next_to_join(self) -> QueuedPrompt | None:
        """Return the prompt that is to join the turn next; None while the agent owes an answer."""
        if any(prompt.steered is None for prompt in self.joining):
            return None
        return next((p for p in self._waiting if p.steers and not p.refused), None)

    def join(self, prompt: QueuedPrompt, epoch: int) -> list[Effect]:
        """Send a waiting prompt's words into the turn that runs in the process `epoch`."""
        self._waiting.remove(prompt)
        self.joining.append(prompt)
        return [Steer(epoch, prompt.key)]

    def joined(self, key: int, how: Steered, *, stopped: bool) -> list[Effect] | None:
        """Take the agent's answer to a prompt sent into the turn; None if it is not waited for.

        A prompt that it did not take is the next to run; `stopped`: it is given back with the
        turn's end instead.
        """
        prompt = next((p for p in self.joining if p.key == key and p.steered is None), None)
        if prompt is None:
            return None
        if how is Steered.NOT_TAKEN and not stopped:
            self.joining.remove(prompt)
            before = sum(1 for _ in takewhile(lambda each: each.refused, self._waiting))
            self._waiting.insert(before, prompt)
            prompt.refused = True
            over = self.running is None or prompt.lapses
            return self._queue_up([prompt]) if over else self.tell_queued(prompt)
        if how is Steered.JOINED or (how is Steered.UNKNOWN and not stopped):
            prompt.steered = how
        return [] if self.running else self.end_joined(Replied(None))

    def follow_words(self) -> bool:
        """Note that the agent showed something after it took words; False if it took none."""
        taken = [prompt for prompt in self.joining if prompt.steered]
        for prompt in taken:
            prompt.followed = True
        return bool(taken)

    def end_joined(self, outcome: Outcome) -> list[Effect]:
        """Answer the prompts that were sent into a turn which ends with this outcome.

        If the turn ended well, a prompt waits on while the agent has not said whether it took it.
        Prompts that were to join and were not sent yet are the next to run.
        """
        out: list[Effect] = []
        well, sent = isinstance(outcome, Replied), self.joining
        self.joining = [prompt for prompt in sent if well and prompt.steered is None]
        for prompt in sent:
            if prompt.steered is None and isinstance(outcome, Cancelled):
                out.append(GiveBack(prompt.key))
            if prompt not in self.joining:
                lost = well and not prompt.followed
                told = Failed(Failure.PERHAPS_UNREAD) if lost else outcome
                out.append(AnswerPrompt(prompt.key, told))
        return out + self._queue_up([prompt for prompt in self._waiting if prompt.steers])

    def give_back(self) -> list[Effect]:
        """Cancel the prompts that wait to join a turn, because the turn was stopped."""
        keys = [prompt.key for prompt in self._waiting if prompt.steers and not prompt.ending]
        out: list[Effect] = [GiveBack(key) for key in keys]
        return out + self.drop(Cancelled(), lambda prompt: prompt.steers)

    def tell_queued(self, prompt: QueuedPrompt) -> list[Effect]:
        """Tell the client, once the prompt is on disk, that it waits for a turn of its own."""
        tells = prompt.committed and prompt.first and not prompt.told
        prompt.told |= tells
        prompt.lapses &= not tells
        return [Queued(prompt.key)] if tells else []

    def _queue_up(self, prompts: list[QueuedPrompt]) -> list[Effect]:
        """Let prompts that were to join a turn wait for one of their own, unless they lapse."""
        out: list[Effect] = []
        lapsed = [prompt for prompt in prompts if prompt.lapses]
        for prompt in prompts:
            prompt.steers = False
            out += [] if prompt in lapsed or prompt.ending else self.tell_queued(prompt)
        return out + self.lapse(lambda prompt: prompt in lapsed)

    def lapse(self, which: Callable[[QueuedPrompt], bool] = lambda prompt: True) -> list[Effect]:
        """Fail those of the prompts that `which` chooses that were for the running turn alone."""
        return self.drop(Failed(Failure.NO_TURN), lambda prompt: prompt.lapses and which(prompt))

    # --- answers -------------------------------------------------------------------------------

    def _answer(self, prompt: QueuedPrompt, outcome: Outcome) -> list[Effect]:
        out: list[Effect] = [AnswerPrompt(prompt.key, outcome)]
        if prompt.carried:
            out += self._settle(prompt.request, prompt.settles_as(outcome))
        return out

    def _settle(self, carrier: int, outcome: Outcome) -> list[Effect]:
        """Answer the carrier, if none of its prompts is left."""
        if any(prompt.request == carrier for prompt in self.unanswered):
            return []
        return [AnswerPrompt(carrier, outcome)]

    def _refuse_again(self, *keys: int) -> None:
        if any(prompt.key in keys or prompt.request in keys for prompt in self.unanswered):
            raise ValueError(f"received twice, one of {keys}")


# --- hooks that the machine did not ask for -------------------------------------------------------


class OpenHooks:
    """Tracks the hooks that the machine did not ask for, and knows the moments that have hooks.

    Hooks about a prompt run on the machine's word, and the prompt itself says how far they are. Of
    others, about a permission for example, the machine is only told: a cancelled turn waits for
    their end, and nothing else does. (invariant C10)
    """

    def __init__(self, moments: frozenset[Moment]) -> None:
        """`moments`: those for which the session has hooks."""
        self._moments = moments
        self._runs: set[int] = set()

    @property
    def running(self) -> bool:
        """True while a hook runs that the machine did not ask for."""
        return bool(self._runs)

    @property
    def before_prompt(self) -> Hooks:
        """How far the hooks about a prompt are when it is read."""
        return Hooks.DUE if Moment.PROMPT in self._moments else Hooks.PASSED

    @property
    def after_turn(self) -> bool:
        """True if the session has hooks for the end of a turn."""
        return Moment.TURN_END in self._moments

    def begin(self, run: int) -> None:
        """Note that the hook of this number runs."""
        self._runs.add(run)

    def end(self, run: int) -> bool:
        """Note that no process of a hook is left; returns False if it is not known."""
        known = run in self._runs
        self._runs.discard(run)
        return known

    def forget(self) -> None:
        """Wait for no hook any longer."""
        self._runs.clear()

    def stop(self) -> list[Effect]:
        """Have the hooks killed, if one runs."""
        return [StopHooks()] if self._runs else []

    def tell_death(self, detail: object) -> list[Effect]:
        """Run the hooks about a death of the agent, if there are some."""
        return [TellDeath(detail)] if Moment.DEATH in self._moments else []
