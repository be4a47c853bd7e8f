"""DESIGN.md's decisions about restarts that fail: tries, deadlines, login, trees that live on."""

from __future__ import annotations

import pytest

from acp_bridge import signals as sig
from acp_bridge.signals import Failure, Timer
from acp_bridge.turns import MAX_TRIES
from tests.turns.bench import Bench, cancelled, failed, replied


def starting(*keys: int) -> Bench:
    """A process starts because these prompts wait."""
    bench = Bench(epoch=0)
    bench.prompt(*keys)
    return bench


def test_a_loaded_session_has_an_agent_started_before_its_first_prompt() -> None:
    bench = Bench(epoch=0)
    assert bench.do(sig.Warm()) == [sig.Start(1)]
    assert bench.ready() == [sig.Open(1)]
    assert bench.do(sig.Warm()) == []
    assert bench.prompt(1) == [sig.SendPrompt(1, 1, 1)]


@pytest.mark.hazard("Q1", "C21")
def test_three_starts_that_fail_answer_all_that_wait_and_the_next_prompt_tries_again() -> None:
    assert MAX_TRIES == 3
    bench = starting(1, 2)
    assert bench.do(sig.StartFailed(1, detail="a")) == [sig.Release(1), sig.Start(2)]
    assert bench.do(sig.StartFailed(2, detail="b")) == [sig.Release(2), sig.Start(3)]
    assert bench.do(sig.StartFailed(3, detail="c")) == [
        sig.Release(3),
        failed(1, Failure.NO_AGENT, "c"),
        failed(2, Failure.NO_AGENT, "c"),
    ]
    assert bench.state == "BLOCKED"
    assert not bench.armed
    assert bench.prompt(3) == [sig.Start(4)]
    assert bench.do(sig.StartFailed(4), sig.StartFailed(5))[-1] == sig.Start(6)
    assert bench.ready() == [sig.Open(6), sig.SendPrompt(6, 1, 3)]


def test_loads_that_are_refused_and_processes_that_end_count_as_tries() -> None:
    bench = starting(1)
    bench.do(sig.Started(1))
    assert bench.do(sig.LoadRefused(1)) == [sig.Kill(1)]
    assert bench.dead() == [sig.Release(1), sig.CloseCards(), sig.Start(2)]
    assert bench.do(sig.AgentExited(2)) == [sig.Kill(2)]
    assert bench.dead() == [sig.Release(2), sig.CloseCards(), sig.Start(3)]
    bench.do(sig.Started(3))
    assert bench.do(sig.AgentExited(3, "code 1")) == [sig.Kill(3)]
    assert bench.dead() == [
        sig.Release(3),
        sig.CloseCards(),
        failed(1, Failure.NO_AGENT, "code 1"),
    ]


def test_a_restart_that_succeeds_makes_the_tries_of_the_next_one_three_again() -> None:
    bench = starting(1)
    bench.do(sig.StartFailed(1), sig.StartFailed(2))
    bench.ready()
    bench.do(sig.AgentExited(3))
    bench.dead()
    for epoch in (4, 5):
        assert bench.do(sig.StartFailed(epoch))[-1] == sig.Start(epoch + 1)


@pytest.mark.parametrize("ready", [False, True])
def test_what_cannot_get_better_fails_at_once(ready: bool) -> None:
    bench = starting(1)
    if ready:
        bench.do(sig.Started(1))
        assert bench.do(sig.LoadRefused(1, permanent=True, detail="unknown")) == [sig.Kill(1)]
        effects = bench.dead()
    else:
        effects = bench.do(sig.StartFailed(1, permanent=True, detail="unknown"))
    assert effects[-1] == failed(1, Failure.NO_AGENT, "unknown")
    assert bench.state == "BLOCKED"


def test_a_start_that_fails_for_good_is_believed_though_its_process_ended_first() -> None:
    bench = starting(1)
    bench.do(sig.AgentExited(1, "code 0"))
    assert bench.do(sig.StartFailed(1, permanent=True, detail="no ACP")) == [
        sig.Release(1),
        sig.CloseCards(),
        failed(1, Failure.NO_AGENT, "no ACP"),
    ]


def test_a_dying_spare_that_fails_for_good_says_nothing_of_the_process_that_lives() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(sig.Cancel())
    bench.fire(Timer.SPARE)
    bench.answer()
    assert bench.do(sig.StartFailed(2, permanent=True)) == [sig.Release(2)]
    bench.do(sig.AgentExited(1))
    bench.dead()
    assert bench.state == "COLD"


@pytest.mark.hazard("Q1", "C21")
@pytest.mark.parametrize("loading", [False, True])
def test_a_restart_that_takes_too_long_answers_all_that_wait_and_kills_it(loading: bool) -> None:
    bench = starting(1, 2)
    if loading:
        bench.do(sig.Started(1))
    assert bench.fire(Timer.RESTART) == [
        failed(1, Failure.NO_AGENT),
        failed(2, Failure.NO_AGENT),
        sig.Kill(1),
    ]
    assert bench.do(sig.Started(1), sig.Loaded(1)) == []
    assert bench.dead() == [sig.Release(1), sig.CloseCards()]
    assert bench.state == "BLOCKED"
    assert bench.prompt(3) == [sig.Start(2)]


