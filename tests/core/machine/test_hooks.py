"""Hooks in the turn machine: before a prompt, after a turn, and those that it is only told of."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    CloseAgent,
    CloseCards,
    Closed,
    Commit,
    Done,
    Effect,
    EndTurn,
    Failure,
    Interrupted,
    Kill,
    LeaveOver,
    NoteOutcome,
    Refused,
    RefuseFeedback,
    Release,
    RunHooks,
    SendCancel,
    SendPrompt,
    Start,
    StopHooks,
    TellDeath,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentExited,
    Cancel,
    CancelPrompt,
    Close,
    CommitFailed,
    Committed,
    Go,
    HoldQueue,
    HookBegan,
    HookEnded,
    HooksDone,
    MaySteer,
    Moment,
    NotBegun,
    Pause,
    PromptReceived,
    RunLeftOver,
    Shutdown,
    StartFailed,
    Timer,
)
from acp_bridge.core.machine.states import Phase
from acp_bridge.core.machine.turns import MAX_AGAIN
from tests.core.machine.bench import Bench, cancelled, failed, replied

BEFORE, AFTER = Moment.PROMPT, Moment.TURN_END


def bench(*moments: Moment, epoch: int = 1) -> Bench:
    return Bench(epoch=epoch, hooks=frozenset(moments))


def over() -> Bench:
    """The turn of 1 has ended and its hooks run; 2 waits."""
    here = bench(AFTER)
    here.prompt(1, 2)
    assert here.answer() == [EndTurn(1, "end_turn"), RunHooks(1, AFTER, 0)]
    return here


def sent_back() -> Bench:
    """The agent works on the feedback 6 of the turn of 1; 2 waits."""
    here = over()
    assert here.hooks(1, feedback=6) == [Commit(6)]
    assert here.do(Committed(6)) == [SendPrompt(1, 6)]
    return here


# --- before a prompt ---------------------------------------------------------------------------


@pytest.mark.hazard("Q10.1", "K1")
def test_a_prompt_is_on_disk_before_its_hooks_run_and_they_run_when_its_turn_comes() -> None:
    here = bench(BEFORE)
    assert here.do(PromptReceived(1)) == [Commit(1)]
    assert here.do(PromptReceived(2)) == [Commit(2)]
    assert here.do(Committed(1)) == [RunHooks(1, BEFORE)]
    assert here.do(Committed(2)) == []
    assert here.hooks(1) == [SendPrompt(1, 1)]
    assert here.answer() == [replied(1), RunHooks(2, BEFORE)]


def test_the_agent_starts_while_the_hooks_run() -> None:
    here = bench(BEFORE, epoch=0)
    assert here.prompt(1) == [RunHooks(1, BEFORE), Start(1)]
    here.ready()
    assert here.state == "IDLE"
    assert here.hooks(1) == [SendPrompt(1, 1)]


def test_a_refused_prompt_never_reaches_the_agent_and_the_next_one_has_its_turn() -> None:
    here = bench(BEFORE)
    here.prompt(1, 2)
    assert here.hooks(1, refusal="no") == [
        AnswerPrompt(1, Refused("no")),
        RunHooks(2, BEFORE),
    ]


def test_a_left_over_prompt_that_is_refused_is_done_and_not_put_back() -> None:
    here = bench(BEFORE)
    assert here.do(RunLeftOver(9, (4, 5))) == [RunHooks(4, BEFORE)]
    assert here.hooks(4, refusal="no") == [AnswerPrompt(4, Refused("no")), RunHooks(5, BEFORE)]
    assert here.hooks(5, refusal="no") == [AnswerPrompt(5, Refused("no")), AnswerPrompt(9, Done())]


@pytest.mark.hazard("C3", "C10", "C20")
@pytest.mark.parametrize("cancel", [Cancel(), CancelPrompt(1)])
def test_a_cancel_kills_the_hooks_and_is_answered_when_they_have_ended(
    cancel: Cancel | CancelPrompt,
) -> None:
    here = bench(BEFORE)
    here.prompt(1, 2)
    assert here.do(cancel) == [StopHooks()]
    assert here.do(Cancel()) == []
    assert here.hooks(1, refusal="too late") == [cancelled(1), RunHooks(2, BEFORE)]


@pytest.mark.hazard("C5.1")
def test_a_cancel_beats_an_agent_that_could_not_be_started() -> None:
    here = bench(BEFORE, epoch=0)
    here.prompt(1)
    assert here.do(StartFailed(1, True)) == [Release(1), StopHooks()]
    assert here.do(Cancel()) == []
    assert here.hooks(1) == [cancelled(1)]


def test_an_agent_that_could_not_be_started_is_told_when_the_hooks_have_ended() -> None:
    here = bench(BEFORE, epoch=0)
    here.prompt(1)
    assert here.do(StartFailed(1, True, "why")) == [Release(1), StopHooks()]
    assert here.hooks(1) == [failed(1, Failure.NO_AGENT, "why")]


def test_a_superseder_kills_the_hooks_of_the_prompt_whose_turn_it_is() -> None:
    here = bench(BEFORE)
    here.prompt(1)
    assert here.prompt(2, interrupt=True) == [StopHooks()]
    assert here.hooks(1) == [cancelled(1), RunHooks(2, BEFORE)]


def test_stop_means_the_prompt_whose_hooks_run_and_not_an_older_one_that_waits() -> None:
    here = bench(BEFORE)
    here.prompt(1, 2)
    here.do(PromptReceived(3, interrupt=True), Committed(3))
    assert here.hooks(1) == [cancelled(1), RunHooks(3, BEFORE)]
    assert here.do(CancelPrompt(2)) == [cancelled(2)]
    assert here.do(Cancel()) == [StopHooks()]
    assert here.hooks(3) == [cancelled(3)]


@pytest.mark.hazard("Q6", "R12.1")
def test_a_prompt_whose_hooks_run_when_the_bridge_ends_is_left_over() -> None:
    here = bench(BEFORE)
    here.prompt(1, 2)
    assert here.do(Shutdown()) == [StopHooks(), LeaveOver((1, 2)), CloseAgent(1)]
    assert here.hooks(1) == []


@pytest.mark.hazard("C21")
def test_a_close_ends_when_the_hooks_have_and_in_time_if_they_do_not() -> None:
    here = bench(BEFORE)
    here.prompt(1)
    assert here.do(Close()) == [StopHooks(), CloseAgent(1)]
    assert here.dead() == [Release(1)]
    assert here.hooks(1) == [cancelled(1), Closed()]
    late = bench(BEFORE)
    late.prompt(1)
    late.do(Close())
    assert late.fire(Timer.KILL) == [Release(1), cancelled(1), Closed()]


def test_a_process_that_dies_while_hooks_run_is_replaced_and_they_do_not_run_again() -> None:
    here = bench(BEFORE)
    here.prompt(1)
    assert here.do(AgentExited(1)) == [Kill(1)]
    assert here.hooks(1) == []
    assert here.dead() == [Release(1), Start(2)]
    assert SendPrompt(2, 1) in here.ready()


# --- after a turn ------------------------------------------------------------------------------


def test_a_turn_is_answered_when_its_hooks_have_ended_and_the_next_waits_for_that() -> None:
    here = over()
    assert here.state == "IDLE"
    assert here.hooks(1) == [replied(1), SendPrompt(1, 2)]


@pytest.mark.hazard("Q11.1")
def test_feedback_is_written_down_and_runs_ahead_of_the_others_inside_the_users_prompt() -> None:
    here = sent_back()
    assert here.answer("done") == [EndTurn(6, "done"), RunHooks(6, AFTER, 1)]
    assert here.hooks(6) == [replied(6, "done"), replied(1, "done"), SendPrompt(1, 2)]


@pytest.mark.hazard("Q11")
def test_hooks_send_the_agent_back_five_times_in_a_row_and_no_more() -> None:
    here = bench(AFTER)
    here.prompt(1)
    last = 1
    for again in range(MAX_AGAIN):
        assert here.answer(f"{again}")[-1] == RunHooks(last, AFTER, again)
        assert Commit(10 + again) in here.hooks(last, feedback=10 + again)
        last = 10 + again
        assert here.do(Committed(last)) == [SendPrompt(1, last)]
    assert MAX_AGAIN == 5
    assert here.answer("at last") == [EndTurn(last, "at last"), RunHooks(last, AFTER, 5)]
    assert here.hooks(last, feedback=20) == [
        RefuseFeedback(20, enough=True),
        replied(last, "at last"),
        replied(1, "at last"),
    ]
    here.prompt(30)
    assert here.answer()[-1] == RunHooks(30, AFTER, 0)


@pytest.mark.hazard("C3", "Q11")
def test_a_stop_in_the_last_round_of_feedback_is_the_reason_why_it_ends() -> None:
    here, last = sent_back(), 6
    for key in range(7, 6 + MAX_AGAIN):
        here.answer()
        here.hooks(last, feedback=key)
        here.do(Committed(key))
        last = key
    assert here.answer()[-1] == RunHooks(last, AFTER, MAX_AGAIN)
    here.do(Cancel())
    assert here.hooks(last, feedback=20)[0] == RefuseFeedback(20, enough=False)


@pytest.mark.hazard("Q11", "Q1")
def test_feedback_at_the_finish_of_a_run_keeps_the_run_open() -> None:
    here = bench(AFTER)
    here.do(RunLeftOver(9, (4,)))
    here.answer("a")
    assert here.hooks(4, feedback=6) == [replied(4, "a"), Commit(6)]
    here.do(Committed(6))
    here.answer("b")
    assert here.hooks(6) == [replied(6, "b"), AnswerPrompt(9, Done())]


@pytest.mark.hazard("C3", "C10")
def test_stop_ends_the_hooks_of_a_turns_end_and_what_they_want() -> None:
    here = over()
    assert here.do(Cancel()) == [StopHooks()]
    assert here.hooks(1, feedback=6) == [
        RefuseFeedback(6, enough=False),
        cancelled(1),
        SendPrompt(1, 2),
    ]


@pytest.mark.hazard("C6.2")
def test_after_a_stop_in_the_hooks_of_a_turns_end_more_of_the_turn_is_a_leak() -> None:
    here = bench(AFTER)
    here.prompt(1)
    here.answer()
    assert here.now.phase(1) is Phase.LIVE
    here.do(Cancel())
    here.hooks(1)
    assert (here.state, here.now.phase(1)) == ("IDLE", Phase.LEAK)


@pytest.mark.hazard("Q7")
def test_feedback_under_the_key_of_a_prompt_that_waits_is_a_bug_and_nothing_happens() -> None:
    here = over()
    with pytest.raises(ValueError, match="received twice"):
        here.hooks(1, feedback=2)
    assert here.now.waiting == (2,)
    assert here.hooks(1)[0] == replied(1)


@pytest.mark.hazard("C20.1", "Q11")
@pytest.mark.parametrize("cancel", [Cancel(), CancelPrompt(1)])
def test_stop_ends_feedback_that_is_being_written_down(cancel: Cancel | CancelPrompt) -> None:
    here = over()
    here.hooks(1, feedback=6)
    assert here.do(cancel) == [cancelled(6), cancelled(1), SendPrompt(1, 2)]
    assert here.do(Committed(6)) == []


@pytest.mark.hazard("C3", "Q11")
@pytest.mark.parametrize("cancel", [Cancel(), CancelPrompt(1)])
def test_stop_ends_feedback_that_runs_and_the_prompt_that_it_is_about(
    cancel: Cancel | CancelPrompt,
) -> None:
    here = sent_back()
    assert here.do(cancel) == [SendCancel(1, 6)]
    assert here.do(AgentAnswered(1, 6, "cancelled")) == [
        NoteOutcome(6, "cancelled"),
        CloseCards(),
        cancelled(6),
        cancelled(1),
        SendPrompt(1, 2),
    ]


@pytest.mark.parametrize("moment", ["hooks run", "it is written down", "it runs"])
def test_a_superseder_of_a_prompt_ends_its_feedback_too(moment: str) -> None:
    here = over()
    here.do(PromptReceived(3, interrupt=True))
    if moment == "hooks run":
        assert here.do(Committed(3)) == [StopHooks()]
        assert here.hooks(1) == [cancelled(1), SendPrompt(1, 3)]
        return
    here.hooks(1, feedback=6)
    if moment == "it runs":
        here = sent_back()
        here.do(PromptReceived(3, interrupt=True))
        assert here.do(Committed(3)) == [SendCancel(1, 6)]
    else:
        assert here.do(Committed(3)) == [cancelled(6), cancelled(1), SendPrompt(1, 3)]


def test_feedback_that_can_not_be_written_leaves_the_prompt_its_own_answer() -> None:
    here = over()
    here.hooks(1, feedback=6)
    assert here.do(CommitFailed(6, "full")) == [
        failed(6, Failure.JOURNAL, "full"),
        replied(1),
        SendPrompt(1, 2),
    ]
    run = bench(AFTER)
    run.do(RunLeftOver(9, (4,)))
    run.answer("a")
    run.hooks(4, feedback=6)
    assert run.do(CommitFailed(6)) == [failed(6, Failure.JOURNAL), AnswerPrompt(9, Done())]


def test_feedback_that_can_not_be_sent_leaves_the_prompt_its_own_answer() -> None:
    here = sent_back()
    assert here.do(NotBegun(6)) == [
        failed(6, Failure.NOT_BEGUN),
        replied(1),
        SendPrompt(1, 2),
    ]


@pytest.mark.parametrize("gate", [Pause(), HoldQueue()])
def test_hooks_and_their_feedback_wait_for_the_users_go(gate: Pause | HoldQueue) -> None:
    here = over()
    assert here.do(gate) == []
    assert here.hooks(1, feedback=6) == [Commit(6)]
    assert here.do(Committed(6)) == []
    assert here.do(Go()) == [SendPrompt(1, 6)]
    before = bench(BEFORE)
    before.do(PromptReceived(1), gate, Committed(1))
    assert before.do(Go()) == [RunHooks(1, BEFORE)]


@pytest.mark.hazard("C11")
def test_stop_in_a_hook_ends_a_pause_too() -> None:
    here = over()
    here.do(Pause())
    assert here.do(Cancel()) == [StopHooks()]
    assert here.hooks(1) == [cancelled(1), SendPrompt(1, 2)]


def test_the_death_of_an_agent_that_was_sent_back_is_the_answer_to_the_prompt() -> None:
    here = sent_back()
    here.do(AgentExited(1, "why"))
    assert here.dead() == [
        Release(1),
        CloseCards(),
        failed(6, Failure.AGENT_DIED, "why"),
        failed(1, Failure.AGENT_DIED, "why"),
        Start(2),
    ]


def test_an_agent_that_dies_while_its_turns_hooks_run_is_started_for_their_feedback() -> None:
    here = over()
    assert here.do(AgentExited(1)) == [Kill(1)]
    assert here.dead() == [Release(1)]
    assert here.hooks(1, feedback=6) == [Commit(6)]
    assert here.do(Committed(6)) == [Start(2)]
    assert SendPrompt(2, 6) in here.ready()


@pytest.mark.hazard("Q6", "Q13.1")
def test_at_the_end_of_the_bridge_a_turn_is_answered_and_feedback_is_left_over_or_interrupted() -> (
    None
):
    assert over().do(Shutdown()) == [StopHooks(), replied(1), LeaveOver((2,)), CloseAgent(1)]
    waits = over()
    waits.hooks(1, feedback=6)
    assert waits.do(Shutdown()) == [LeaveOver((6, 2)), CloseAgent(1)]
    runs = sent_back()
    assert runs.do(Shutdown()) == [LeaveOver((2,)), CloseCards(), Interrupted(6), CloseAgent(1)]


def test_a_turn_that_was_cancelled_has_no_hooks() -> None:
    here = bench(AFTER)
    here.prompt(1)
    here.do(Cancel())
    assert RunHooks(1, AFTER) not in here.answer("cancelled")


def test_a_cancel_of_words_that_were_to_join_leaves_the_hooks_of_the_turn_that_is_over() -> None:
    here = Bench(hooks=frozenset({BEFORE, AFTER}), steers=True)
    here.prompt(1)
    here.hooks(1)
    out = here.do(MaySteer(1), PromptReceived(2, steers=True), Committed(2))
    assert out == [Commit(2), RunHooks(2, BEFORE)]
    assert RunHooks(1, AFTER) in here.answer()
    assert here.do(CancelPrompt(2)) == [StopHooks(2)]
    assert here.hooks(1) == [replied(1)]
    assert here.hooks(2) == [cancelled(2)]


# --- hooks that the machine is told of ---------------------------------------------------------


@pytest.mark.hazard("C10")
def test_cancelled_waits_for_a_hook_of_the_turn_whether_the_agent_answers_or_is_killed() -> None:
    answers = bench()
    answers.prompt(1)
    answers.do(HookBegan(1))
    assert answers.do(Cancel()) == [SendCancel(1, 1), StopHooks()]
    assert answers.answer("cancelled") == [NoteOutcome(1, "cancelled")]
    assert answers.do(HookEnded(1)) == [CloseCards(), cancelled(1)]
    killed = bench()
    killed.prompt(1)
    killed.do(HookBegan(1), Cancel())
    assert killed.fire(Timer.DRAIN) == [Kill(1)]
    assert killed.dead() == [Release(1)]
    assert killed.do(HookEnded(1)) == [CloseCards(), cancelled(1), Start(2)]


@pytest.mark.hazard("C21")
def test_cancelled_does_not_wait_for_ever_for_a_hook_that_will_not_die() -> None:
    here = bench()
    here.prompt(1)
    here.do(HookBegan(1), Cancel())
    here.fire(Timer.DRAIN)
    here.dead()
    assert cancelled(1) in here.fire(Timer.KILL)
    assert here.prompt(2) == [Start(2)]
    here.ready()
    here.do(Cancel())
    assert cancelled(2) in here.answer("cancelled")  # the lost hook holds up no other turn


@pytest.mark.hazard("C3")
def test_a_hook_that_begins_in_a_drain_is_killed() -> None:
    here = bench()
    here.prompt(1)
    here.do(Cancel())
    assert here.do(HookBegan(1)) == [StopHooks()]


def test_an_agent_that_dies_is_told_of_and_nobody_waits_for_that_hook() -> None:
    here = bench(Moment.DEATH)
    here.prompt(1)
    assert here.do(AgentExited(1, "why")) == [TellDeath("why"), Kill(1)]
    here.do(HookBegan(1))
    assert failed(1, Failure.AGENT_DIED, "why") in here.dead()


def test_an_agent_that_dies_while_it_is_idle_is_told_of() -> None:
    here = bench(Moment.DEATH)
    assert here.do(AgentExited(1, "why")) == [TellDeath("why"), Kill(1)]


def test_an_agent_that_dies_while_a_stop_ends_the_hooks_of_its_turn_is_not_told_of() -> None:
    here = bench(AFTER, Moment.DEATH)
    here.prompt(1)
    here.answer()
    here.do(Cancel())
    assert here.do(AgentExited(1, "why")) == [Kill(1)]


def test_hooks_that_end_twice_or_never_ran_are_dropped() -> None:
    here = bench(BEFORE, AFTER)
    here.prompt(1)
    here.hooks(1)
    nobodys: list[Effect] = here.do(HooksDone(1, "no"), HooksDone(2), HookEnded(4))
    assert nobodys == []
    assert len(here.dropped) == 3


def test_a_superseder_that_is_read_while_feedback_is_written_down_ends_that() -> None:
    here = over()
    here.hooks(1, feedback=6)
    assert here.prompt(3, interrupt=True) == [cancelled(6), cancelled(1), SendPrompt(1, 3)]


@pytest.mark.hazard("C10")
def test_a_hook_that_begins_while_the_session_ends_is_killed() -> None:
    here = bench()
    here.do(Close())
    assert here.do(HookBegan(1)) == [StopHooks()]


@pytest.mark.hazard("C10", "P1")
def test_the_end_of_a_session_kills_its_hooks_once_in_a_turn_and_outside_of_one() -> None:
    running, idle = bench(), bench()
    running.prompt(1)
    for here in (running, idle):
        here.do(HookBegan(1))
    assert running.do(Close()) == [SendCancel(1, 1), StopHooks()]
    assert idle.do(Close()) == [StopHooks(), CloseAgent(1)]
    last = bench()
    last.prompt(1)
    last.do(HookBegan(1))
    assert last.do(Shutdown()) == [StopHooks(), CloseCards(), Interrupted(1), CloseAgent(1)]


def test_a_close_for_all_cancels_a_turn_whose_hooks_run_and_feedback_and_keeps_the_rest() -> None:
    keeps = Close(keeps_prompts=True)
    here = over()
    kept = failed(2, Failure.KEPT)
    assert here.do(keeps) == [StopHooks(), kept, CloseAgent(1)]
    assert here.hooks(1) == [cancelled(1)]
    fed_back = over()
    fed_back.hooks(1, feedback=6)
    assert fed_back.do(keeps) == [cancelled(6), cancelled(1), kept, CloseAgent(1)]
