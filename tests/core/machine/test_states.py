"""What each state permits, state by state, and how what the agent says is taken."""

from __future__ import annotations

import pytest

from acp_bridge.core.machine.effects import Kill, Leave, Open, Release, SendPrompt, Start
from acp_bridge.core.machine.events import (
    AgentExited,
    Cancel,
    Close,
    Committed,
    Go,
    HoldQueue,
    Leaked,
    Loaded,
    NeedsAuth,
    Pause,
    PromptReceived,
    ReplaceProcess,
    RunLeftOver,
    Started,
    StartFailed,
    Timer,
    TreeDead,
    Warm,
    WorkAsked,
    WorkOver,
    WorkSeen,
)
from acp_bridge.core.machine.states import (
    PERMITS,
    Passing,
    Permits,
    Phase,
    Snapshot,
    Standstill,
    State,
)
from tests.core.machine.bench import Bench, cancelled

#: State -> what becomes of a request, how updates are taken, and what else it permits.
PERMITTED = {
    "COLD": ("STARTS", "NOTHING", ""),
    "STARTING": ("WAITS", "NOTHING", "notifies asks_early"),
    "RELOADING": ("WAITS", "REPLAY", "notifies"),
    "IDLE": ("NOW", "LIVE", "notifies paced"),
    "WORKING": ("NOW", "LIVE", "notifies paced"),
    "RUNNING": ("NOW", "LIVE", "notifies paced"),
    "DRAINING": ("NOW", "LIVE", "notifies drains"),
    "KILLING": ("WAITS", "NOTHING", ""),
    "BLOCKED": ("REFUSED", "NOTHING", "notifies asks_early"),
    "UNAUTHENTICATED": ("REFUSED", "NOTHING", "notifies asks_early"),
    "CLOSED": ("GONE", "NOTHING", ""),
}


def test_every_state_says_what_it_permits() -> None:
    assert PERMITS.keys() == set(State)
    assert PERMITTED.keys() == State.__members__.keys()


@pytest.mark.parametrize("name", PERMITTED)
def test_a_state_permits_what_is_written_down(name: str) -> None:
    requests, updates, rest = PERMITTED[name]
    permits = PERMITS[State[name]]
    assert permits.requests is Passing[requests]
    assert permits.updates is Phase[updates]
    others = [name for name in Permits.__struct_fields__ if name not in ("requests", "updates")]
    assert {other for other in others if getattr(permits, other)} == set(rest.split())


def test_the_machine_permits_what_its_state_does() -> None:
    bench = Bench(epoch=0)
    assert bench.now.permits is PERMITS[State.COLD]
    bench.do(Warm())
    assert bench.now.permits is PERMITS[State.STARTING]


# --- what the shell is shown after each step ------------------------------------------------------


def test_a_snapshot_says_where_the_session_stands_and_stays_as_it_is() -> None:
    bench = Bench()
    before = bench.now
    bench.prompt(1, 2)
    assert (before.state, before.at_rest, before.unanswered) == (State.IDLE, True, ())
    assert bench.now == Snapshot(
        state=State.RUNNING,
        epoch=1,
        permits=PERMITS[State.RUNNING],
        running=1,
        waiting=(2,),
        unanswered=(1, 2),
        oldest=1,
        standstill=Standstill.OPEN,
        at_rest=False,
        may_work=False,
        asleep=False,
        provisional=False,
        ending=False,
    )
    with pytest.raises(AttributeError, match="immutable"):
        bench.now.state = State.IDLE  # type: ignore[misc]  # that is the point


def test_an_agent_works_from_what_it_does_outside_of_a_prompt_to_the_end_of_its_stop() -> None:
    bench = Bench()
    works, phases = [bench.now.works], [bench.now.phase(1)]
    for event in (WorkSeen(1), Cancel(), WorkOver(1)):
        bench.do(event)
        works.append(bench.now.works)
        phases.append(bench.now.phase(1))
        assert bench.now.busy == bench.now.works
    assert works == [False, True, True, False]
    assert phases == [Phase.LIVE, Phase.LIVE, Phase.LIVE, Phase.LEAK]


