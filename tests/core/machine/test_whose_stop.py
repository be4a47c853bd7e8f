"""A Stop that names the requests which it may end, those of the client that says it, and whether
it spares what runs in the background."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import CloseCards, SendCancel, StopWork
from acp_bridge.core.machine.events import (
    Cancel,
    CancelPrompt,
    Close,
    Committed,
    Event,
    Pause,
    PromptReceived,
    Timer,
    WorkAsked,
    WorkOver,
    WorkSeen,
)
from acp_bridge.core.machine.states import Standstill
from tests.core.machine.bench import Bench, cancelled

pytestmark = pytest.mark.hazard("V4")


def own(*requests: int) -> Cancel:
    return Cancel(frozenset(requests))


@pytest.mark.hazard("V4.8")
def test_it_ends_the_oldest_of_them_where_it_waits_and_leaves_the_turn_of_another() -> None:
    bench = Bench()
    bench.prompt(1, 2, 3, 4)
    assert bench.do(own(3, 4)) == [cancelled(3)]
    assert (bench.state, bench.now.waiting) == ("RUNNING", (2, 4))
    assert bench.now.unanswered == (1, 2, 4)


@pytest.mark.hazard("V4.8")
def test_it_ends_the_turn_that_is_theirs() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert SendCancel(1, 1) in bench.do(own(1))
    assert bench.state == "DRAINING"


def test_it_does_nothing_for_requests_that_are_answered_or_unknown() -> None:
    bench = Bench()
    bench.prompt(1)
    assert bench.do(own(7), own()) == []
    assert (bench.state, bench.dropped) == ("RUNNING", [own(7), own()])


@pytest.mark.hazard("V4.8")
def test_where_a_stop_clears_it_clears_theirs_alone() -> None:
    bench = Bench(clear_on_cancel=True)
    bench.prompt(1, 2, 3, 4)
    assert bench.do(own(2, 4)) == [cancelled(2), cancelled(4)]
    bench.do(own(1))
    assert bench.now.waiting == (3,)


def test_a_prompt_that_takes_over_is_ended_by_the_stop_of_its_own_client_alone() -> None:
    for stop in (own(1), CancelPrompt(1, frozenset({1}))):
        bench = Bench()
        bench.prompt(1)
        bench.do(PromptReceived(2, interrupt=True), Committed(2))
        bench.do(stop)
        assert bench.now.waiting == (2,)
        assert bench.do(own(2)) == [cancelled(2)]


def test_it_ends_the_pause_of_no_turn_but_theirs() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(Pause())
    stands = []
    for stop in (own(2), own(1)):
        bench.do(stop)
        stands.append(bench.now.standstill is Standstill.OPEN)
    assert stands == [False, True]


def test_one_that_names_none_means_all() -> None:
    bench = Bench(clear_on_cancel=True)
    bench.prompt(1, 2)
    assert cancelled(2) in bench.do(Cancel())
    assert bench.state == "DRAINING"


# --- what it spares -------------------------------------------------------------------------------


@pytest.mark.hazard("C16")
def test_one_that_spares_the_background_says_so_to_the_agent_and_leaves_its_cards() -> None:
    for stop in (Cancel(spares=True), CancelPrompt(1, spares=True)):
        bench = Bench()
        bench.prompt(1)
        assert bench.do(stop) == [SendCancel(1, 1, spares=True)]
        assert bench.answer()[1:] == [CloseCards(spares=True), cancelled(1)]


@pytest.mark.hazard("C25.10")
def test_of_work_without_a_prompt_too() -> None:
    bench = Bench()
    bench.do(WorkSeen(1))
    assert bench.do(Cancel(spares=True)) == [StopWork(1, spares=True)]
    bench.do(WorkOver(1), WorkAsked())
    assert bench.do(Cancel()) == [StopWork(1)]


@pytest.mark.hazard("C16")
@pytest.mark.parametrize("stop", [Cancel(), CancelPrompt(2), Close(), PromptReceived(3, True)])
def test_it_says_nothing_of_the_next_turn_whatever_ends_that(stop: Event) -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(Cancel(spares=True))
    bench.answer()
    told = bench.do(stop, Committed(3))
    assert [effect for effect in told if isinstance(effect, SendCancel)] == [SendCancel(1, 2)]
    assert CloseCards() in bench.answer()


@pytest.mark.hazard("C16")
def test_what_the_agent_was_told_to_spare_counts_whatever_comes_behind_it() -> None:
    for first, then in ((True, False), (False, True)):
        bench = Bench()
        bench.prompt(1)
        assert bench.do(Cancel(spares=first), Cancel(spares=then)) == [SendCancel(1, 1, first)]
        bench.fire(Timer.DRAIN)
        assert CloseCards(first) in bench.dead()
