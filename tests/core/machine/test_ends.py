"""The decisions about left-over prompts, `close`, and a bridge that ends, a test for each."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    CloseAgent,
    CloseCards,
    Closed,
    Done,
    Failure,
    Interrupted,
    Kill,
    Leave,
    LeaveOver,
    NoteOutcome,
    Open,
    Release,
    SendCancel,
    SendPrompt,
    Start,
)
from acp_bridge.core.machine.events import (
    AgentExited,
    Cancel,
    CancelPrompt,
    Close,
    Committed,
    Event,
    Loaded,
    NeedsAuth,
    PromptReceived,
    ReplaceProcess,
    RunLeftOver,
    Shutdown,
    Started,
    StartFailed,
    Timer,
    TreeDead,
    Warm,
)
from tests.core.machine.bench import Bench, cancelled, failed, replied

#: the key of `/queue run` in these tests; left-over prompts are 11, 12, 13.
RUN = 9


def done(key: int = RUN) -> AnswerPrompt:
    return AnswerPrompt(key, Done())


# --- left-over prompts ----------------------------------------------------------------------------


@pytest.mark.hazard("R12", "Q9")
def test_left_over_prompts_run_behind_the_queue_and_their_carrier_is_answered_after_the_last() -> (
    None
):
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.do(RunLeftOver(RUN, (11, 12))) == []
    assert bench.now.waiting == (2, 11, 12)
    bench.answer()
    assert bench.answer() == [replied(2), SendPrompt(1, 11)]
    assert bench.answer() == [replied(11), SendPrompt(1, 12)]
    assert bench.answer() == [replied(12), done()]


def test_a_carrier_of_nothing_is_answered_at_once_and_a_left_over_prompt_starts_an_agent() -> None:
    bench = Bench(epoch=0)
    assert bench.do(RunLeftOver(RUN, ())) == [done()]
    assert bench.do(RunLeftOver(RUN, (11,))) == [Start(1)]
    assert bench.ready() == [Open(1), SendPrompt(1, 11)]


@pytest.mark.hazard("Q7.2")
def test_a_left_over_prompt_that_is_run_twice_is_a_bug_and_nothing_happens() -> None:
    bench = Bench()
    bench.do(RunLeftOver(RUN, (11, 12)))
    for event in (RunLeftOver(8, (12,)), RunLeftOver(RUN, (13,)), PromptReceived(RUN)):
        with pytest.raises(ValueError, match="received twice"):
            bench.do(event)
    assert (bench.now.running, bench.now.waiting) == (11, (12,))


@pytest.mark.hazard("R12.4")
def test_stop_during_a_left_over_prompt_puts_the_rest_back_and_answers_the_carrier_last() -> None:
    for stop in (Cancel(), CancelPrompt(RUN), CancelPrompt(11)):
        bench = Bench()
        bench.do(RunLeftOver(RUN, (11, 12, 13)))
        bench.prompt(2)
        assert bench.do(stop) == [SendCancel(1, 11), LeaveOver((12, 13))]
        assert bench.answer()[-3:] == [cancelled(11), cancelled(RUN), SendPrompt(1, 2)]


@pytest.mark.hazard("R12.4")
def test_stop_before_the_first_left_over_prompt_runs_puts_them_all_back() -> None:
    for stop in (Cancel(), CancelPrompt(RUN)):
        bench = Bench(epoch=0)
        bench.do(RunLeftOver(RUN, (11, 12)))
        bench.prompt(2)
        assert bench.do(stop) == [LeaveOver((11, 12)), cancelled(RUN)]
        assert bench.now.waiting == (2,)


def test_stop_of_another_turn_keeps_left_over_prompts_in_the_queue_unless_all_are_cleared() -> None:
    bench, clearing = Bench(), Bench(clear_on_cancel=True)
    for one in (bench, clearing):
        one.prompt(1)
        one.do(RunLeftOver(RUN, (11,)))
    assert bench.do(Cancel()) == [SendCancel(1, 1)]
    assert bench.now.waiting == (11,)
    assert clearing.do(Cancel()) == [SendCancel(1, 1), LeaveOver((11,)), cancelled(RUN)]


def test_a_left_over_prompt_that_is_run_again_after_a_stop_runs() -> None:
    bench = Bench(epoch=0)
    bench.do(RunLeftOver(RUN, (11,)), Cancel())
    assert bench.do(RunLeftOver(10, (11,)), Started(1), Loaded(1))[-1] == (SendPrompt(1, 11))
    assert bench.answer() == [replied(11), done(10)]


def test_a_superseder_of_a_left_over_prompt_goes_between_it_and_the_rest() -> None:
    bench = Bench()
    bench.do(RunLeftOver(RUN, (11, 12)))
    assert bench.prompt(2, interrupt=True) == [SendCancel(1, 11)]
    assert bench.answer()[-2:] == [cancelled(11), SendPrompt(1, 2)]
    assert bench.answer() == [replied(2), SendPrompt(1, 12)]
    assert bench.answer() == [replied(12), done()]


def test_a_carrier_ends_as_its_last_prompt_did() -> None:
    bench = Bench()
    bench.do(RunLeftOver(RUN, (11,)), AgentExited(1, "x"))
    died = (failed(11, Failure.AGENT_DIED, "x"), failed(RUN, Failure.AGENT_DIED, "x"))
    assert bench.dead()[2:4] == list(died)


@pytest.mark.hazard("R12", "C21.2")
def test_left_over_prompts_that_cannot_run_are_put_back_and_the_carrier_gets_the_error() -> None:
    bench = Bench(epoch=0)
    bench.do(RunLeftOver(RUN, (11, 12)))
    bench.do(RunLeftOver(8, (13,)))
    assert bench.do(StartFailed(1, permanent=True, detail="x")) == [
        Release(1),
        LeaveOver((11, 12, 13)),
        failed(RUN, Failure.NO_AGENT, "x"),
        failed(8, Failure.NO_AGENT, "x"),
    ]


# --- close ----------------------------------------------------------------------------------------


@pytest.mark.hazard("Q9.1")
def test_close_answers_running_and_waiting_prompts_cancelled_and_lets_the_agent_close() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(PromptReceived(3))
    assert bench.do(Close()) == [cancelled(2), cancelled(3), SendCancel(1, 1)]
    assert bench.answer("x") == [
        NoteOutcome(1, "x"),
        CloseCards(),
        cancelled(1),
        CloseAgent(1),
    ]
    assert set(bench.armed) == {Timer.KILL}
    assert bench.do(AgentExited(1), Committed(3)) == []
    assert bench.dead() == [Release(1), Closed()]
    assert (bench.state, bench.armed) == ("CLOSED", {})


@pytest.mark.hazard("C8.1", "C21.1")
def test_close_of_a_session_whose_agent_ignores_cancel_ends_with_a_kill() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Close())
    assert bench.fire(Timer.SPARE) == []
    assert bench.fire(Timer.DRAIN) == [Kill(1)]
    assert bench.dead() == [Release(1), CloseCards(), cancelled(1), Closed()]


def test_close_during_a_drain_drops_the_spare_and_needs_no_reload() -> None:
    bench = Bench(always_reload=True)
    bench.prompt(1)
    bench.do(Cancel())
    bench.fire(Timer.SPARE)
    assert bench.do(Close()) == [Kill(2)]
    assert bench.answer()[1:] == [CloseCards(), cancelled(1), CloseAgent(1)]
    assert bench.dead() == [Release(1)]
    assert bench.do(TreeDead(2)) == [Release(2), Closed()]


def test_close_while_a_dead_agents_turn_is_put_in_order_answers_it_cancelled() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(AgentExited(1))
    assert bench.do(Close()) == []
    assert bench.dead() == [Release(1), CloseCards(), cancelled(1), Closed()]


@pytest.mark.parametrize("end", [Close(), Shutdown()])
def test_the_end_of_a_session_without_a_process_is_at_once(end: Event) -> None:
    blocked, cold = Bench(epoch=0), Bench(epoch=0)
    blocked.do(Warm(), StartFailed(1, permanent=True))
    for bench in (cold, blocked):
        assert bench.do(end) == [Closed()]


@pytest.mark.parametrize("end", [Close(), Shutdown()])
def test_the_end_of_an_idle_session_lets_the_agent_close_by_itself(end: Event) -> None:
    bench = Bench()
    assert bench.do(end) == [CloseAgent(1)]
    assert bench.dead() == [Release(1), Closed()]


@pytest.mark.hazard("P1")
@pytest.mark.parametrize(
    ("end", "before"),
    [
        (Close(), []),
        (Shutdown(), []),
        (Shutdown(), [Started(1)]),
        (Shutdown(), [Started(1), NeedsAuth(1)]),
    ],
)
def test_the_end_of_a_session_kills_a_process_that_is_not_ready(
    end: Event, before: list[Event]
) -> None:
    bench = Bench(epoch=0)
    bench.do(Warm(), *before)
    assert bench.do(end) == [Kill(1)]
    assert bench.dead() == [Release(1), Closed()]


@pytest.mark.hazard("P18.6")
@pytest.mark.parametrize("before", [[Started(1)], [Started(1), NeedsAuth(1)]])
def test_a_close_leaves_a_process_that_is_given_the_session_to_the_others(
    before: list[Event],
) -> None:
    bench = Bench(epoch=0)
    bench.do(Warm(), *before)
    assert bench.do(Close()) == [Leave(1)]
    assert bench.dead() == [Release(1), Closed()]


@pytest.mark.hazard("P1", "C21")
def test_the_end_of_a_session_tries_once_more_to_kill_and_gives_up_after_the_deadline() -> None:
    bench = Bench()
    bench.do(AgentExited(1))
    bench.fire(Timer.KILL)
    assert bench.do(Close()) == [Kill(1)]
    assert bench.fire(Timer.KILL) == [Release(1), Closed()]
    assert bench.dead() == []


@pytest.mark.hazard("Q9")
def test_what_comes_after_the_close_is_refused_or_without_effect() -> None:
    bench = Bench()
    bench.do(Close())
    for _ in range(2):
        assert bench.do(PromptReceived(5)) == [failed(5, Failure.CLOSED)]
        assert bench.do(RunLeftOver(6, (11,))) == [failed(6, Failure.CLOSED)]
        assert bench.do(Cancel(), CancelPrompt(5), Close(), ReplaceProcess()) == []
        bench.dead()
    assert bench.do(Close(), Shutdown(), Warm()) == []
    assert bench.state == "CLOSED"


# --- the client goes ------------------------------------------------------------------------------


@pytest.mark.hazard("Q6.1", "R12.1")
def test_when_the_client_goes_the_running_turn_is_interrupted_and_the_waiting_are_left_over() -> (
    None
):
    bench = Bench()
    bench.prompt(1, 2)
    bench.prompt(3, interrupt=False)
    assert bench.do(Shutdown()) == [
        LeaveOver((2, 3)),
        CloseCards(),
        Interrupted(1),
        CloseAgent(1),
    ]
    assert bench.answer() == []
    assert bench.dead() == [Release(1), Closed()]


def test_when_the_client_goes_a_cancelled_turn_is_cancelled_and_not_interrupted() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Cancel())
    assert bench.do(Shutdown()) == [CloseCards(), cancelled(1), CloseAgent(1)]
    assert set(bench.armed) == {Timer.KILL}


def test_when_the_client_goes_while_a_tree_dies_its_turn_ends_at_once() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(AgentExited(1, "x"))
    assert bench.do(Shutdown()) == [
        LeaveOver((2,)),
        CloseCards(),
        failed(1, Failure.AGENT_DIED, "x"),
    ]
    assert bench.dead() == [Release(1), Closed()]


def test_when_the_client_goes_during_a_close_the_close_is_hurried() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Close())
    assert bench.do(Shutdown()) == [CloseCards(), cancelled(1), CloseAgent(1)]
    assert bench.do(Close(), Shutdown()) == []
    assert bench.dead() == [Release(1), Closed()]