def test_a_turn_is_no_such_work_also_while_it_is_cancelled() -> None:
    bench = Bench()
    bench.prompt(1)
    for event in (Pause(), Cancel()):
        bench.do(event)
        assert (bench.now.works, bench.now.busy) == (False, True)


def test_a_step_that_changes_nothing_gives_an_equal_snapshot_and_none_is_made_twice() -> None:
    bench = Bench()
    bench.prompt(1)
    before = bench.now
    assert bench.now is before
    bench.do(Warm())
    assert bench.now is not before
    assert bench.now == before


def test_the_foremost_request_runs_or_comes_next_and_there_is_none_while_the_queue_is_held() -> (
    None
):
    bench = Bench(epoch=0)
    seen = [bench.now.foremost]
    for event in (PromptReceived(1), HoldQueue(), Committed(1)):
        bench.do(event)
        seen.append(bench.now.foremost)
    assert seen == [None, 1, None, None]
    bench.do(Go())
    bench.ready()
    bench.do(HoldQueue())
    assert (bench.state, bench.now.foremost) == ("RUNNING", 1)


def test_no_request_is_foremost_while_what_a_run_has_released_is_held() -> None:
    bench = Bench()
    bench.do(HoldQueue(), RunLeftOver(9, (1, 2)))
    assert (bench.now.unanswered, bench.now.foremost) == ((9,), None)
    bench.do(Go())
    assert (bench.now.running, bench.now.foremost) == (1, 9)


def test_a_provisional_process_takes_settings_and_no_prompt() -> None:
    bench = Bench(epoch=0)
    bench.do(Warm(), Started(1), Loaded(1, provisional=True))
    assert bench.now.provisional
    assert bench.now.permits.requests is Passing.SETTINGS
    assert bench.now.takes_requests
    assert bench.prompt(1) == []
    assert bench.do(ReplaceProcess()) == [Leave(1)]
    assert (bench.now.provisional, bench.now.takes_requests) == (False, False)


def test_a_session_is_blocked_while_only_the_next_prompt_tries_again() -> None:
    failed, refused = Bench(epoch=0), Bench(epoch=0)
    failed.do(Warm(), StartFailed(1, permanent=True))
    refused.do(Warm(), Started(1), NeedsAuth(1))
    assert (failed.now.blocked, refused.now.blocked, Bench().now.blocked) == (True, True, False)


def phase(bench: Bench) -> str:
    return bench.now.phase(bench.now.epoch).name


def draining() -> Bench:
    bench = Bench()
    bench.prompt(1)
    bench.do(Cancel())
    return bench


# --- how what the agent says is taken -------------------------------------------------------------


def test_a_new_sessions_agent_is_live_from_the_beginning_and_through_its_turns() -> None:
    bench = Bench()
    assert phase(bench) == "LIVE"
    bench.prompt(1)
    assert phase(bench) == "LIVE"
    bench.answer()
    assert (bench.state, phase(bench)) == ("IDLE", "LIVE")


def test_before_a_process_is_given_the_session_nothing_it_says_of_it_counts() -> None:
    bench = Bench(epoch=0)
    assert phase(bench) == "NOTHING"
    bench.do(Warm())
    assert phase(bench) == "NOTHING"
    bench.do(StartFailed(1, permanent=True))
    assert (bench.state, phase(bench)) == ("BLOCKED", "NOTHING")


@pytest.mark.hazard("R11")
def test_a_process_that_is_given_the_session_may_replay_until_the_next_prompt_is_sent() -> None:
    bench = Bench(epoch=0)
    bench.do(Warm(), Started(1))
    assert (bench.state, phase(bench)) == ("RELOADING", "REPLAY")
    bench.do(Loaded(1))
    assert (bench.state, phase(bench)) == ("IDLE", "REPLAY")
    bench.prompt(1)
    assert (bench.state, phase(bench)) == ("RUNNING", "LIVE")
    bench.answer()
    assert (bench.state, phase(bench)) == ("IDLE", "LIVE")


def test_a_process_that_wants_authentication_may_replay_when_it_is_asked_again() -> None:
    bench = Bench(epoch=0)
    bench.do(Warm(), Started(1), NeedsAuth(1))
    assert (bench.state, phase(bench)) == ("UNAUTHENTICATED", "NOTHING")
    bench.prompt(1)
    assert (bench.state, phase(bench)) == ("RELOADING", "REPLAY")


