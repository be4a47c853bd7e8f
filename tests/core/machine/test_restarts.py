"""The decisions about drain, kill and restart, a test for each."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import (
    Arm,
    CloseCards,
    Effect,
    Failure,
    Kill,
    Leave,
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
    Deadline,
    Event,
    Leaked,
    Loaded,
    Occupied,
    ReplaceProcess,
    Sleep,
    Started,
    StartFailed,
    Timer,
    TreeDead,
    Warm,
)
from tests.core.machine.bench import Bench, cancelled, failed, replied


def draining(*, always_reload: bool = False) -> Bench:
    """Return a bench on which prompt 1 is told to cancel, and prompt 2 waits."""
    bench = Bench(always_reload=always_reload)
    bench.prompt(1, 2)
    bench.do(Cancel())
    return bench


# --- drain and kill -------------------------------------------------------------------------------


@pytest.mark.hazard("C8.1", "C8.2", "C9", "C10.2", "P12")
def test_an_agent_that_ignores_cancel_is_killed_and_everything_comes_in_one_order() -> None:
    bench = draining()
    assert bench.fire(Timer.DRAIN) == [Kill(1)]
    assert bench.dead() == [Release(1), CloseCards(), cancelled(1), Start(2)]
    assert bench.do(Started(2)) == [Open(2)]
    assert bench.do(Loaded(2)) == [SendPrompt(2, 2)]
    assert bench.answer() == [replied(2)]


@pytest.mark.hazard("C7", "C21")
def test_the_deadlines_of_a_drain_are_armed_as_the_cancel_is_sent() -> None:
    bench = Bench()
    bench.prompt(1)
    cancel, spare, drain = bench.turns.step(Cancel())
    assert isinstance(spare, Arm)
    assert isinstance(drain, Arm)
    assert (spare.timer, drain.timer) == (Timer.SPARE, Timer.DRAIN)
    assert cancel == SendCancel(1, 1)


@pytest.mark.hazard("C13.1", "C13.2")
def test_an_answer_during_the_kill_is_noted_once_and_the_prompt_is_never_sent_again() -> None:
    bench = draining()
    bench.fire(Timer.DRAIN)
    assert bench.answer("late") == [NoteOutcome(1, "late")]
    assert bench.answer("later") == []
    bench.dead()
    assert bench.answer("much later") == []
    assert bench.ready() == [Open(2), SendPrompt(2, 2)]


@pytest.mark.hazard("C14.2")
def test_a_timer_of_the_first_turn_does_nothing_to_the_second() -> None:
    bench = draining()
    old = dict(bench.armed)
    bench.answer()
    bench.do(Cancel())
    assert set(bench.armed) == set(old)
    for timer, token in old.items():
        assert bench.do(Deadline(timer, token)) == []
    assert bench.state == "DRAINING"


def test_half_a_drain_starts_a_spare_and_it_is_opened_when_the_old_tree_is_dead() -> None:
    bench = draining()
    assert bench.fire(Timer.SPARE) == [Start(2)]
    assert bench.do(Started(2)) == []
    assert bench.fire(Timer.DRAIN) == [Kill(1)]
    assert bench.dead() == [Release(1), CloseCards(), cancelled(1), Open(2)]
    assert bench.do(Loaded(2)) == [SendPrompt(2, 2)]


def test_a_spare_that_is_not_ready_when_the_old_tree_is_dead_is_waited_for() -> None:
    bench = draining()
    bench.fire(Timer.SPARE)
    bench.fire(Timer.DRAIN)
    assert bench.dead() == [Release(1), CloseCards(), cancelled(1)]
    assert (bench.state, bench.now.epoch) == ("STARTING", 2)
    assert set(bench.armed) == {Timer.RESTART}
    assert bench.do(Started(2)) == [Open(2)]


def test_a_spare_is_dropped_when_the_agent_answers_in_time() -> None:
    bench = draining()
    bench.fire(Timer.SPARE)
    assert bench.answer() == [
        NoteOutcome(1, "end_turn"),
        Kill(2),
        CloseCards(),
        cancelled(1),
        SendPrompt(1, 2),
    ]
    assert bench.do(Started(2)) == []
    assert bench.do(TreeDead(2)) == [Release(2)]
    bench.do(Cancel())
    assert bench.fire(Timer.SPARE) == [Start(3)]


@pytest.mark.parametrize(
    ("fate", "effects"),
    [
        (StartFailed(2, True), [Release(2)]),
        (TreeDead(2), [Release(2)]),
        (AgentExited(2), [Kill(2)]),
    ],
)
def test_a_spare_that_fails_is_replaced_by_a_fresh_start(
    fate: Event, effects: list[Effect]
) -> None:
    bench = draining()
    bench.fire(Timer.SPARE)
    assert bench.do(fate) == effects
    bench.fire(Timer.DRAIN)
    if effects == [Kill(2)]:
        assert bench.do(TreeDead(2)) == [Release(2)]
    assert bench.dead()[-1] == Start(3)
    assert bench.state == "STARTING"


def test_a_second_spare_is_not_taken_for_ready_because_the_first_was() -> None:
    bench = draining()
    bench.fire(Timer.SPARE)
    bench.do(Started(2))
    bench.answer()
    bench.do(Cancel())
    bench.fire(Timer.SPARE)
    bench.fire(Timer.DRAIN)
    bench.do(TreeDead(2), TreeDead(1))
    assert (bench.state, bench.now.epoch) == ("STARTING", 3)


# --- when a process is not used again -------------------------------------------------------------


def test_reload_after_cancel_always_replaces_the_process_before_cancelled_is_said() -> None:
    bench = draining(always_reload=True)
    assert bench.answer() == [NoteOutcome(1, "end_turn"), Kill(1)]
    assert bench.dead() == [Release(1), CloseCards(), cancelled(1), Start(2)]
    assert bench.ready() == [Open(2), SendPrompt(2, 2)]
    assert bench.answer() == [replied(2)]
    assert bench.state == "IDLE"


@pytest.mark.hazard("C6.3")
def test_an_agent_that_goes_on_after_cancelled_is_replaced_before_the_next_prompt() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Cancel())
    bench.answer()
    assert bench.do(Leaked(1)) == [Kill(1)]
    assert bench.prompt(2) == []
    assert bench.dead() == [Release(1), Start(2)]
    assert bench.ready() == [Open(2), SendPrompt(2, 2)]


@pytest.mark.hazard("C6.3")
def test_an_agent_that_leaks_into_the_next_turn_is_replaced_after_it() -> None:
    bench = draining()
    bench.answer()
    bench.prompt(3)
    assert bench.do(Leaked(1)) == []
    assert bench.answer() == [replied(2), Kill(1)]
    assert bench.dead() == [Release(1), Start(2)]
    assert bench.ready() == [Open(2), SendPrompt(2, 3)]


@pytest.mark.hazard("C6.3", "C10")
def test_an_agent_that_once_leaked_is_replaced_after_every_later_cancel() -> None:
    bench = Bench()
    bench.do(Leaked(1))
    bench.dead()
    bench.ready()
    bench.prompt(1)
    assert bench.answer() == [replied(1)]
    bench.prompt(2)
    bench.do(Cancel())
    assert bench.answer() == [NoteOutcome(2, "end_turn"), Kill(2)]
    assert bench.dead() == [Release(2), CloseCards(), cancelled(2), Start(3)]


def test_a_leak_that_is_seen_during_a_drain_replaces_the_process_at_its_end() -> None:
    bench = draining()
    assert bench.do(Leaked(1)) == []
    assert bench.answer() == [NoteOutcome(1, "end_turn"), Kill(1)]


@pytest.mark.hazard("R11")
def test_what_a_new_process_replays_while_it_loads_is_no_leak() -> None:
    bench = draining()
    bench.fire(Timer.DRAIN)
    bench.dead()
    assert bench.do(Leaked(2), Started(2), Leaked(2)) == [Open(2)]
    assert bench.do(Leaked(1)) == []
    assert bench.do(Loaded(2)) == [SendPrompt(2, 2)]


@pytest.mark.hazard("C12.2")
def test_the_need_for_a_new_process_outlives_a_restart_that_failed() -> None:
    bench = Bench()
    bench.do(ReplaceProcess())
    bench.dead()
    bench.do(StartFailed(2, permanent=True))
    assert bench.state == "BLOCKED"
    assert bench.prompt(1) == [Start(3)]
    assert bench.ready() == [Open(3), SendPrompt(3, 1)]
    assert bench.answer() == [replied(1)]
    assert bench.state == "IDLE"


def test_new_roots_replace_the_process_at_once_when_idle_and_after_the_turn_else() -> None:
    idle, running, cancelling = Bench(), Bench(), draining()
    assert idle.do(ReplaceProcess()) == [Leave(1)]
    running.prompt(1)
    assert running.do(ReplaceProcess()) == []
    assert running.answer() == [replied(1), Kill(1)]
    assert cancelling.do(ReplaceProcess()) == []
    assert cancelling.answer() == [NoteOutcome(1, "end_turn"), Kill(1)]


def test_new_roots_while_a_process_loads_start_another_and_before_that_change_nothing() -> None:
    bench = Bench(epoch=0)
    assert bench.do(ReplaceProcess()) == []
    bench.prompt(1)
    assert bench.do(ReplaceProcess(), Started(1)) == [Open(1)]
    assert bench.do(ReplaceProcess()) == [Kill(1)]
    assert bench.do(ReplaceProcess()) == []
    assert bench.dead() == [Release(1), Start(2)]
    assert bench.ready() == [Open(2), SendPrompt(2, 1)]
    assert bench.answer() == [replied(1)]
    assert bench.state == "IDLE"


# --- an agent that dies ---------------------------------------------------------------------------


@pytest.mark.hazard("Q5.2", "Q6", "P3.1")
def test_an_agent_that_dies_in_a_turn_fails_it_once_and_the_prompt_is_not_sent_again() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.do(AgentExited(1, "signal 9")) == [Kill(1)]
    assert bench.dead() == [
        Release(1),
        CloseCards(),
        failed(1, Failure.AGENT_DIED, "signal 9"),
        Start(2),
    ]
    assert bench.ready() == [Open(2), SendPrompt(2, 2)]


@pytest.mark.hazard("C5.1", "C11.1")
def test_a_cancel_that_is_read_after_the_agent_died_still_answers_cancelled() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(AgentExited(1))
    assert bench.answer("from the grave") == []
    assert bench.do(Cancel()) == []
    assert bench.dead()[:3] == [Release(1), CloseCards(), cancelled(1)]


def test_a_superseder_does_not_make_a_cancel_of_an_agents_death() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(AgentExited(1))
    assert bench.prompt(2, interrupt=True) == []
    assert bench.dead()[2] == failed(1, Failure.AGENT_DIED)


def test_an_agent_that_dies_while_it_drains_answers_cancelled() -> None:
    bench = draining()
    assert bench.do(AgentExited(1)) == [Kill(1)]
    assert bench.dead() == [Release(1), CloseCards(), cancelled(1), Start(2)]


@pytest.mark.hazard("C16.4")
def test_an_agent_that_dies_while_idle_leaves_no_card_open_and_is_started_at_the_next_prompt() -> (
    None
):
    bench = Bench()
    assert bench.do(AgentExited(1)) == [Kill(1)]
    assert bench.dead() == [Release(1)]
    assert bench.state == "COLD"
    assert bench.prompt(1) == [Start(2)]


@pytest.mark.hazard("R16")
def test_a_session_that_is_loaded_while_it_falls_asleep_gets_a_process() -> None:
    bench = Bench()
    assert bench.do(Sleep(1), Warm()) == [Leave(1)]
    assert not bench.now.asleep
    assert bench.dead() == [Release(1), Start(2)]


# --- a process in which another session works -----------------------------------------------------


def test_a_prompt_moves_from_a_process_in_which_another_session_works_by_now() -> None:
    bench = Bench()
    bench.do(Occupied(1))
    assert bench.prompt(1) == [Leave(1)]
    assert bench.dead() == [Release(1), Start(2)]
    for epoch in (2, 3):
        assert bench.do(StartFailed(epoch)) == [Release(epoch), Start(epoch + 1)]
    assert bench.ready() == [Open(4), SendPrompt(4, 1)]


def test_a_prompt_stays_in_a_process_in_which_another_session_has_worked() -> None:
    bench = Bench()
    bench.do(Occupied(1), Occupied(1, now=False))
    assert bench.prompt(1) == [SendPrompt(1, 1)]


def test_a_spare_in_which_another_session_works_gets_no_prompt() -> None:
    bench = draining()
    bench.fire(Timer.SPARE)
    bench.do(Started(2), Occupied(2))
    bench.fire(Timer.DRAIN)
    assert bench.dead()[-1] == Open(2)
    assert bench.do(Loaded(2)) == [Leave(2)]


def test_a_process_that_is_wanted_while_another_is_killed_for_its_trouble_is_not_started() -> None:
    bench = Bench()
    bench.do(AgentExited(1), Warm())
    assert bench.dropped == [Warm()]
    assert bench.dead() == [Release(1)]
    assert bench.state == "COLD"
