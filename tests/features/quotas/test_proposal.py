"""How snapshots and errors are read: what is absent stays absent, and odd values hide nothing."""

from typing import Any

import pytest

from acp_bridge.features.quotas import proposal
from acp_bridge.features.quotas.proposal import HEAD, is_older, reset_of, rows, tells_limit

NOW = 1_795_526_321.0


def row(**cells: str) -> list[str]:
    return [cells.get(name, "") for name in HEAD]


@pytest.mark.parametrize(
    ("meter", "cells"),
    [
        ({"usedPercent": 42}, {"USED": "42 %"}),
        ({"usedPercent": 24.5}, {"USED": "24.5 %"}),
        ({"usedPercent": 0}, {"USED": "0 %"}),
        ({"used": {"value": "12.40", "unit": "USD"}}, {"USED": "12.40 USD"}),
        ({"used": {"value": "3"}, "usedPercent": 1.0}, {"USED": "3 (1 %)"}),
        ({"remaining": {"value": "950", "unit": "credits"}}, {"LEFT": "950 credits"}),
        (
            {"limit": 5, "remaining": "2", "unit": "requests"},
            {"LIMIT": "5 requests", "LEFT": "2 requests"},
        ),
        ({"status": "exceeded"}, {"STATUS": "exceeded"}),
        ({"status": "_odd"}, {"STATUS": "unknown"}),
        ({"used": None, "limit": {}, "usedPercent": "9", "resetsAt": "soon", "status": 3}, {}),
        ({"usedPercent": True, "used": {"value": [1]}, "limit": {"value": 10**400}}, {}),
        ({"usedPercent": float("nan"), "resetsAt": "9999-12-31T23:59:59Z"}, {}),
    ],
)
def test_of_a_meter_is_shown_what_is_there(meter: Any, cells: Any) -> None:
    told = {"pools": [{"id": "plan", "meters": [{"id": "week", **meter}]}]}
    assert rows(told) == [row(POOL="plan", METER="week", **cells)]


def test_pools_keep_their_order_and_their_labels_and_one_without_meters_is_shown() -> None:
    pools = [
        {"id": "b", "label": "Bee", "state": "not_enabled", "meters": []},
        {"id": "a", "state": "new state", "meters": [{"id": "m"}, 5, {"id": "n", "label": "En"}]},
        "odd",
        {"id": ["odd"], "meters": "odd"},
    ]
    assert rows({"pools": pools}) == [
        row(POOL="Bee", STATE="not enabled"),
        row(POOL="a", STATE="unavailable", METER="m"),
        row(POOL="a", STATE="unavailable", METER="En"),
        row(),
    ]
    assert rows({}) == rows({"pools": {"id": "x"}}) == []


def test_a_time_is_shown_by_the_users_clock() -> None:
    (found,) = rows({"pools": [{"id": "p", "meters": [{"resetsAt": "2026-10-06T18:00:00Z"}]}]})
    assert found[HEAD.index("RESETS")] == proposal.local("2026-10-06T20:00:00+02:00") != ""


@pytest.mark.parametrize(
    ("mine", "other", "older"),
    [
        ("2026-10-06T13:10:00Z", "2026-10-06T13:10:00.001Z", True),
        ("2026-10-06T13:10:00+02:00", "2026-10-06T13:10:00Z", True),
        ("2026-10-06T13:10:00Z", "2026-10-06T13:10:00Z", False),
        ("2026-10-06T13:10:01Z", "2026-10-06T13:10:00Z", False),
        ("odd", "2026-10-06T13:10:00Z", False),
        ("2026-10-06T13:10:00Z", None, False),
        ("2026-10-06T13:10:00", "2027-10-06T13:10:00Z", False),
    ],
)
def test_the_time_of_the_data_says_which_snapshot_is_newer(
    mine: str, other: str | None, older: bool
) -> None:
    assert is_older({"updatedAt": mine}, {"updatedAt": other} if other else None) is older


@pytest.mark.parametrize("name", ["poolId", "meterId", "resetsAt", "retryAfter"])
def test_each_member_of_the_proposal_tells_a_limit(name: str) -> None:
    assert tells_limit({name: "x"})
    odds: list[Any] = [None, "", 5, {}, ["x"]]
    for odd in odds:
        assert not tells_limit({name: odd})
    assert not tells_limit(name)


@pytest.mark.parametrize(
    ("data", "resets"),
    [
        ({"resetsAt": "2026-11-24T18:00:00Z"}, 1795543200.0),
        ({"retryAfter": "PT90S"}, NOW + 90),
        ({"retryAfter": "P1DT2H"}, NOW + 26 * 3600),
        ({"retryAfter": "PT0.5H"}, NOW + 1800),
        ({"resetsAt": "2026-11-24T18:00:00Z", "retryAfter": "PT90S"}, 1795543200.0),
        ({"resetsAt": "soon", "retryAfter": "PT90S"}, NOW + 90),
        ({"retryAfter": "P"}, None),
        ({"retryAfter": "P1M"}, None),
        ({"retryAfter": "90"}, None),
        ({"retryAfter": "PT1.2.3S"}, None),
        ({"retryAfter": f"P{'9' * 400}D"}, None),
        ({"retryAfter": 90}, None),
        ({"poolId": "plan"}, None),
        (None, None),
    ],
)
def test_a_reset_is_read_from_a_time_or_from_a_delay(data: Any, resets: float | None) -> None:
    assert reset_of(data, NOW) == resets
