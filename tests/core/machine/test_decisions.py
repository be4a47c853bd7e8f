"""The decisions about prompts and cancels, a test for each."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import (
    CloseCards,
    Commit,
    Failure,
    NoteOutcome,
    Open,
    Queued,
    Release,
    SendCancel,
    SendPrompt,
    Start,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentExited,
    Cancel,
    CancelPrompt,
    CommitFailed,
    Committed,
    Event,
    Loaded,
    PromptReceived,
    Started,
    Timer,
    Warm,
)
from acp_bridge.core.machine.states import Phase, State
from acp_bridge.core.machine.turns import TurnMachine
from tests.core.machine.bench import Bench, cancelled, failed, replied

# --- accepting and order ------------------------------------------------------------------------


def test_a_prompt_is_sent_when_it_is_committed_and_not_before() -> None:
    bench = Bench()
    assert bench.do(PromptReceived(1)) == [Commit(1)]
    assert bench.do(Committed(1)) == [SendPrompt(1, 1)]
    assert (bench.state, bench.now.running, bench.now.waiting) == ("RUNNING", 1, ())


@pytest.mark.hazard("Q3.3")
def test_prompts_run_in_the_order_of_reading_even_if_committed_in_another() -> None:
    bench = Bench()
    bench.do(PromptReceived(1), PromptReceived(2))
    assert bench.do(Committed(2)) == []
    assert bench.do(Committed(1)) == [SendPrompt(1, 1)]
    assert bench.answer() == [replied(1), SendPrompt(1, 2)]


@pytest.mark.hazard("Q2.2")
def test_a_second_prompt_during_a_turn_waits_for_its_end() -> None:
    bench = Bench()
    bench.prompt(1)
    assert bench.prompt(2, 3) == []
    assert bench.now.waiting == (2, 3)
    assert bench.answer("one") == [replied(1, "one"), SendPrompt(1, 2)]
    assert bench.answer("two") == [replied(2, "two"), SendPrompt(1, 3)]
    assert bench.answer("three") == [replied(3, "three")]
    assert bench.state == "IDLE"


@pytest.mark.hazard("Q10.2")
def test_a_prompt_is_written_down_at_once_whatever_the_agent_is_doing() -> None:
    cold, running, killing = Bench(epoch=0), Bench(), Bench()
    cold.do(Warm())
    running.prompt(1)
    killing.do(AgentExited(1))
    for bench in (cold, running, killing):
        assert bench.do(PromptReceived(9)) == [Commit(9)]
        assert bench.do(Committed(9)) == []


def test_a_prompt_that_cannot_be_written_is_refused_and_the_next_goes_on() -> None:
    bench = Bench()
    bench.do(PromptReceived(1))
    bench.prompt(2)
    assert bench.do(CommitFailed(1, "disk full")) == [
        failed(1, Failure.JOURNAL, "disk full"),
        SendPrompt(1, 2),
    ]


@pytest.mark.hazard("Q7.1")
def test_a_commit_that_is_reported_twice_or_taken_back_changes_nothing() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    again: list[Event] = [
        Committed(1),
        Committed(2),
        CommitFailed(2),
        Committed(77),
    ]
    assert bench.do(*again) == []
    assert (bench.now.running, bench.now.waiting) == (1, (2,))


@pytest.mark.hazard("Q7.1")
@pytest.mark.parametrize("key", [1, 2])
def test_a_prompt_that_is_received_twice_is_a_bug_and_nothing_happens(key: int) -> None:
    bench = Bench()
    bench.prompt(1, 2)
    with pytest.raises(ValueError, match="received twice"):
        bench.do(PromptReceived(key))
    assert (bench.now.running, bench.now.waiting) == (1, (2,))
    assert bench.answer() == [replied(1), SendPrompt(1, 2)]


@pytest.mark.hazard("Q3.1", "Q5")
def test_an_answer_to_another_prompt_or_of_another_process_ends_no_turn() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.answer()
    strays = [AgentAnswered(*of, "not this one") for of in [(1, 1), (1, 3), (0, 2), (2, 2)]]
    assert bench.do(*strays) == []
    assert bench.dropped == strays
    assert bench.now.running == 2


def test_by_default_there_is_no_process_a_cancel_spares_the_queue_and_reloads_nothing() -> None:
    assert TurnMachine().snapshot.state is State.COLD
    turns = TurnMachine(epoch=1)
    for key in (1, 2):
        turns.step(PromptReceived(key))
        turns.step(Committed(key))
    turns.step(Cancel())
    assert turns.step(AgentAnswered(1, 1))[-1] == SendPrompt(1, 2)


def test_by_default_no_words_join_a_turn() -> None:
    turns = TurnMachine(epoch=1)
    for event in (PromptReceived(1), Committed(1), PromptReceived(2, steers=True)):
        turns.step(event)
    assert turns.step(Committed(2)) == [Queued(2)]


# --- cancel ---------------------------------------------------------------------------------------


@pytest.mark.hazard("C1.3")
def test_a_cancel_with_nothing_unanswered_does_nothing_to_the_next_prompt() -> None:
    bench = Bench()
    assert bench.do(Cancel()) == []
    assert bench.prompt(1) == [SendPrompt(1, 1)]
    assert bench.answer() == [replied(1)]


@pytest.mark.hazard("C3.1", "C5.1", "C13.1")
def test_a_cancelled_prompt_answers_cancelled_whatever_the_agent_says_and_that_is_noted() -> None:
    for said in ("end_turn", {"error": "boom"}):
        bench = Bench()
        bench.prompt(1)
        assert bench.do(Cancel()) == [SendCancel(1, 1)]
        assert bench.state == "DRAINING"
        assert bench.answer(said) == [NoteOutcome(1, said), CloseCards(), cancelled(1)]
        assert (bench.state, bench.now.phase(1)) == ("IDLE", Phase.LEAK)
        assert not bench.armed


@pytest.mark.hazard("C2.2")
def test_a_cancel_after_the_answer_reaches_neither_the_agent_nor_the_next_turn() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.answer()
    assert bench.do(Cancel()) == []
    assert bench.prompt(2) == [SendPrompt(1, 2)]
    assert bench.answer() == [replied(2)]


@pytest.mark.hazard("C7.2")
def test_repeated_cancels_of_a_turn_are_one_and_the_queue_goes_on_in_order() -> None:
    bench = Bench()
    bench.prompt(1, 2, 3)
    assert bench.do(*[Cancel()] * 3) == [SendCancel(1, 1)]
    assert bench.answer("x") == [
        NoteOutcome(1, "x"),
        CloseCards(),
        cancelled(1),
        SendPrompt(1, 2),
    ]
    assert bench.now.phase(1) is Phase.LIVE
    assert bench.answer() == [replied(2), SendPrompt(1, 3)]


@pytest.mark.hazard("C3.1", "C20.1", "C20.2")
def test_a_cancel_while_the_prompt_is_being_committed_answers_it_and_the_agent_never_sees_it() -> (
    None
):
    bench = Bench()
    bench.do(PromptReceived(1))
    assert bench.do(Cancel()) == [cancelled(1)]
    assert bench.do(Committed(1), CommitFailed(1)) == []
    assert bench.state == "IDLE"


@pytest.mark.hazard("Q1", "C20.1")
def test_what_waited_behind_a_prompt_that_is_cancelled_while_committed_goes_on_at_once() -> None:
    for cancel in (Cancel(), CancelPrompt(1)):
        bench = Bench()
        bench.do(PromptReceived(1))
        bench.prompt(2)
        assert bench.do(cancel) == [cancelled(1), SendPrompt(1, 2)]


@pytest.mark.hazard("C3.1")
def test_a_cancel_while_the_agent_starts_or_reloads_answers_at_once() -> None:
    bench = Bench(epoch=0)
    assert bench.prompt(1, 2) == [Start(1)]
    assert bench.do(Cancel()) == [cancelled(1)]
    assert bench.do(Started(1)) == [Open(1)]
    assert bench.do(Cancel()) == [cancelled(2)]
    assert bench.do(Loaded(1)) == []
    assert bench.state == "IDLE"


def test_on_cancel_clear_answers_the_queue_too() -> None:
    bench = Bench(clear_on_cancel=True)
    bench.prompt(1, 2)
    bench.do(PromptReceived(3))
    assert bench.do(Cancel()) == [SendCancel(1, 1), cancelled(2), cancelled(3)]
    assert bench.answer()[-1] == cancelled(1)
    waiting = Bench(epoch=0, clear_on_cancel=True)
    waiting.prompt(1, 2)
    assert waiting.do(Cancel()) == [cancelled(1), cancelled(2)]


@pytest.mark.hazard("Q9.2")
def test_cancel_request_of_a_queued_prompt_removes_it_and_of_an_unknown_one_nothing() -> None:
    bench = Bench()
    bench.prompt(1, 2, 3)
    assert bench.do(CancelPrompt(2)) == [cancelled(2)]
    assert bench.do(CancelPrompt(2), CancelPrompt(99)) == []
    assert bench.answer() == [replied(1), SendPrompt(1, 3)]


def test_cancel_request_of_the_running_prompt_is_as_session_cancel() -> None:
    bench = Bench(clear_on_cancel=True)
    bench.prompt(1, 2)
    assert bench.do(CancelPrompt(1)) == [SendCancel(1, 1), cancelled(2)]


# --- superseding ----------------------------------------------------------------------------------


def test_a_superseder_sends_one_cancel_and_runs_next() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.prompt(3, interrupt=True) == [SendCancel(1, 1)]
    assert bench.now.waiting == (3, 2)
    assert bench.answer()[-2:] == [cancelled(1), SendPrompt(1, 3)]
    assert bench.answer() == [replied(3), SendPrompt(1, 2)]


def test_two_superseders_send_one_cancel_between_them_and_the_newest_runs_first() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.prompt(3, 4, interrupt=True) == [SendCancel(1, 1)]
    assert bench.now.waiting == (4, 3, 2)
    assert bench.answer()[-1] == SendPrompt(1, 4)
    assert bench.answer() == [replied(4), SendPrompt(1, 3)]


def test_a_superseder_cancels_nothing_before_it_is_committed() -> None:
    bench = Bench()
    bench.prompt(1)
    assert bench.do(PromptReceived(2, interrupt=True)) == [Commit(2)]
    assert bench.do(CommitFailed(2)) == [failed(2, Failure.JOURNAL)]
    assert bench.answer() == [replied(1)]


@pytest.mark.hazard("C1.1")
def test_a_superseder_cancels_only_what_was_the_oldest_when_it_was_read() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(PromptReceived(2, interrupt=True), PromptReceived(3, interrupt=True))
    assert bench.answer() == [replied(1)]
    assert bench.do(Committed(3)) == [SendPrompt(1, 3)]
    assert bench.do(Committed(2)) == []
    assert bench.answer() == [replied(3), SendPrompt(1, 2)]


def test_a_superseder_takes_the_place_of_a_prompt_that_waits_for_the_agent_to_start() -> None:
    bench = Bench(epoch=0)
    bench.prompt(1, 2)
    assert bench.prompt(3, interrupt=True) == [cancelled(1)]
    assert bench.ready() == [Open(1), SendPrompt(1, 3)]
    assert bench.answer() == [replied(3), SendPrompt(1, 2)]


def test_a_superseder_with_nothing_to_supersede_is_a_prompt() -> None:
    bench = Bench()
    assert bench.prompt(1, interrupt=True) == [SendPrompt(1, 1)]
    assert bench.answer() == [replied(1)]


@pytest.mark.hazard("C11.2")
def test_the_users_cancel_cancels_a_waiting_superseder_too_at_any_moment() -> None:
    for committed in (True, False):
        bench = Bench()
        bench.prompt(1, 2)
        bench.do(PromptReceived(3, interrupt=True))
        if committed:
            bench.do(Committed(3))
        effects = bench.do(Cancel(), Committed(3))
        assert effects == ([] if committed else [SendCancel(1, 1)]) + [cancelled(3)]
        assert bench.answer()[-2:] == [cancelled(1), SendPrompt(1, 2)]


@pytest.mark.hazard("C11.2")
def test_the_users_cancel_during_the_kill_still_cancels_a_superseder() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.prompt(2, interrupt=True)
    bench.fire(Timer.DRAIN)
    assert bench.do(Cancel()) == [cancelled(2)]
    assert bench.dead()[:3] == [Release(1), CloseCards(), cancelled(1)]


@pytest.mark.hazard("C1")
def test_a_superseder_that_is_read_after_the_users_cancel_runs() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Cancel())
    assert bench.prompt(2, interrupt=True) == []
    assert bench.answer()[-2:] == [cancelled(1), SendPrompt(1, 2)]


@pytest.mark.hazard("C1.2")
def test_what_finds_nothing_to_do_is_dropped_visibly() -> None:
    bench = Bench()
    late: list[Event] = [Cancel(), CancelPrompt(7), Committed(7), CommitFailed(7), Warm()]
    assert bench.do(*late) == []
    assert bench.dropped == late
    bench.prompt(1)
    unknown: list[Event] = [CancelPrompt(7), Committed(1), CommitFailed(1)]
    assert bench.do(*unknown) == []
    assert bench.dropped == late + unknown
