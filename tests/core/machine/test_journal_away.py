"""A journal that is away and comes back: what was accepted waits, and is sent once; a test each."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import (
    CloseAgent,
    CloseCards,
    Effect,
    EndTurn,
    Failure,
    LeaveOver,
    Queued,
    Release,
    RunHooks,
    SendCancel,
    SendPrompt,
    Start,
    Steer,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentExited,
    Cancel,
    CancelPrompt,
    Close,
    Committed,
    Go,
    HoldQueue,
    JournalAway,
    JournalBack,
    JournalLost,
    MaySteer,
    Moment,
    NotBegun,
    PromptReceived,
    RunLeftOver,
    Shutdown,
    Sleep,
    StartFailed,
    SteerAnswered,
    Steered,
    Warm,
)
from tests.core.machine.bench import Bench, cancelled, failed, replied


def waiting(*keys: int) -> Bench:
    """Return a machine whose first prompt could not be noted as sent; the others wait behind it."""
    bench = Bench()
    bench.prompt(*keys or (1, 2))
    assert bench.do(NotBegun(1, away=True)) == []
    return bench


@pytest.mark.hazard("N4.2", "Q5")
def test_a_prompt_that_could_not_be_noted_waits_as_the_next_until_the_journal_is_back() -> None:
    bench = waiting(1, 2)
    assert (bench.state, bench.now.waiting) == ("IDLE", (1, 2))
    assert bench.do(JournalBack()) == [SendPrompt(1, 1)]
    assert bench.answer() == [replied(1), SendPrompt(1, 2)]


@pytest.mark.hazard("N4")
def test_a_prompt_that_can_never_be_noted_is_answered_with_the_reason() -> None:
    bench = Bench()
    bench.prompt(1)
    assert bench.do(NotBegun(1, detail="taken")) == [failed(1, Failure.NOT_BEGUN, "taken")]


def test_it_may_be_away_again_and_again() -> None:
    bench = waiting(1, 2)
    for _ in range(3):
        assert bench.do(JournalBack(), NotBegun(1, away=True)) == [SendPrompt(1, 1)]
    assert bench.do(JournalBack()) == [SendPrompt(1, 1)]


@pytest.mark.hazard("C20.1")
def test_a_stop_or_a_cancel_of_a_prompt_that_waits_for_the_journal_answers_it_at_once() -> None:
    bench = waiting(1, 2, 3)
    assert bench.do(CancelPrompt(2)) == [cancelled(2)]
    assert bench.do(Cancel()) == [cancelled(1)]
    assert bench.do(JournalBack()) == [SendPrompt(1, 3)]


@pytest.mark.hazard("C20", "V4.8")
def test_a_stop_reaches_only_the_own_prompts_while_the_journal_is_away() -> None:
    bench = waiting(1, 2)
    assert bench.do(Cancel(frozenset({2}))) == [cancelled(2)]
    assert bench.now.waiting == (1,)


def test_a_stop_between_the_sending_and_the_journals_refusal_answers_the_prompt() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.do(Cancel()) == [SendCancel(1, 1)]
    assert bench.do(NotBegun(1, away=True)) == [CloseCards(), cancelled(1)]
    assert bench.now.waiting == (2,)
    assert bench.do(JournalBack()) == [SendPrompt(1, 2)]


def test_neither_a_hold_nor_its_end_changes_that_the_journal_is_away() -> None:
    bench = waiting(1)
    assert bench.do(HoldQueue(), JournalBack()) == []
    assert bench.do(Go()) == [SendPrompt(1, 1)]
    bench = waiting(1)
    assert bench.do(HoldQueue(), Go()) == []
    assert bench.do(JournalBack()) == [SendPrompt(1, 1)]


def test_a_session_that_ends_answers_or_leaves_over_what_waits_for_the_journal() -> None:
    assert waiting(1, 2).do(Close())[:2] == [cancelled(1), cancelled(2)]
    kept = [failed(key, Failure.KEPT) for key in (1, 2)]
    assert waiting(1, 2).do(Close(keeps_prompts=True))[:2] == kept
    assert waiting(1, 2).do(Shutdown())[0] == LeaveOver((1, 2))


@pytest.mark.hazard("Q11")
def test_hooks_about_a_prompt_that_waits_for_the_journal_are_not_asked_twice() -> None:
    bench = Bench(hooks=frozenset({Moment.PROMPT}))
    assert bench.prompt(1) == [RunHooks(1, Moment.PROMPT)]
    assert bench.hooks(1) == [SendPrompt(1, 1)]
    assert bench.do(NotBegun(1, away=True), JournalBack()) == [SendPrompt(1, 1)]


def test_no_hook_runs_before_a_prompt_while_the_journal_is_away() -> None:
    bench = Bench(hooks=frozenset({Moment.PROMPT}))
    bench.do(JournalAway())
    assert bench.prompt(1) == []
    assert bench.do(JournalBack()) == [RunHooks(1, Moment.PROMPT)]


def test_a_hooks_feedback_waits_for_the_journal_before_all_others() -> None:
    bench = Bench(hooks=frozenset({Moment.TURN_END}))
    bench.prompt(1, 2)
    assert bench.answer("x")[0] == EndTurn(1, "x")
    bench.hooks(1, feedback=6)
    assert bench.do(Committed(6)) == [SendPrompt(1, 6)]
    assert bench.do(NotBegun(6, away=True)) == []
    assert bench.now.waiting == (6, 2)
    assert bench.do(JournalBack()) == [SendPrompt(1, 6)]


def test_a_prompt_of_a_queue_run_waits_for_the_journal_and_its_request_stays_open() -> None:
    bench = Bench()
    bench.do(RunLeftOver(9, (1, 2)))
    assert bench.do(NotBegun(1, away=True)) == []
    assert bench.now.unanswered == (9,)
    assert bench.do(JournalBack()) == [SendPrompt(1, 1)]


def test_words_for_a_turn_that_could_not_be_noted_come_behind_its_prompt() -> None:
    bench = Bench(steers=True)
    bench.prompt(1, 2)
    bench.do(MaySteer(1))
    assert bench.do(PromptReceived(3, steers=True), Committed(3))[-1] == Steer(1, 3)
    bench.do(PromptReceived(4, steers=True), Committed(4))
    assert bench.do(NotBegun(1, away=True)) == [Queued(4)]
    assert bench.do(SteerAnswered(3, Steered.NOT_TAKEN)) == [Queued(3)]
    assert bench.now.waiting == (1, 3, 4, 2)


@pytest.mark.hazard("N4.6")
def test_what_waits_is_answered_when_the_journal_is_lost_and_the_turn_goes_on() -> None:
    bench = Bench()
    bench.prompt(1, 2, 3)
    bench.do(PromptReceived(4))
    lost = [failed(key, Failure.NOT_BEGUN, "taken") for key in (2, 3)]
    assert bench.do(JournalLost("taken")) == lost
    assert bench.now.waiting == (4,)
    assert bench.answer() == [replied(1)]


def test_a_prompt_that_waits_for_the_journal_is_answered_when_that_is_lost() -> None:
    bench = waiting(1)
    assert bench.do(JournalLost("taken")) == [failed(1, Failure.NOT_BEGUN, "taken")]


# --- the agent meanwhile --------------------------------------------------------------------------


def test_an_agent_that_ends_while_the_journal_is_away_is_followed_by_none_before_that_is_back() -> (
    None
):
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(JournalAway(), AgentExited(1))
    ends: list[Effect] = [Release(1), CloseCards(), failed(1, Failure.AGENT_DIED)]
    assert bench.dead() == ends
    assert (bench.state, bench.now.waiting) == ("COLD", (2,))
    assert bench.do(JournalBack()) == [Start(2)]
    assert bench.ready()[-1] == SendPrompt(2, 2)


def test_a_process_that_is_wanted_while_another_falls_asleep_is_not_started_by_that_end() -> None:
    bench = Bench()
    bench.do(Sleep(1), Warm(), JournalAway())
    assert bench.dead() == [Release(1)]
    assert bench.state == "COLD"


def test_no_prompt_is_refused_because_no_process_starts_while_the_journal_is_away() -> None:
    bench = Bench(epoch=0)
    bench.prompt(1)
    bench.do(JournalAway())
    for epoch in (1, 2, 3):
        bench.do(StartFailed(epoch))
    assert (bench.state, bench.now.waiting) == ("BLOCKED", (1,))
    assert bench.do(JournalBack()) == [Start(4)]


def test_a_prompt_of_which_a_dead_agent_had_nothing_waits_for_the_next_one() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(AgentExited(1))
    assert bench.do(NotBegun(1, away=True)) == []
    assert bench.dead() == [Release(1)]
    assert bench.do(JournalBack()) == [Start(2)]


def test_an_answer_to_a_prompt_that_was_not_sent_is_dropped() -> None:
    bench = waiting(1)
    answer = AgentAnswered(1, 1, "x")
    assert bench.do(answer) == []
    assert bench.dropped == [answer]


def test_a_prompt_that_can_never_be_noted_says_nothing_of_a_journal_that_is_away() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(JournalAway())
    assert bench.do(NotBegun(1)) == [failed(1, Failure.NOT_BEGUN)]
    assert bench.do(JournalBack()) == [SendPrompt(1, 2)]


def test_a_prompt_that_cannot_be_noted_while_its_session_closes_is_cancelled() -> None:
    bench = Bench()
    bench.prompt(1)
    assert bench.do(Close()) == [SendCancel(1, 1)]
    assert bench.do(NotBegun(1, away=True)) == [CloseCards(), cancelled(1), CloseAgent(1)]
