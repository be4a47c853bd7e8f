"""The decisions about restarts that fail: tries, deadlines, login, trees that live on."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import (
    CloseCards,
    Failure,
    Kill,
    Open,
    Release,
    SendPrompt,
    Start,
)
from acp_bridge.core.machine.events import (
    AgentExited,
    Cancel,
    Loaded,
    LoadRefused,
    NeedsAuth,
    Started,
    StartFailed,
    Timer,
    TreeDead,
    Warm,
)
from acp_bridge.core.machine.processes import MAX_TRIES
from tests.core.machine.bench import Bench, cancelled, failed, replied


def starting(*keys: int) -> Bench:
    """Return a bench on which a process starts because these prompts wait."""
    bench = Bench(epoch=0)
    bench.prompt(*keys)
    return bench


def test_a_loaded_session_has_an_agent_started_before_its_first_prompt() -> None:
    bench = Bench(epoch=0)
    assert bench.do(Warm()) == [Start(1)]
    assert bench.ready() == [Open(1)]
    assert bench.do(Warm()) == []
    assert bench.prompt(1) == [SendPrompt(1, 1)]


@pytest.mark.hazard("Q1.1", "C21.2", "C21.4")
def test_three_starts_that_fail_answer_all_that_wait_and_the_next_prompt_tries_again() -> None:
    assert MAX_TRIES == 3
    bench = starting(1, 2)
    assert bench.do(StartFailed(1, detail="a")) == [Release(1), Start(2)]
    assert bench.do(StartFailed(2, detail="b")) == [Release(2), Start(3)]
    assert bench.do(StartFailed(3, detail="c")) == [
        Release(3),
        failed(1, Failure.NO_AGENT, "c"),
        failed(2, Failure.NO_AGENT, "c"),
    ]
    assert bench.state == "BLOCKED"
    assert not bench.armed
    assert bench.prompt(3) == [Start(4)]
    assert bench.do(StartFailed(4), StartFailed(5))[-1] == Start(6)
    assert bench.ready() == [Open(6), SendPrompt(6, 3)]


def test_loads_that_are_refused_and_processes_that_end_count_as_tries() -> None:
    bench = starting(1)
    bench.do(Started(1))
    assert bench.do(LoadRefused(1)) == [Kill(1)]
    assert bench.dead() == [Release(1), Start(2)]
    assert bench.do(AgentExited(2)) == [Kill(2)]
    assert bench.dead() == [Release(2), Start(3)]
    bench.do(Started(3))
    assert bench.do(AgentExited(3, "code 1")) == [Kill(3)]
    assert bench.dead() == [
        Release(3),
        failed(1, Failure.NO_AGENT, "code 1"),
    ]


def test_a_restart_that_succeeds_makes_the_tries_of_the_next_one_three_again() -> None:
    bench = starting(1)
    bench.do(StartFailed(1), StartFailed(2))
    bench.ready()
    bench.do(AgentExited(3))
    bench.dead()
    for epoch in (4, 5):
        assert bench.do(StartFailed(epoch))[-1] == Start(epoch + 1)


@pytest.mark.parametrize("ready", [False, True])
def test_what_cannot_get_better_fails_at_once(ready: bool) -> None:
    bench = starting(1)
    if ready:
        bench.do(Started(1))
        assert bench.do(LoadRefused(1, permanent=True, detail="unknown")) == [Kill(1)]
        effects = bench.dead()
    else:
        effects = bench.do(StartFailed(1, permanent=True, detail="unknown"))
    assert effects[-1] == failed(1, Failure.NO_AGENT, "unknown")
    assert bench.state == "BLOCKED"


def test_a_start_that_fails_for_good_is_believed_though_its_process_ended_first() -> None:
    bench = starting(1)
    bench.do(AgentExited(1, "code 0"))
    assert bench.do(StartFailed(1, permanent=True, detail="no ACP")) == [
        Release(1),
        failed(1, Failure.NO_AGENT, "no ACP"),
    ]


def test_a_dying_spare_that_fails_for_good_says_nothing_of_the_process_that_lives() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Cancel())
    bench.fire(Timer.SPARE)
    bench.answer()
    assert bench.do(StartFailed(2, permanent=True)) == [Release(2)]
    bench.do(AgentExited(1))
    bench.dead()
    assert bench.state == "COLD"


@pytest.mark.hazard("Q1.1", "C21.2")
@pytest.mark.parametrize("loading", [False, True])
def test_a_restart_that_takes_too_long_answers_all_that_wait_and_kills_it(loading: bool) -> None:
    bench = starting(1, 2)
    if loading:
        bench.do(Started(1))
    assert bench.fire(Timer.RESTART) == [
        failed(1, Failure.NO_AGENT),
        failed(2, Failure.NO_AGENT),
        Kill(1),
    ]
    assert bench.do(Started(1), Loaded(1)) == []
    assert bench.dead() == [Release(1)]
    assert bench.state == "BLOCKED"
    assert bench.prompt(3) == [Start(2)]


@pytest.mark.hazard("C21.4")
def test_all_tries_of_a_restart_share_one_deadline_also_while_a_failed_one_dies() -> None:
    bench = starting(1)
    token = bench.armed[Timer.RESTART]
    bench.do(StartFailed(1), Started(2), LoadRefused(2, detail="busy"))
    assert bench.state == "KILLING"
    assert bench.armed[Timer.RESTART] == token
    assert bench.fire(Timer.RESTART) == [failed(1, Failure.NO_AGENT, "busy")]
    assert bench.dead() == [Release(2)]
    assert (bench.state, bench.armed) == ("BLOCKED", {})


def test_the_reason_of_an_earlier_trouble_is_not_told_again() -> None:
    bench = starting(1)
    bench.do(StartFailed(1, permanent=True, detail="old"))
    bench.prompt(2)
    assert bench.fire(Timer.RESTART)[0] == failed(2, Failure.NO_AGENT)


def test_the_reason_of_a_try_that_failed_is_forgotten_when_another_one_succeeds() -> None:
    bench = starting(1)
    bench.do(StartFailed(1, detail="old"))
    bench.ready()
    bench.prompt(2)
    bench.do(AgentExited(2))
    bench.dead()
    assert bench.fire(Timer.RESTART)[0] == failed(2, Failure.NO_AGENT)


# --- authentication -------------------------------------------------------------------------------


def test_an_agent_that_wants_authentication_stays_and_the_next_prompt_asks_it_again() -> None:
    bench = starting(1, 2)
    bench.do(Started(1))
    assert bench.do(NeedsAuth(1, "log in")) == [
        failed(1, Failure.NEEDS_AUTH, "log in"),
        failed(2, Failure.NEEDS_AUTH, "log in"),
    ]
    assert (bench.state, bench.armed) == ("UNAUTHENTICATED", {})
    assert bench.prompt(3) == [Open(1)]
    assert set(bench.armed) == {Timer.RESTART}
    assert bench.do(NeedsAuth(1)) == [failed(3, Failure.NEEDS_AUTH)]
    assert bench.prompt(4) == [Open(1)]
    assert bench.do(Loaded(1)) == [SendPrompt(1, 4)]


def test_an_agent_that_dies_while_it_waits_for_authentication_is_started_anew() -> None:
    bench = starting(1)
    bench.do(Started(1), NeedsAuth(1))
    assert bench.do(AgentExited(1)) == [Kill(1)]
    assert bench.dead() == [Release(1)]
    assert bench.state == "COLD"
    assert bench.prompt(2) == [Start(2)]


def test_an_agent_that_died_after_it_was_asked_again_is_not_asked_a_third_time() -> None:
    bench = starting(1)
    bench.do(Started(1), NeedsAuth(1))
    bench.prompt(2)
    bench.do(LoadRefused(1, permanent=True))
    bench.dead()
    assert bench.state == "BLOCKED"
    assert bench.do(AgentExited(1)) == []
    assert bench.prompt(3) == [Start(2)]


# --- trees that do not die ------------------------------------------------------------------------


def undead() -> Bench:
    """Return a bench on which the process of prompt 1 was killed and won't die."""
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(Cancel())
    bench.fire(Timer.DRAIN)
    assert bench.fire(Timer.KILL) == [
        CloseCards(),
        cancelled(1),
        failed(2, Failure.NO_AGENT),
    ]
    return bench