@pytest.mark.hazard("C21")
def test_all_tries_of_a_restart_share_one_deadline_also_while_a_failed_one_dies() -> None:
    bench = starting(1)
    token = bench.armed[Timer.RESTART]
    bench.do(sig.StartFailed(1), sig.Started(2), sig.LoadRefused(2, detail="busy"))
    assert bench.state == "KILLING"
    assert bench.armed[Timer.RESTART] == token
    assert bench.fire(Timer.RESTART) == [failed(1, Failure.NO_AGENT, "busy")]
    assert bench.dead() == [sig.Release(2), sig.CloseCards()]
    assert (bench.state, bench.armed) == ("BLOCKED", {})


def test_the_reason_of_an_earlier_trouble_is_not_told_again() -> None:
    bench = starting(1)
    bench.do(sig.StartFailed(1, permanent=True, detail="old"))
    bench.prompt(2)
    assert bench.fire(Timer.RESTART)[0] == failed(2, Failure.NO_AGENT)


def test_the_reason_of_a_try_that_failed_is_forgotten_when_another_one_succeeds() -> None:
    bench = starting(1)
    bench.do(sig.StartFailed(1, detail="old"))
    bench.ready()
    bench.prompt(2)
    bench.do(sig.AgentExited(2))
    bench.dead()
    assert bench.fire(Timer.RESTART)[0] == failed(2, Failure.NO_AGENT)


# --- authentication -------------------------------------------------------------------------------


def test_an_agent_that_wants_authentication_stays_and_the_next_prompt_asks_it_again() -> None:
    bench = starting(1, 2)
    bench.do(sig.Started(1))
    assert bench.do(sig.NeedsAuth(1, "log in")) == [
        failed(1, Failure.NEEDS_AUTH, "log in"),
        failed(2, Failure.NEEDS_AUTH, "log in"),
    ]
    assert (bench.state, bench.armed) == ("BLOCKED", {})
    assert bench.prompt(3) == [sig.Open(1)]
    assert set(bench.armed) == {Timer.RESTART}
    assert bench.do(sig.NeedsAuth(1)) == [failed(3, Failure.NEEDS_AUTH)]
    assert bench.prompt(4) == [sig.Open(1)]
    assert bench.do(sig.Loaded(1)) == [sig.SendPrompt(1, 1, 4)]


def test_an_agent_that_dies_while_it_waits_for_authentication_is_started_anew() -> None:
    bench = starting(1)
    bench.do(sig.Started(1), sig.NeedsAuth(1))
    assert bench.do(sig.AgentExited(1)) == [sig.Kill(1)]
    assert bench.dead() == [sig.Release(1), sig.CloseCards()]
    assert bench.state == "COLD"
    assert bench.prompt(2) == [sig.Start(2)]


def test_an_agent_that_died_after_it_was_asked_again_is_not_asked_a_third_time() -> None:
    bench = starting(1)
    bench.do(sig.Started(1), sig.NeedsAuth(1))
    bench.prompt(2)
    bench.do(sig.LoadRefused(1, permanent=True))
    bench.dead()
    assert bench.state == "BLOCKED"
    assert bench.do(sig.AgentExited(1)) == []
    assert bench.prompt(3) == [sig.Start(2)]


# --- trees that do not die ------------------------------------------------------------------------


def undead() -> Bench:
    """The process of turn 1 was killed and won't die."""
    bench = Bench()
    bench.prompt(1, 2)
    bench.do(sig.Cancel())
    bench.fire(Timer.DRAIN)
    assert bench.fire(Timer.KILL) == [
        sig.CloseCards(),
        cancelled(1),
        failed(2, Failure.NO_AGENT),
    ]
    return bench


@pytest.mark.hazard("C8", "C21", "P12")
def test_a_tree_that_will_not_die_keeps_nobody_waiting_and_the_session_is_not_opened() -> None:
    bench = undead()
    assert (bench.state, bench.armed) == ("BLOCKED", {})
    assert bench.prompt(3) == [sig.Kill(1)]
    assert bench.fire(Timer.KILL) == [sig.CloseCards(), failed(3, Failure.NO_AGENT)]
    assert bench.prompt(4) == [sig.Kill(1)]
    assert bench.dead() == [sig.Release(1), sig.CloseCards(), sig.Start(2)]
    assert bench.ready() == [sig.Open(2), sig.SendPrompt(2, 2, 4)]


def test_a_tree_that_dies_late_is_released_and_the_next_prompt_starts_at_once() -> None:
    bench = undead()
    assert bench.dead() == [sig.Release(1)]
    assert bench.state == "BLOCKED"
    assert bench.dead() == []
    assert bench.prompt(3) == [sig.Start(2)]


def test_a_spare_beside_a_tree_that_will_not_die_is_dropped() -> None:
    bench = Bench()
    bench.prompt(1)
    bench.do(sig.Cancel())
    bench.fire(Timer.SPARE)
    bench.fire(Timer.DRAIN)
    assert bench.fire(Timer.KILL) == [sig.CloseCards(), cancelled(1), sig.Kill(2)]
    assert bench.prompt(2) == [sig.Kill(1), sig.Kill(2)]
    assert bench.do(sig.TreeDead(1)) == [sig.Release(1)]
    assert bench.do(sig.TreeDead(2)) == [sig.Release(2), sig.CloseCards(), sig.Start(3)]
    assert bench.ready() == [sig.Open(3), sig.SendPrompt(3, 2, 2)]
    assert bench.answer() == [replied(2)]
