"""Waits that depend on one another keep their order."""

from pathlib import Path

from acp_bridge.core.agents import guard
from acp_bridge.core.runtime import waits
from acp_bridge.core.settings import Settings

GUARD_PAUSE = guard.MAX_PAUSE_MS / 1000


def test_a_guard_that_hangs_is_told_from_an_agent_that_does() -> None:
    assert waits.SPAWN < waits.START <= waits.RESTART


def test_a_parent_that_hangs_leaves_time_for_the_command_line() -> None:
    assert waits.FORK * 2 < waits.SPAWN
    assert waits.PARENT_HANGS * 2 < waits.PARENT_LIGHT < waits.START - waits.SPAWN
    assert waits.PARENT_HANGS * 2 < waits.PARENT_LOAD < waits.RESTART - waits.SPAWN


def test_a_kill_has_ended_before_a_session_gives_the_tree_up() -> None:
    assert waits.GUARD * 2 < waits.KILL
    assert waits.LAST_LOOK + waits.KILL + waits.LAST_WORDS < waits.GIVE_UP


def test_the_guard_tries_several_times_within_the_time_for_a_kill() -> None:
    assert GUARD_PAUSE * 3 <= waits.KILL
    assert GUARD_PAUSE * 2 <= waits.ENDED


def test_what_ends_by_itself_leaves_time_for_the_kill_of_what_does_not() -> None:
    assert waits.CLOSE_ANSWER * 2 + waits.EOF_GRACE < waits.CLOSE_GRACE <= waits.CUT_OFF_GRACE
    assert waits.CLOSE_GRACE + GUARD_PAUSE < waits.END
    assert waits.CLOSE_GRACE < waits.UNDO
    assert waits.CLOSE_GRACE + waits.HOOK_AT_END < waits.END


def test_everything_has_ended_in_the_time_that_is_promised() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    assert f"within {waits.ENDED:g} s" in readme
    assert waits.END + waits.FLUSH + waits.INDEX_CLOSE < waits.LEAVE < waits.ENDED
    assert waits.CLOSE_GRACE + waits.GUARD < waits.END


def test_a_bridge_that_ends_lets_go_of_a_session_before_another_gives_up() -> None:
    assert waits.ENDED < waits.LEASE


def test_a_lock_in_the_database_is_told_by_an_error_before_that_counts_as_silent() -> None:
    assert waits.JOURNAL_RETRY < waits.DATABASE_LOCK < waits.DATABASE


def test_no_agent_is_asked_by_the_way_for_longer_than_an_end_may_take() -> None:
    assert waits.AGENT_PATIENCE < waits.UNDO
    assert waits.AGENT_PATIENCE < waits.ENDED


def test_a_silent_agent_is_looked_at_in_a_small_part_of_its_silence() -> None:
    assert waits.LOOK * 5 < waits.SILENCE < waits.SILENCE_IN_CALL
    assert waits.LOOK * 5 < waits.LOOK_AGAIN


def test_a_bridge_waits_as_long_as_the_order_says() -> None:
    settings = Settings(command=("agent",), agent_name="agent", home=Path("/nowhere"))
    assert (settings.start_timeout, settings.restart_timeout) == (waits.START, waits.RESTART)
    assert (settings.kill_timeout, settings.close_grace) == (waits.GIVE_UP, waits.CLOSE_GRACE)
    assert settings.lease_timeout == waits.LEASE