@pytest.mark.hazard("C8", "C21.1", "P12")
def test_a_tree_that_will_not_die_keeps_nobody_waiting_and_the_session_is_not_opened() -> None:
    bench = undead()
    assert (bench.state, bench.armed) == ("BLOCKED", {})
    assert bench.prompt(3) == [Kill(1)]
    assert bench.fire(Timer.KILL) == [failed(3, Failure.NO_AGENT)]
    assert bench.prompt(4) == [Kill(1)]
    assert bench.dead() == [Release(1), Start(2)]
    assert bench.ready() == [Open(2), SendPrompt(2, 4)]


def test_a_tree_that_dies_late_is_released_and_the_next_prompt_starts_at_once() -> None:
    bench = undead()
    assert bench.dead() == [Release(1)]
    assert bench.state == "BLOCKED"
    assert bench.dead() == []
    assert bench.prompt(3) == [Start(2)]


def test_a_spare_beside_a_tree_that_will_not_die_is_dropped() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(Cancel())
    bench.fire(Timer.SPARE)
    bench.fire(Timer.DRAIN)
    assert bench.fire(Timer.KILL) == [CloseCards(), cancelled(1), Kill(2)]
    assert bench.prompt(2) == [Kill(1), Kill(2)]
    assert bench.do(TreeDead(1)) == [Release(1)]
    assert bench.do(TreeDead(2)) == [Release(2), Start(3)]
    assert bench.ready() == [Open(3), SendPrompt(3, 2)]
    assert bench.answer() == [replied(2)]
