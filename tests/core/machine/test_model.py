"""The turn machine against its reference, in a world that does whatever it likes, at any moment.

The world may answer late, twice, for prompts and processes long gone or never seen; processes exit
in any state, don't start, refuse, want authentication; deadlines pass at once or never; the client
cancels, closes and goes. `reference.py` judges every effect, `world.py` makes the weather.
Storms are long and find more; what Hypothesis finds it makes small.

`HYPOTHESIS_PROFILE=long` draws many more examples, other ones each time, and more storms.
"""

from __future__ import annotations

import os
from itertools import product
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from acp_bridge.core.machine.events import (
    AgentEvent,
    Cancel,
    CancelPrompt,
    Close,
    CommitFailed,
    Committed,
    DropWaiting,
    EditWaiting,
    Event,
    Go,
    HoldQueue,
    JournalAway,
    JournalBack,
    JournalLost,
    Moment,
    Pause,
    ReplaceProcess,
    Shutdown,
    Taken,
    Timer,
    Warm,
    WorkAsked,
)
from acp_bridge.core.records import replace
from tests.core.machine.world import PROCESS, SEEDS, World

few = st.integers(0, 3)
flags = st.booleans()
mostly = st.sampled_from([True, True, True, False])
seldom = st.sampled_from([False] * 9 + [True])
near = st.sampled_from([0, 1, -1])
moments = st.sampled_from([frozenset[Moment](), frozenset(Moment)])
prompt_events = st.sampled_from([Committed, CommitFailed, CancelPrompt])


class AnyHistory(RuleBasedStateMachine):
    """Lets Hypothesis draw what happens, and make a failing history smaller."""

    @initialize(opened=mostly, clear=flags, always_reload=flags, hooks=moments)
    def session(
        self, opened: bool, clear: bool, always_reload: bool, hooks: frozenset[Moment]
    ) -> None:
        self.world = World(opened=opened, clear=clear, always_reload=always_reload, hooks=hooks)

    @rule(interrupt=flags, commit=mostly, then=st.integers(0, 6))
    def prompt(self, interrupt: bool, commit: bool, then: int) -> None:
        self.world.prompt(interrupt, commit)
        self.world.as_it_should(then)

    @rule(refuse=seldom, feedback=mostly)
    def hooks_end(self, refuse: bool, feedback: bool) -> None:
        self.world.hooks_end(refuse, feedback)

    @rule()
    def hook_begins(self) -> None:
        self.world.hook_begins()

    @rule(back=few)
    def odd_hooks(self, back: int) -> None:
        self.world.odd_hooks(back)

    @rule(back=st.sampled_from([0, 0, 0, 1]))
    def sleep(self, back: int) -> None:
        self.world.sleep(back)

    @rule(count=few)
    def queue_run(self, count: int) -> None:
        self.world.queue_run(count)

    @rule(kind=prompt_events, back=st.integers(-1, 6))
    def about_a_prompt(
        self, kind: type[Committed | CommitFailed | CancelPrompt], back: int
    ) -> None:
        self.world.about_a_prompt(kind, back)

    @rule(back=few, away=mostly)
    def not_begun(self, back: int, away: bool) -> None:
        self.world.not_begun(back, away)

    @rule(event=st.sampled_from([JournalAway(), JournalBack(), JournalBack(), JournalLost()]))
    def journal(self, event: Event) -> None:
        self.world.feed(event)

    @rule(really=seldom)
    def taken(self, really: bool) -> None:
        if really:
            self.world.feed(Taken())

    @rule(kind=st.sampled_from([EditWaiting, DropWaiting]), back=few)
    def change(self, kind: type[EditWaiting | DropWaiting], back: int) -> None:
        self.world.change(kind, back)

    @rule(back=few, before=st.sampled_from([0, 1, 2, 3, None]))
    def move(self, back: int, before: int | None) -> None:
        self.world.move(back, before)

    @rule(made=mostly)
    def change_written(self, made: bool) -> None:
        self.world.change_written(made)

    @rule(
        event=st.sampled_from(
            [Cancel(), Cancel(), Cancel(frozenset()), Warm(), WorkAsked(), ReplaceProcess()]
        ),
        spares=flags,
    )
    def client(self, event: Event, spares: bool) -> None:
        stop = isinstance(event, Cancel)
        self.world.feed(replace(event, spares=spares) if stop else event)

    @rule(event=st.sampled_from([Pause(), Pause(), HoldQueue(), Go(), Go()]))
    def gate(self, event: Event) -> None:
        self.world.feed(event)

    @rule(paused=mostly, back=st.sampled_from([0, 0, 1]))
    def pause_answered(self, paused: bool, back: int) -> None:
        self.world.pause_answered(paused, back)

    @rule(event=st.sampled_from([Close(), Close(keeps_prompts=True), Shutdown()]), really=seldom)
    def end(self, event: Event, really: bool) -> None:
        if really:
            self.world.feed(event)

    @rule(times=st.integers(0, 6))
    def as_it_should(self, times: int) -> None:
        self.world.as_it_should(times)

    @rule(which=few, lost=seldom)
    def in_another_order(self, which: int, lost: bool) -> None:
        if lost:
            self.world.lost(which)
        else:
            self.world.in_another_order(which)

    @rule(which=few, how=few, permanent=seldom)
    def something_else(self, which: int, how: int, permanent: bool) -> None:
        self.world.something_else(which, how, permanent)

    @rule(kind=st.sampled_from(PROCESS), back=near, permanent=seldom)
    def process(self, kind: type[AgentEvent], back: int, permanent: bool) -> None:
        self.world.process(kind, back, permanent)

    @rule(back=near, key_back=near)
    def answer(self, back: int, key_back: int) -> None:
        self.world.answer(back, key_back)

    @rule(which=few)
    def deadline(self, which: int) -> None:
        self.world.deadline(which)

    @rule(timer=st.sampled_from(Timer), which=few)
    def old_deadline(self, timer: Timer, which: int) -> None:
        self.world.old_deadline(timer, which)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.come_to_rest(silent=self.world.keys % 2 == 0)


AnyHistory.TestCase.settings = (
    settings(max_examples=5000, stateful_step_count=80, deadline=None)
    if os.environ.get("HYPOTHESIS_PROFILE") == "long"
    else settings(
        max_examples=60,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
)


@pytest.mark.hazard("Q1", "Q2", "Q9.1", "Q11", "C10", "C21", "P12", "R16")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_after_any_storm_everybody_is_answered_once_and_in_order(seed: int) -> None:
    random = Random(seed)
    for opened, clear, always_reload, silent in product([True, False], repeat=4):
        hooks = frozenset(Moment) if seed % 2 else frozenset[Moment]()
        world = World(opened=opened, clear=clear, always_reload=always_reload, hooks=hooks)
        world.storm(random, 60)
        world.come_to_rest(silent=silent)


TestTurnMachine = pytest.mark.hazard(
    "Q1", "Q2", "Q3", "Q5", "Q9", "C1", "C2", "C3", "C5", "C10", "C14", "C20", "C21", "P12"
)(AnyHistory.TestCase)
