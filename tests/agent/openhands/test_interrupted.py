"""Which message an ACP agent inside the agent-server would be given again."""

from typing import Any

import pytest

from agent.openhands.turn_shell import left_over

DONE = {"acp_last_prompt_user_message_id": "one"}


def state(status: str, kind: str = "ACPAgent", agent_state: Any = None) -> dict[str, Any]:
    about = {"execution_status": status, "last_user_message_id": "two"}
    return {**about, "agent": {"kind": kind}, "agent_state": agent_state or DONE}


@pytest.mark.parametrize("status", ["paused", "error"])
def test_a_message_whose_run_was_cut_short_is_left_over(status: str) -> None:
    assert left_over(state(status)) == "two"
    assert left_over(state(status, agent_state={"other": 1})) == "two"


@pytest.mark.parametrize("status", ["idle", "running", "finished", "waiting_for_confirmation", "?"])
def test_without_a_run_that_was_cut_short_nothing_is(status: str) -> None:
    assert left_over(state(status)) is None


def test_a_message_that_the_agent_has_done_is_not() -> None:
    assert (
        left_over(state("paused", agent_state={"acp_last_prompt_user_message_id": "two"})) is None
    )


def test_an_agent_of_the_server_s_own_remembers_what_was_interrupted() -> None:
    assert left_over(state("paused", kind="Agent")) is None


@pytest.mark.parametrize("value", [None, 1, "x", []])
def test_a_state_that_makes_no_sense_leaves_nothing_out(value: Any) -> None:
    assert left_over({}) is None
    assert left_over({**state("paused"), "agent": value}) is None
    assert left_over({**state("paused"), "last_user_message_id": None}) is None
    assert left_over({**state("paused"), "agent_state": value}) == "two"
