"""The turn machine against its reference, in a world that does whatever it likes, at any moment.

The world may answer late, twice, for turns and processes long gone or never seen; processes exit
in any state, don't start, refuse, want authentication; deadlines pass at once or never; the client
cancels, closes and goes. `reference.py` judges every effect. In the end the world behaves, or is
silent while every deadline passes, and either way nobody may be left waiting. (HAZARDS Q1, C21)

`HYPOTHESIS_PROFILE=long` draws many more examples, other ones each time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from acp_bridge import signals as sig
from acp_bridge.turns import Turns
from tests.turns.reference import Reference

#: States on their way somewhere, and the deadline that ends each.
DEADLINE = {
    "STARTING": sig.Timer.RESTART,
    "RELOADING": sig.Timer.RESTART,
    "DRAINING": sig.Timer.DRAIN,
    "KILLING": sig.Timer.KILL,
}
#: More rounds than any history of a test can need until it is quiet.
ROUNDS = 500

few = st.integers(0, 6)
flags = st.booleans()
mostly = st.sampled_from([True, True, True, False])
seldom = st.sampled_from([False] * 9 + [True])


#: What may come in the place of what should.
PROCESS: list[type[sig.AgentEvent]] = [
    sig.StartFailed,
    sig.LoadRefused,
    sig.NeedsAuth,
    sig.AgentExited,
    sig.Unclean,
]
WRONG: dict[type[sig.Event], list[type[sig.AgentEvent]]] = {
    sig.Started: [sig.StartFailed, sig.AgentExited],
    sig.Loaded: [sig.LoadRefused, sig.NeedsAuth, sig.AgentExited],
    sig.AgentAnswered: [sig.AgentExited, sig.Unclean],
}


def of(kind: type[sig.AgentEvent], epoch: int, permanent: bool) -> sig.AgentEvent:
    if kind in (sig.StartFailed, sig.LoadRefused):
        return kind(epoch, permanent)
    return kind(epoch)  # type: ignore[call-arg]  # one that needs a turn is never drawn


class World(RuleBasedStateMachine):
    """Client, journal, processes and clock around one machine."""

    @initialize(opened=mostly, clear=flags, always_reload=flags)
    def session(self, opened: bool, clear: bool, always_reload: bool) -> None:
        first = 1 if opened else 0
        self.turns = Turns(epoch=first, clear_on_cancel=clear, always_reload=always_reload)
        self.reference = Reference(clear, always_reload)
        if opened:
            known = self.reference
            for of_a_process in (known.started, known.initialized, known.opened, known.loaded):
                of_a_process.add(first)
        self.reference.held = set(range(-4, 0))
        self.keys = 0
        self.tokens: set[int] = set()
        self.armed: dict[sig.Timer, int] = {}
        #: what a well-behaved world would do next, the oldest first.
        self.due: list[sig.Event] = []

    def feed(self, event: sig.Event) -> None:
        self.reference.before(event)
        effects = self.turns.step(event)
        self.reference.after(event, effects)
        for effect in effects:
            self.note(effect)

    def note(self, effect: sig.Effect) -> None:
        match effect:
            case sig.Arm(timer, token):
                assert token not in self.tokens, "a token comes once"
                assert timer not in self.armed
                self.tokens.add(token)
                self.armed[timer] = token
            case sig.Disarm(timer):
                del self.armed[timer]
            case sig.Commit(key):
                self.due.append(sig.Committed(key))
            case sig.Start(epoch):
                self.due.append(sig.Started(epoch))
            case sig.Open(epoch):
                self.due.append(sig.Loaded(epoch))
            case sig.SendPrompt(epoch, turn, key):
                self.due.append(sig.AgentAnswered(epoch, turn, f"answer {key}"))
            case sig.Kill(epoch) | sig.CloseAgent(epoch):
                self.due.append(sig.TreeDead(epoch))

    def new_key(self) -> int:
        self.keys += 1
        return self.keys

    # --- the client and the journal ------------------------------------------------------------

    @rule(interrupt=st.sampled_from([False, False, True]), commit=mostly)
    def prompt(self, interrupt: bool, commit: bool) -> None:
        key = self.new_key()
        self.feed(sig.PromptReceived(key, interrupt))
        if commit:
            self.feed(sig.Committed(key))

    @rule(ok=flags, key=st.integers(-4, 20))
    def commit(self, ok: bool, key: int) -> None:
        if key <= self.keys:
            self.feed(sig.Committed(key) if ok else sig.CommitFailed(key))

    @rule(count=st.integers(0, 3))
    def queue_run(self, count: int) -> None:
        self.feed(sig.RunHeld(self.new_key(), tuple(sorted(self.reference.held)[:count])))

    @rule()
    def cancel(self) -> None:
        self.feed(sig.Cancel())

    @rule(key=st.integers(-4, 20))
    def cancel_request(self, key: int) -> None:
        self.feed(sig.CancelPrompt(key))

    @rule(event=st.sampled_from([sig.Warm(), sig.Renew()]))
    def other(self, event: sig.Event) -> None:
        self.feed(event)

    @rule(event=st.sampled_from([sig.Close(), sig.ClientGone()]), really=seldom)
    def end(self, event: sig.Event, really: bool) -> None:
        if really:
            self.feed(event)

    # --- processes and clock -------------------------------------------------------------------

    @rule(interrupt=flags, times=few)
    def prompt_that_goes_on(self, interrupt: bool, times: int) -> None:
        self.prompt(interrupt, True)
        self.as_it_should(times)

    @rule(times=few)
    def as_it_should(self, times: int) -> None:
        for _ in range(times):
            if self.due:
                self.feed(self.due.pop(0))

    @precondition(lambda self: self.due)
    @rule(which=few)
    def in_another_order(self, which: int) -> None:
        self.feed(self.due.pop(which % len(self.due)))

    @precondition(lambda self: self.due)
    @rule(which=few, really=seldom)
    def lost(self, which: int, really: bool) -> None:
        """What should happen, never does: but a killed tree dies and a journal answers."""
        event = self.due[which % len(self.due)]
        if really and not isinstance(event, sig.TreeDead | sig.Committed):
            self.due.remove(event)

    @precondition(lambda self: any(type(event) in WRONG for event in self.due))
    @rule(which=few, how=few, permanent=seldom)
    def something_else(self, which: int, how: int, permanent: bool) -> None:
        due = [event for event in self.due if type(event) in WRONG]
        event = due[which % len(due)]
        assert isinstance(event, sig.Started | sig.Loaded | sig.AgentAnswered)
        self.due.remove(event)
        kinds = WRONG[type(event)]
        self.feed(of(kinds[how % len(kinds)], event.epoch, permanent))

    @rule(
        kind=st.sampled_from([sig.Started, sig.Loaded, sig.TreeDead, *PROCESS]),
        back=st.sampled_from([0, 1, 2, -1]),
        permanent=seldom,
        really=flags,
    )
    def anything(self, kind: type[sig.Started], back: int, permanent: bool, really: bool) -> None:
        """Of this process, or of one that was before it or comes after it."""
        if really:
            self.feed(of(kind, self.turns.epoch - back, permanent))

    @rule(back=st.sampled_from([0, 0, 1, -1]), turn_back=st.sampled_from([0, 0, 0, 1, -1]))
    def agent_answers(self, back: int, turn_back: int) -> None:
        turn = self.turns.turn - turn_back
        self.feed(sig.AgentAnswered(self.turns.epoch - back, turn, "answer"))

    @precondition(lambda self: self.armed)
    @rule(which=few)
    def deadline(self, which: int) -> None:
        timer = list(self.armed)[which % len(self.armed)]
        self.feed(sig.Deadline(timer, self.armed.pop(timer)))

    @precondition(lambda self: self.tokens)
    @rule(timer=st.sampled_from(sig.Timer), which=few)
    def old_deadline(self, timer: sig.Timer, which: int) -> None:
        old = sorted(self.tokens - set(self.armed.values()))
        if old:
            self.feed(sig.Deadline(timer, old[which % len(old)]))

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def the_queue_is_the_reference_s(self) -> None:
        known = self.reference
        assert self.turns.waiting == tuple(asked.key for asked in known.next())
        assert self.turns.running == (known.running.key if known.running else None)
        assert self.turns.awaited == bool(known.line)

    @invariant()
    def what_is_on_its_way_has_a_deadline(self) -> None:
        state = self.turns.state.name
        assert state not in DEADLINE or DEADLINE[state] in self.armed
        assert self.armed.keys() <= {
            "STARTING": {sig.Timer.RESTART},
            "RELOADING": {sig.Timer.RESTART},
            "DRAINING": {sig.Timer.SPARE, sig.Timer.DRAIN},
            "KILLING": {sig.Timer.KILL, sig.Timer.RESTART},
        }.get(state, set())

    @invariant()
    def nobody_is_stranded(self) -> None:
        first = self.reference.next()[:1]
        if self.turns.state.name in ("COLD", "IDLE", "BLOCKED", "CLOSED"):
            assert not any(asked.committed for asked in first)

    @invariant()
    def tainted_is_said_of_cancelled_turns_only(self) -> None:
        assert isinstance(self.turns.tainted, bool)
        assert not (self.turns.tainted and self.turns.state.name in ("RUNNING", "DRAINING"))
        if self.turns.tainted:
            assert self.reference.told or self.reference.died

    # --- the end -------------------------------------------------------------------------------

    def teardown(self) -> None:
        if hasattr(self, "turns"):
            self.come_to_rest(silent=self.keys % 2 == 0)
            assert not self.reference.line
            assert self.reference.gone or not self.reference.carriers
            assert not self.armed
            if self.reference.closing:
                assert self.turns.state.name == "CLOSED"

    def come_to_rest(self, *, silent: bool) -> None:
        """The world does what it should; or only the journal answers, the user presses Stop,
        and time passes."""
        for _ in range(ROUNDS):
            due = [e for e in self.due if not silent or isinstance(e, sig.Committed)]
            if due:
                self.due.remove(due[0])
                self.feed(due[0])
            elif self.armed:
                timer = next(iter(self.armed))
                self.feed(sig.Deadline(timer, self.armed.pop(timer)))
            elif self.reference.running and silent:
                self.feed(sig.Cancel())
            elif self.reference.running:
                self.feed(sig.AgentAnswered(self.turns.epoch, self.turns.turn, "found again"))
            else:
                return
        raise AssertionError("it never becomes quiet")


World.TestCase.settings = (
    settings(max_examples=5000, stateful_step_count=80, deadline=None)
    if os.environ.get("HYPOTHESIS_PROFILE") == "long"
    else settings(
        max_examples=150,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
)
TestWorld = pytest.mark.hazard(
    "Q1", "Q2", "Q3", "Q5", "Q9", "C1", "C2", "C3", "C5", "C10", "C14", "C20", "C21", "P12"
)(World.TestCase)
