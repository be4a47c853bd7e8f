"""Usage limits as agents tell them: what was recorded is recognised, and nothing is guessed."""

import json
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.protocol import BUILTIN_INFO, USAGE_UPDATE
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok, RpcError
from acp_bridge.features.usage_limits import forms as usage_limits
from acp_bridge.features.usage_limits.forms import Limit, met, reset_in

RECORDED: list[Any] = json.loads(Path(__file__).with_name("usage_limits.json").read_text("utf-8"))
NOW = 1_795_526_321.0
CLAUDE = {"agentInfo": {"name": "@agentclientprotocol/claude-agent-acp"}}
BUILT_IN = {"agentInfo": {"name": BUILTIN_INFO}}


def as_answer(told: Any) -> Answer:
    if "error" in told:
        return Err(RpcError.received(**told["error"]))
    return Ok(told["result"])


def refused(message: str = "no", **data: Any) -> Err:
    return Err(RpcError.received(-32603, message, data))


def usage(**told: Any) -> Any:
    return {"sessionUpdate": USAGE_UPDATE, "used": 1, "_meta": {"_claude/rateLimit": told}}


@pytest.mark.hazard("R17.3")
@pytest.mark.parametrize(
    "row", RECORDED, ids=lambda row: f"{row['agentInfo']['name']}: {row['how']}"
)
def test_a_recorded_limit_is_recognised_with_its_reset(row: Any) -> None:
    now = float(row["recordedAt"])
    limit = met({"agentInfo": row["agentInfo"]}, as_answer(row["answer"]), now)
    assert limit is not None
    told = [reset_in(update, now) for update in row["updates"]]
    assert (limit.resets_at or next(filter(None, told), None)) == row["resetsAt"]


@pytest.mark.hazard("R17.3")
def test_each_agent_of_the_table_has_a_recording() -> None:
    names = {row["agentInfo"]["name"] for row in RECORDED}
    assert names | {BUILTIN_INFO} == usage_limits._ERRORS.keys()  # the built-in one's are run live


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        (CLAUDE, refused("You've hit your usage limit")),
        (CLAUDE, refused(errorKind="overloaded")),
        (CLAUDE, refused(errorKind=["rate_limit"])),
        (CLAUDE, refused(codexErrorInfo="usageLimitExceeded")),
        (CLAUDE, Err(RpcError.received(-32603, "rate_limit", "rate_limit"))),
        (CLAUDE, Ok({"stopReason": "end_turn"})),
        (CLAUDE, Ok("rate_limit")),
        ({"agentInfo": {"name": "another"}}, refused(errorKind="rate_limit")),
        ({"agentInfo": {"name": ["a list"]}}, refused(errorKind="rate_limit")),
        ({"agentInfo": "rate_limit"}, refused(errorKind="rate_limit")),
        ({}, refused(errorKind="rate_limit")),
    ],
)
def test_what_no_recording_shows_is_no_limit(agent: Any, answer: Answer) -> None:
    assert met(agent, answer, NOW) is None


@pytest.mark.hazard("R17.3")
@pytest.mark.parametrize("agent", [CLAUDE, BUILT_IN, {"agentInfo": {"name": "another"}}, {}])
@pytest.mark.parametrize("code", [-32603, -32099, 429])
def test_any_agents_error_in_the_form_of_the_proposal_is_a_limit(agent: Any, code: int) -> None:
    def met_with(**data: Any) -> Limit | None:
        return met(agent, Err(RpcError.received(code, "no", data)), NOW)

    assert met_with(poolId="plan") == met_with(meterId="week") == Limit(None)
    assert met_with(retryAfter="PT1M") == Limit(NOW + 60)
    assert met_with(poolId="plan", resetsAt="2026-11-24T18:00:00Z") == Limit(1_795_543_200.0)
    assert met_with(resetsAt="1999-01-01T00:00:00Z") == Limit(None)
    assert met_with(poolId=None, retryAfter=30) is None


@pytest.mark.parametrize(
    ("severity", "category", "actions"),
    [
        ("warning", "limit", []),
        ("error", "service", ["retry"]),
        ("error", "limit", ["new_session"]),
    ],
)
def test_another_failure_that_is_told_in_meta_is_no_limit(
    severity: str, category: str, actions: list[str]
) -> None:
    failure = {"severity": severity, "category": category, "actions": actions}
    told = {"_meta": {"jetbrains": {"air": {"sessionFailure": failure}}}, "stopReason": "end_turn"}
    assert met(CLAUDE, Ok(told), NOW) is None


@pytest.mark.parametrize(
    ("told", "resets"),
    [
        (NOW + 60, NOW + 60),
        ((NOW + 60) * 1000, NOW + 60),
        (int(NOW + 60) * 1000, NOW + 60),
        (NOW - 60, None),
        (NOW, None),
        (-1, None),
        (0, None),
        (253_402_300_799, None),  # the last second of the year 9999
        (253_402_300_799_000, None),
        (NOW + 60 * 86400, None),
        (10**400, None),
        (float("inf"), None),
        (float("nan"), None),
        ("1795537115", None),
        (True, None),
        (None, None),
        ([NOW + 60], None),
    ],
)
def test_a_time_that_can_be_no_reset_is_none(told: Any, resets: float | None) -> None:
    assert reset_in(usage(status="rejected", resetsAt=told), NOW) == resets
    answer = refused(errorKind="rate_limit", resetsAt=told)
    assert met(BUILT_IN, answer, NOW) == Limit(resets)
    assert met(CLAUDE, answer, NOW) == Limit(None)  # it has never told it there


@pytest.mark.parametrize(
    "update",
    [
        usage(status="allowed", resetsAt=NOW + 60),
        usage(status="allowed_warning", resetsAt=NOW + 60),
        {"sessionUpdate": USAGE_UPDATE, "_meta": {"_claude/rateLimit": "rejected"}},
        {"sessionUpdate": USAGE_UPDATE, "_meta": "_claude/rateLimit"},
        {**usage(status="rejected", resetsAt=NOW + 60), "sessionUpdate": "agent_message_chunk"},
    ],
)
def test_an_update_that_tells_of_no_limit_that_is_reached_has_no_reset(update: Any) -> None:
    assert reset_in(update, NOW) is None
