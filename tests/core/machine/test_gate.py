"""Pause, hold and go: what waits for the user's word, and what beats it; a test for each."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from acp_bridge.core.machine.effects import (
    CloseCards,
    Failure,
    NoteOutcome,
    SendCancel,
    SendGo,
    SendPause,
    SendPrompt,
    StillWaits,
)
from acp_bridge.core.machine.events import (
    AgentExited,
    Cancel,
    CancelPrompt,
    CommitFailed,
    Committed,
    Deadline,
    Event,
    Go,
    HoldQueue,
    Leaked,
    Loaded,
    Pause,
    PauseAnswered,
    PromptReceived,
    ReplaceProcess,
    Started,
    Timer,
)
from acp_bridge.core.machine.states import Standstill
from tests.core.machine.bench import Bench, cancelled, failed, replied


def paused(*keys: int) -> Bench:
    """Return a machine whose first prompt runs and is paused; the others wait."""
    bench = Bench()
    bench.prompt(*keys or (1,))
    assert bench.do(Pause()) == [SendPause(1, 1)]
    bench.do(PauseAnswered(1, 1))
    assert bench.now.standstill is Standstill.PAUSED
    return bench


# --- a pause --------------------------------------------------------------------------------------


def test_a_turn_is_paused_by_its_agent_and_goes_on_at_the_users_word() -> None:
    bench = Bench()
    bench.prompt(1)
    assert bench.do(Pause()) == [SendPause(1, 1)]
    stood = [bench.now.standstill]
    assert bench.do(PauseAnswered(1, 1)) == []
    stood.append(bench.now.standstill)
    assert bench.do(Go()) == [SendGo(1)]
    stood.append(bench.now.standstill)
    assert stood == [Standstill.PAUSING, Standstill.PAUSED, Standstill.OPEN]
    assert bench.state == "RUNNING"
    assert bench.answer() == [replied(1)]


def test_a_second_pause_asks_the_agent_nothing_and_a_go_without_one_is_dropped() -> None:
    bench = paused()
    assert bench.do(Pause()) == []
    bench.do(Go())
    assert bench.do(Go()) == []
    assert bench.dropped == [Go()]


def test_with_nothing_unanswered_there_is_nothing_to_pause() -> None:
    bench = Bench()
    bench.do(Pause())
    assert bench.dropped == [Pause()]
    assert bench.prompt(1) == [SendPrompt(1, 1)]


def test_what_waits_does_not_start_when_the_paused_turn_ends_by_itself() -> None:
    bench = paused(1, 2)
    assert bench.answer() == [replied(1)]
    assert bench.now.standstill is Standstill.PAUSED
    assert bench.do(Go()) == [SendPrompt(1, 2)]


def test_a_pause_that_the_turn_outran_is_over_when_nothing_is_left() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Pause())
    assert bench.answer() == [replied(1)]
    assert bench.do(PauseAnswered(1, 1, False)) == []
    assert bench.now.standstill is Standstill.OPEN
    assert bench.prompt(2) == [SendPrompt(1, 2)]


def test_a_pause_before_the_agent_is_ready_keeps_the_prompt_from_it() -> None:
    for before in range(3):
        bench = Bench(epoch=0)
        bench.prompt(1)
        on_its_way: list[Event] = [Started(1), Loaded(1)]
        events = [*on_its_way[:before], Pause(), *on_its_way[before:]]
        if before == 2:  # it runs by then
            assert bench.do(*events)[-1] == SendPause(1, 2)
            continue
        bench.do(*events)
        assert (bench.state, bench.now.standstill) == ("IDLE", Standstill.PAUSED)
        assert bench.do(Go()) == [SendPrompt(1, 1)]


def test_an_agent_that_does_not_pause_lets_its_turn_go_on_and_nothing_starts_after_it() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(Pause(), PauseAnswered(1, 1, False))
    assert bench.now.standstill is Standstill.HELD
    assert bench.answer() == [replied(1)]
    assert bench.do(Go()) == [SendPrompt(1, 2)]


def test_an_answer_to_an_older_question_counts_no_more() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Pause())
    assert bench.do(Go(), Pause())[0] == SendGo(1)
    bench.do(PauseAnswered(1, 1, False))
    assert bench.now.standstill is Standstill.PAUSING


def test_an_agent_that_dies_while_its_turn_is_paused_fails_it_and_the_rest_waits_for_go() -> None:
    bench = paused(1, 2)
    bench.do(AgentExited(1))
    assert failed(1, Failure.AGENT_DIED) in bench.dead()
    bench.ready()
    assert (bench.state, bench.now.standstill) == ("IDLE", Standstill.PAUSED)
    assert bench.do(Go()) == [SendPrompt(2, 2)]


# --- a Stop beats it all --------------------------------------------------------------------------


@pytest.mark.hazard("C3", "C5", "C11.1")
def test_a_stop_ends_a_paused_turn_at_once_and_the_pause_with_it() -> None:
    bench = paused(1, 2)
    assert bench.do(Cancel()) == [SendCancel(1, 1)]
    assert bench.now.standstill is Standstill.OPEN
    assert bench.answer("x") == [
        NoteOutcome(1, "x"),
        CloseCards(),
        cancelled(1),
        SendPrompt(1, 2),
    ]


@pytest.mark.hazard("C3", "C5", "C11.1")
def test_a_stop_beats_any_pause_resume_or_restart_whatever_their_order() -> None:
    words: list[Event] = [Cancel(), Pause(), Go(), HoldQueue(), ReplaceProcess()]
    for order in permutations(words):
        for answers in range(len(words) + 1):
            bench = Bench()
            bench.prompt(1)
            done = bench.do(*order[:answers])
            asked = [each.token for each in done if isinstance(each, SendPause)]
            done += bench.do(*[PauseAnswered(1, token) for token in asked], *order[answers:])
            assert bench.state == "DRAINING"
            told = done.index(SendCancel(1, 1))
            assert not [e for e in done[told:] if isinstance(e, SendPause | SendGo)]
            ended = bench.answer()
            ended += bench.dead() if bench.state == "KILLING" else []
            assert cancelled(1) in ended


@pytest.mark.hazard("C11", "C21")
@pytest.mark.parametrize("seed", range(20))
def test_in_any_storm_a_stop_ends_the_running_turn_and_no_pause_reaches_it_after_that(
    seed: int,
) -> None:
    random = Random(seed)
    for _ in range(60):
        bench = Bench(always_reload=random.random() < 0.3)
        bench.prompt(1, 2)
        words: list[Event] = [Pause(), HoldQueue(), Go(), ReplaceProcess(), Leaked(1)]
        words += [PauseAnswered(1, token, random.random() < 0.8) for token in (1, 2, 3)]
        storm = random.choices(words, k=random.randrange(8))
        late = random.choices(words, k=random.randrange(8))
        bench.do(*storm)
        assert SendCancel(1, 1) in bench.do(Cancel())
        assert not [e for e in bench.do(*late) if isinstance(e, SendPause | SendGo | SendPrompt)]
        ended = bench.fire(Timer.DRAIN) + bench.dead()
        assert cancelled(1) in ended


@pytest.mark.hazard("C11")
def test_a_pause_while_a_stop_drains_keeps_only_what_waits() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(Cancel())
    assert bench.do(Pause()) == []
    assert bench.answer()[-1] == cancelled(1)
    assert bench.do(Go()) == [SendPrompt(1, 2)]


def test_a_prompt_that_interrupts_ends_the_pause_before_it_and_not_the_one_after_it() -> None:
    bench = paused(1, 2)
    assert bench.prompt(3, interrupt=True) == [SendCancel(1, 1)]
    assert bench.answer()[-1] == SendPrompt(1, 3)
    bench = Bench()
    bench.prompt(1)
    bench.do(PromptReceived(2, True))
    bench.do(Pause())
    assert bench.do(Committed(2)) == [SendCancel(1, 1)]
    assert bench.answer()[-1] == cancelled(1)
    assert bench.now.standstill is Standstill.PAUSED
    assert bench.do(Go()) == [SendPrompt(1, 2)]


def test_a_prompt_that_interrupts_and_cannot_be_kept_ends_no_pause() -> None:
    bench = paused(1)
    bench.do(PromptReceived(2, True))
    assert bench.do(CommitFailed(2)) == [failed(2, Failure.JOURNAL)]
    assert bench.now.standstill is Standstill.PAUSED


def test_a_turn_stays_paused_when_a_prompt_meant_to_interrupt_the_one_before_it() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(PromptReceived(3, True))
    bench.answer()
    bench.do(Pause(), PauseAnswered(1, 1))
    assert bench.do(Committed(3)) == []
    assert bench.now.standstill is Standstill.PAUSED


# --- a hold ---------------------------------------------------------------------------------------


def test_a_hold_lets_the_turn_end_and_starts_nothing_until_go() -> None:
    bench = Bench()
    bench.prompt(1, 2)
    assert bench.do(HoldQueue()) == []
    assert bench.answer() == [replied(1)]
    assert bench.prompt(3) == []
    assert bench.now.standstill is Standstill.HELD
    assert bench.do(Go()) == [SendPrompt(1, 2)]
    assert bench.answer() == [replied(2), SendPrompt(1, 3)]


def test_a_hold_of_an_idle_session_keeps_the_next_prompt_and_no_stop_ends_it() -> None:
    bench = Bench()
    bench.do(HoldQueue())
    assert bench.prompt(1, 2) == []
    assert bench.do(Cancel()) == [cancelled(1)]
    assert bench.do(CancelPrompt(2)) == [cancelled(2)]
    assert bench.prompt(3, interrupt=True) == []
    assert bench.do(Go()) == [SendPrompt(1, 3)]


def test_a_hold_lets_a_paused_turn_go_on_to_its_end() -> None:
    bench = paused(1, 2)
    assert bench.do(HoldQueue()) == [SendGo(1)]
    assert bench.answer() == [replied(1)]
    assert bench.now.standstill is Standstill.HELD


def test_no_process_is_started_for_a_prompt_that_is_held() -> None:
    bench = Bench(epoch=0)
    bench.do(HoldQueue())
    assert bench.prompt(1) == []
    assert bench.state == "COLD"


# --- signs of life --------------------------------------------------------------------------------


@pytest.mark.hazard("C14")
def test_signs_of_life_come_while_a_prompt_waits_for_go_and_no_longer() -> None:
    bench = paused(1)
    assert bench.fire(Timer.SIGN) == [StillWaits()]
    assert bench.fire(Timer.SIGN) == [StillWaits()]
    old = bench.armed[Timer.SIGN]
    bench.do(Go())
    assert not bench.armed
    assert bench.do(Deadline(Timer.SIGN, old)) == []


def test_an_empty_session_on_hold_gives_no_sign() -> None:
    bench = Bench()
    bench.do(HoldQueue())
    assert not bench.armed
    bench.prompt(1)
    assert bench.fire(Timer.SIGN) == [StillWaits()]
    bench.do(Cancel())
    assert not bench.armed
