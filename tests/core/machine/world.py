"""A world around the turn machine: client, journal, processes and clock, in any order.

What comes out of the machine is judged by `reference.py` and remembered: `due` is what a
well-behaved world would do next, `armed` the deadlines. Every method lets something happen, likely
or not; none of them is told what the machine makes of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

from acp_bridge.core.machine.effects import (
    Arm,
    CloseAgent,
    Commit,
    Disarm,
    Dropped,
    Effect,
    GiveBack,
    Kill,
    Leave,
    Open,
    Queued,
    RefuseFeedback,
    RunHooks,
    SendPause,
    SendPrompt,
    Start,
    Steer,
    StopWork,
    WriteChange,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentEvent,
    AgentExited,
    Cancel,
    CancelPrompt,
    ChangeLeftOver,
    ChangeWritten,
    Close,
    CommitFailed,
    Committed,
    Deadline,
    DropWaiting,
    EditWaiting,
    Event,
    Go,
    HoldQueue,
    HookBegan,
    HookEnded,
    HooksDone,
    JournalAway,
    JournalBack,
    JournalLost,
    Leaked,
    Loaded,
    LoadRefused,
    Moment,
    MoveWaiting,
    NeedsAuth,
    NotBegun,
    Occupied,
    Pause,
    PauseAnswered,
    PromptReceived,
    ReplaceProcess,
    RunLeftOver,
    Shutdown,
    Sleep,
    Started,
    StartFailed,
    Taken,
    Timer,
    TreeDead,
    Warm,
    WorkAsked,
    WorkOver,
    WorkSeen,
)
from acp_bridge.core.machine.states import Phase, Snapshot
from acp_bridge.core.machine.turns import TurnMachine
from tests.core.machine.reference import Reference

#: States on their way somewhere, the deadline that ends each, and what else may be armed.
DEADLINES = {
    "STARTING": (Timer.RESTART, set[Timer]()),
    "RELOADING": (Timer.RESTART, set[Timer]()),
    "DRAINING": (Timer.DRAIN, {Timer.SPARE}),
    "KILLING": (Timer.KILL, {Timer.RESTART}),
}
#: More rounds than any history of a test can need until it is quiet.
ROUNDS = 500
#: How many series of histories the tests draw that take them from `Random`.
SEEDS = 400 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 24
#: The events that may come in the place of the one that should.
WRONG: dict[type[Event], list[type[AgentEvent]]] = {
    Started: [StartFailed, AgentExited],
    Loaded: [LoadRefused, NeedsAuth, AgentExited],
    AgentAnswered: [AgentExited, Leaked],
    PauseAnswered: [AgentExited, Leaked],
    WorkOver: [AgentExited, Leaked],
}
#: What clients ask for that is no prompt.
USER: list[Event] = [Warm(), ReplaceProcess(), WorkAsked()]
#: The user's pause, hold and go; the ends of a session.
GATE: list[Event] = [Pause(), Pause(), HoldQueue(), Go(), Go()]
END: list[Event] = [Close(), Close(keeps_prompts=True), Shutdown()]
#: What becomes of the journal's place.
JOURNAL: list[Event] = [JournalAway(), *[JournalBack()] * 4, JournalLost("taken"), Taken("taken")]
#: The events that a process may cause at any time.
PROCESS: list[type[AgentEvent]] = [
    Started,
    StartFailed,
    Loaded,
    LoadRefused,
    NeedsAuth,
    AgentExited,
    TreeDead,
    Leaked,
    WorkSeen,
    WorkSeen,
    WorkOver,
    Occupied,
]


def of(kind: type[AgentEvent], epoch: int, permanent: bool) -> AgentEvent:
    if kind in (StartFailed, LoadRefused):
        return kind(epoch, permanent)
    return kind(epoch)  # type: ignore[call-arg]  # one that needs a turn is in no list


class World:
    """Holds one machine, its reference, and what is due."""

    def __init__(
        self,
        *,
        opened: bool,
        clear: bool,
        always_reload: bool,
        hooks: frozenset[Moment] = frozenset(),
    ) -> None:
        first = 1 if opened else 0
        self.turns = TurnMachine(
            epoch=first, clear_on_cancel=clear, always_reload=always_reload, hooks=hooks
        )
        self.reference, self.hooks = Reference(clear, always_reload, hooks=hooks), hooks
        self.runs = 0
        if opened:
            known = self.reference
            for of_a_process in (known.started, known.initialized, known.opened, known.loaded):
                of_a_process.add(first)
        self.reference.left_over = set(range(-4, 0))
        self.keys = 0
        self.tokens: set[int] = set()
        self.armed: dict[Timer, int] = {}
        self.due: list[Event] = []

    @property
    def now(self) -> Snapshot:
        return self.turns.snapshot

    def feed(self, event: Event) -> None:
        before = self.now
        self.reference.before(event)
        effects = self.turns.step(event)
        assert effects != [Dropped(event)] or self.now.state is before.state
        if isinstance(event, Cancel) and event.requests == frozenset():
            assert (StopWork(before.epoch, event.spares) in effects) == before.may_work
        self.reference.after(event, effects)
        for effect in effects:
            self.note(effect)
        self.check()

    def note(self, effect: Effect) -> None:
        if isinstance(effect, RunHooks | RefuseFeedback):
            assert self.hooks, "who has no hooks is not asked for them"
        assert not isinstance(effect, Steer | Queued | GiveBack), "nobody steers"
        match effect:
            case Arm(timer, token):
                assert token not in self.tokens, "a token comes once"
                assert timer not in self.armed
                self.tokens.add(token)
                self.armed[timer] = token
            case Disarm(timer):
                del self.armed[timer]
            case Commit(key):
                self.due.append(Committed(key))
            case WriteChange():
                self.due.append(ChangeWritten())
            case Start(epoch):
                self.due.append(Started(epoch))
            case Open(epoch):
                self.due.append(Loaded(epoch))
            case RunHooks(key):
                self.due.append(HooksDone(key))
            case SendPrompt(epoch, key):
                self.due.append(AgentAnswered(epoch, key, f"answer {key}"))
            case SendPause(epoch, token):
                self.due.append(PauseAnswered(epoch, token))
            case StopWork(epoch):
                self.due.append(WorkOver(epoch))
            case Kill(epoch) | CloseAgent(epoch) | Leave(epoch):
                self.due.append(TreeDead(epoch))

    def check(self) -> None:
        """Assert what holds at every moment, whatever happened."""
        known, now, state = self.reference, self.now, self.now.state.name
        assert now.waiting == tuple(asked.key for asked in known.next())
        assert now.running == (known.running.key if known.running else None)
        of_states = self.armed.keys() - {Timer.SIGN}
        if state in DEADLINES:
            needed, allowed = DEADLINES[state]
            assert {needed} <= of_states <= {needed} | allowed
        else:
            assert not of_states
        known.check_gate(now.standstill, state, Timer.SIGN in self.armed)
        assert known.work_seen or state != "WORKING"
        assert known.work_stops == (state == "DRAINING" and now.running is None)
        if state in ("COLD", "IDLE", "WORKING", "BLOCKED", "UNAUTHENTICATED", "CLOSED"):
            stranded = any(asked.committed for asked in known.next()[:1])
            waits = bool(known.gate_closed or known.away or known.hooked or known.change)
            waits |= known.taken and bool(known.asides)  # until these are dead
            assert waits or not stranded, "stranded"
        if now.asleep:
            assert state in ("COLD", "KILLING")
            assert known.asleep
        assert not (known.asleep and state == "COLD") or now.asleep
        phase = now.phase(now.epoch)
        assert (
            phase is not Phase.LEAK or known.told or known.died or known.hooks or known.work_stopped
        )
        assert phase is not Phase.LIVE or now.epoch in known.loaded
        assert phase is not Phase.REPLAY or now.epoch in known.opened
        assert now.phase(now.epoch + 1) is Phase.NOTHING

    def sleep(self, back: int) -> None:
        """Let the session have been at rest for long, or a process that it had before."""
        event = Sleep(self.now.epoch - back)
        rests = self.now.at_rest
        self.feed(event)
        assert (self.now.state.name == "KILLING") or not rests or back

    # --- the client and the journal ------------------------------------------------------------

    def prompt(self, interrupt: bool, commit: bool) -> None:
        self.keys += 1
        self.feed(PromptReceived(self.keys, interrupt))
        if commit:
            self.feed(Committed(self.keys))

    def queue_run(self, count: int) -> None:
        self.keys += 1
        self.feed(RunLeftOver(self.keys, tuple(sorted(self.reference.left_over)[:count])))

    def hooks_end(self, refuse: bool, feedback: bool) -> None:
        """Let hooks end that run, with a word about their prompt."""
        due = next((event for event in self.due if isinstance(event, HooksDone)), None)
        if due:
            self.due.remove(due)
            key = None
            if feedback:
                self.keys += 1
                key = self.keys
            self.feed(HooksDone(due.key, "no" if refuse else None, key))

    def hook_begins(self) -> None:
        """Let a hook run that the machine did not ask for."""
        self.runs += 1
        self.feed(HookBegan(self.runs))
        self.due.append(HookEnded(self.runs))

    def odd_hooks(self, back: int) -> None:
        """End hooks that ended before, or never ran."""
        if not any(e.key == self.keys - back for e in self.due if isinstance(e, HooksDone)):
            self.feed(HooksDone(self.keys - back))
        self.feed(HookEnded(self.runs + 1))

    def about_a_prompt(
        self, kind: type[Committed | CommitFailed | CancelPrompt], back: int
    ) -> None:
        """Name one of the last prompts, a left-over one, or one that never was."""
        self.feed(kind(self.keys - back))

    def not_begun(self, back: int, away: bool) -> None:
        """Let the journal not take that one of the last prompts is sent, for now or at all."""
        self.feed(NotBegun(self.keys - back, away))

    def change(self, kind: type[EditWaiting | DropWaiting], back: int) -> None:
        """Edit or drop one of the last prompts, whether it waits or not."""
        self.feed(kind(self.keys - back))

    def move(self, back: int, before: int | None) -> None:
        """Move one of the last prompts before another one of them, or behind all."""
        self.feed(MoveWaiting(self.keys - back, None if before is None else self.keys - before))

    def change_written(self, made: bool) -> None:
        """Let the journal say what came of the user's change, or speak of one that never was."""
        due = [event for event in self.due if isinstance(event, ChangeWritten)]
        if due:
            self.due.remove(due[0])
        self.feed(ChangeWritten(made))

    def pause_answered(self, paused: bool, back: int) -> None:
        """Answer the last question for a pause, or an older one."""
        self.feed(PauseAnswered(self.now.epoch, self.reference.pause_token - back, paused))

    # --- processes and clock -------------------------------------------------------------------

    def as_it_should(self, times: int) -> None:
        for _ in range(times):
            if self.due:
                self.feed(self.due.pop(0))

    def in_another_order(self, which: int) -> None:
        if self.due:
            self.feed(self.due.pop(which % len(self.due)))

    def lost(self, which: int) -> None:
        """Forget something that is due; but a killed tree dies and a journal answers."""
        due = [event for event in self.due if type(event) in WRONG]
        if due:
            self.due.remove(due[which % len(due)])

    def something_else(self, which: int, how: int, permanent: bool) -> None:
        """Let something that is due go wrong."""
        due = [e for e in self.due if isinstance(e, Started | Loaded | AgentAnswered)]
        if due:
            event = due[which % len(due)]
            self.due.remove(event)
            kinds = WRONG[type(event)]
            self.feed(of(kinds[how % len(kinds)], event.epoch, permanent))

    def process(self, kind: type[AgentEvent], back: int, permanent: bool) -> None:
        """Let this process do something, or one that was before it or comes after it."""
        self.feed(of(kind, self.now.epoch - back, permanent))

    def occupied(self, back: int, now: bool) -> None:
        """Let another session begin or end its work in this process, or in one beside it."""
        self.feed(Occupied(self.now.epoch - back, now))

    def answer(self, back: int, key_back: int) -> None:
        """Answer the prompt that was sent last, or another one, of this process or another one."""
        epoch, key = self.now.epoch - back, self.reference.sent_last - key_back
        self.feed(AgentAnswered(epoch, key, "out of order"))

    def deadline(self, which: int) -> None:
        if self.armed:
            timer = list(self.armed)[which % len(self.armed)]
            self.feed(Deadline(timer, self.armed.pop(timer)))

    def old_deadline(self, timer: Timer, which: int) -> None:
        if old := sorted(self.tokens - set(self.armed.values())):
            self.feed(Deadline(timer, old[which % len(old)]))

    # --- many things, and the end --------------------------------------------------------------

    def storm(self, random: Random, events: int) -> None:
        """Let many things happen; most of them make sense."""
        few = range(4)
        happenings: tuple[tuple[float, Callable[[], None]], ...] = (
            (6, lambda: self.prompt(random.random() < 0.25, random.random() < 0.7)),
            (1, lambda: self.queue_run(random.choice(few))),
            (3, lambda: self.feed(Cancel(spares=random.random() < 0.5))),
            (1, lambda: self.feed(Cancel(frozenset(), spares=random.random() < 0.5))),
            (1, lambda: self.feed(random.choice(USER))),
            (3, lambda: self.feed(random.choice(GATE))),
            (1, lambda: self.pause_answered(random.random() < 0.7, random.choice([0, 0, 1]))),
            (1, lambda: self.about_a_prompt(Committed, random.choice(few))),
            (1, lambda: self.about_a_prompt(CommitFailed, random.choice(few))),
            (1.5, lambda: self.not_begun(random.choice(few), random.random() < 0.7)),
            (2, lambda: self.feed(random.choice(JOURNAL))),
            (2, lambda: self.about_a_prompt(CancelPrompt, random.choice(few))),
            (10, lambda: self.as_it_should(random.choice(few))),
            (6, lambda: self.in_another_order(random.choice(few))),
            (1, lambda: self.lost(random.choice(few))),
            (3, lambda: self.something_else(random.choice(few), random.choice(few), False)),
            (0.3, lambda: self.something_else(random.choice(few), random.choice(few), True)),
            (3, lambda: self.process(random.choice(PROCESS), random.choice([-1, 0, 0, 1]), False)),
            (2, lambda: self.occupied(random.choice([-1, 0, 0, 0, 1]), random.random() < 0.4)),
            (2, lambda: self.answer(random.choice([-1, 0, 0, 1]), random.choice([-1, 0, 1]))),
            (5, lambda: self.deadline(random.choice(few))),
            (1, lambda: self.old_deadline(random.choice(list(Timer)), random.choice(few))),
            (0.4, lambda: self.feed(random.choice(END))),
            (4, lambda: self.hooks_end(random.random() < 0.1, random.random() < 0.6)),
            (1, lambda: self.hook_begins()),
            (3, lambda: self.sleep(random.choice([0, 0, 0, 1]))),
            (0.5, lambda: self.odd_hooks(random.choice(few))),
            (1, lambda: self.change(EditWaiting, random.choice(few))),
            (1, lambda: self.change(DropWaiting, random.choice(few))),
            (0.5, lambda: self.feed(ChangeLeftOver(0))),
            (2, lambda: self.move(random.choice(few), random.choice([*few, None]))),
            (2, lambda: self.change_written(random.random() < 0.7)),
        )
        weights = [weight for weight, _ in happenings]
        for _, happen in random.choices(happenings, weights, k=events):
            happen()

    def come_to_rest(self, *, silent: bool) -> None:
        """Let the world do what it should until all is quiet, and assert that nobody waits.

        If it is silent, only the journal answers, the user presses Stop, and time passes. Else the
        user ends what is paused or held, and the journal comes back.
        (invariants Q1, C21)
        """
        for _ in range(ROUNDS):
            sure = Committed | HooksDone | HookEnded
            due = [e for e in self.due if not silent or isinstance(e, sure)]
            if due:
                self.due.remove(due[0])
                self.feed(due[0])
            elif of_states := [timer for timer in self.armed if timer is not Timer.SIGN]:
                self.feed(Deadline(of_states[0], self.armed.pop(of_states[0])))
            elif self.reference.line and silent:
                self.feed(Cancel())
            elif self.reference.gate_closed and self.reference.line:
                self.feed(Go())
            elif self.reference.away:
                self.feed(JournalBack())
            elif self.reference.running:
                self.answer(0, 0)
            else:
                break
        assert not self.reference.line
        assert self.reference.gone or not self.reference.carriers
        assert self.now.state.name not in DEADLINES, "it never becomes quiet"
        assert self.now.state.name == "CLOSED" or not self.reference.closing
