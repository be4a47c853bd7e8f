"""A session that another bridge has taken: nothing of it lives here, then clients are told."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import (
    CloseAgent,
    CloseCards,
    Closed,
    Failure,
    Kill,
    Release,
    RunHooks,
    StopHooks,
    TellTaken,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    Cancel,
    Close,
    HookBegan,
    HookEnded,
    HooksDone,
    Moment,
    Taken,
    Timer,
    TreeDead,
    Warm,
)
from acp_bridge.core.machine.states import Passing, Phase
from tests.core.machine.bench import Bench, cancelled, failed

TAKEN = Taken("taken")


@pytest.mark.hazard("N3.10", "P1")
def test_its_process_is_killed_at_once_and_clients_are_told_when_that_is_dead() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.do(TAKEN) == [Kill(1)]
    assert bench.do(AgentAnswered(1, 1, "late")) == []
    ended = [CloseCards(), failed(1, Failure.TAKEN, "taken")]
    unsent = failed(2, Failure.NOT_BEGUN, "taken")
    assert bench.dead() == [Release(1), TellTaken("taken"), *ended, unsent]
    assert bench.do(TAKEN, Warm()) == []


@pytest.mark.hazard("N3", "C10")
def test_clients_are_told_when_its_hooks_are_dead_as_well() -> None:
    bench = Bench(hooks=frozenset(Moment))
    assert bench.prompt(1) == [RunHooks(1, Moment.PROMPT)]
    bench.do(HookBegan(1))
    assert bench.do(TAKEN) == [StopHooks(), Kill(1)]
    assert bench.do(TreeDead(1), HooksDone(1)) == [Release(1)]
    told = [TellTaken("taken"), failed(1, Failure.NOT_BEGUN, "taken")]
    assert bench.do(HookEnded(1)) == told


@pytest.mark.hazard("N3")
def test_an_agent_that_was_let_end_by_itself_is_killed_at_once() -> None:
    bench = Bench()
    assert bench.do(Close()) == [CloseAgent(1)]
    assert bench.do(TAKEN) == [Kill(1)]
    assert bench.dead() == [Release(1), Closed()]


@pytest.mark.hazard("N3", "C1")
def test_a_turn_that_is_being_cancelled_is_killed_and_answered_as_cancelled() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Cancel())
    assert bench.do(TAKEN) == [Kill(1)]
    assert bench.dead() == [Release(1), TellTaken("taken"), CloseCards(), cancelled(1)]


def test_clients_are_told_in_time_of_a_process_that_does_not_die() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(TAKEN)
    ended = [TellTaken("taken"), CloseCards(), failed(1, Failure.TAKEN, "taken")]
    assert bench.fire(Timer.KILL) == ended
    assert bench.do(Close()) == [Kill(1)]


def test_from_then_on_it_takes_no_request_and_hears_no_agent_until_it_is_closed() -> None:
    bench = Bench()
    bench.do(TAKEN)
    said = [(bench.now.taken, bench.now.permits.requests, bench.now.phase(1))]
    bench.dead()
    said.append((bench.now.taken, bench.now.permits.requests, bench.now.phase(1)))
    assert said == [(True, Passing.REFUSED, Phase.NOTHING)] * 2
    bench.do(Close())
    assert bench.now.permits.requests is Passing.GONE


@pytest.mark.hazard("P1")
def test_a_spare_process_is_killed_with_it() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Cancel())
    bench.fire(Timer.SPARE)
    assert bench.do(TAKEN) == [Kill(1), Kill(2)]