@pytest.mark.hazard("C6.1", "C19")
def test_after_a_cancelled_turn_more_of_it_is_a_leak_until_the_next_prompt_is_sent() -> None:
    bench = draining()
    assert (phase(bench), bench.now.stopped) == ("LIVE", True)
    bench.answer()
    assert (bench.state, phase(bench), bench.now.stopped) == ("IDLE", "LEAK", True)
    bench.prompt(2)
    assert (bench.state, phase(bench), bench.now.stopped) == ("RUNNING", "LIVE", False)
    bench.answer()
    assert (bench.state, phase(bench), bench.now.stopped) == ("IDLE", "LIVE", False)


@pytest.mark.hazard("C6.2", "C24.2")
def test_work_that_is_asked_for_after_a_cancelled_turn_is_no_leak_of_its_process() -> None:
    bench = draining()
    bench.answer()
    bench.do(WorkAsked())
    assert (bench.state, phase(bench)) == ("IDLE", "LIVE")
    bench.do(WorkSeen(1))
    assert (bench.state, phase(bench)) == ("WORKING", "LIVE")
    bench.do(WorkOver(1))
    assert (bench.state, phase(bench)) == ("IDLE", "LIVE")
    bench.do(AgentExited(1))
    bench.dead()
    bench.do(Warm())
    bench.ready()
    assert (bench.state, phase(bench)) == ("IDLE", "REPLAY")


@pytest.mark.hazard("C6", "R11")
def test_a_process_that_follows_on_a_cancelled_turn_replays_and_does_not_leak() -> None:
    bench = draining()
    bench.answer()
    bench.do(Leaked(1))
    assert (bench.state, phase(bench), bench.now.stopped) == ("KILLING", "NOTHING", False)
    bench.dead()
    assert (bench.state, phase(bench), bench.now.stopped) == ("STARTING", "NOTHING", False)
    bench.ready()
    assert (bench.state, phase(bench), bench.now.stopped) == ("IDLE", "REPLAY", False)


@pytest.mark.hazard("C6")
def test_only_the_current_process_is_heard_and_a_spare_from_its_opening_on() -> None:
    bench = draining()
    bench.fire(Timer.SPARE)
    bench.do(Started(2))
    assert [bench.now.phase(epoch).name for epoch in (1, 2)] == ["LIVE", "NOTHING"]
    bench.fire(Timer.DRAIN)
    assert [bench.now.phase(epoch).name for epoch in (1, 2)] == ["NOTHING", "NOTHING"]
    bench.do(TreeDead(1))
    assert [bench.now.phase(epoch).name for epoch in (1, 2)] == ["NOTHING", "REPLAY"]


def test_a_session_that_has_ended_hears_nothing() -> None:
    bench = Bench()
    bench.do(Close())
    assert (bench.state, phase(bench)) == ("KILLING", "NOTHING")
    bench.dead()
    assert (bench.state, phase(bench)) == ("CLOSED", "NOTHING")


# --- what is fed twice, or too late ---------------------------------------------------------------


@pytest.mark.hazard("P12")
def test_the_death_of_a_tree_is_fed_once_and_does_all_and_a_second_one_is_dropped() -> None:
    bench = draining()
    bench.prompt(2)
    assert bench.do(AgentExited(1)) == [Kill(1)]
    effects = bench.do(TreeDead(1))
    assert effects[0] == Release(1)
    assert effects[2:] == [cancelled(1), Start(2)]
    assert bench.do(TreeDead(1)) == []
    assert bench.dropped == [TreeDead(1)]
    assert bench.do(Started(2), TreeDead(1)) == [Open(2)]
    assert bench.do(Loaded(2)) == [SendPrompt(2, 2)]


def test_the_exit_of_a_process_that_was_told_to_die_is_expected_and_not_dropped() -> None:
    bench = Bench()
    bench.do(ReplaceProcess())
    assert bench.do(AgentExited(1), AgentExited(1)) == []
    assert bench.dropped == []
    bench.dead()
    assert bench.do(AgentExited(1)) == []
    assert bench.dropped == [AgentExited(1)]
