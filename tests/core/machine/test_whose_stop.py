"""A Stop that names the requests which it may end: those of the client that says it."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import SendCancel
from acp_bridge.core.machine.events import Cancel, CancelPrompt, Committed, Pause, PromptReceived
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
