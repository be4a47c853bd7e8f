"""What turns have used is counted as each agent means its figures, and nothing is guessed."""

from typing import Any

import pytest

from acp_bridge.core.protocol import BUILTIN_INFO
from acp_bridge.features.spending.spent import Spent, spent, told
from acp_bridge.features.spending.usage_figures import Span, of_agent

CLAUDE = "@agentclientprotocol/claude-agent-acp"


def cost(amount: float, currency: str = "USD") -> dict[str, Any]:
    return {"amount": amount, "currency": currency}


def counted(agent: str, *turns: tuple[list[Any], dict[str, Any]]) -> list[Spent]:
    return spent(
        told(number, {"agent": agent, "costs": costs}, usage, None)
        for number, (costs, usage) in enumerate(turns, 1)
    )


def in_dollars(agent: str, *turns: list[Any]) -> list[float]:
    found = counted(agent, *((costs, {}) for costs in turns))
    return [round(each.costs.get("USD", 0), 6) for each in found]


def test_of_a_total_of_the_session_each_turn_counts_what_it_has_grown_by() -> None:
    for agent in (BUILTIN_INFO, "OpenCode", "acp-bridge-openhands", CLAUDE):
        assert of_agent(agent).cost is Span.SESSION
        totals = [[cost(0.25)], [cost(0.5)], [], [cost(0.75)]]
        assert in_dollars(agent, *totals) == [0.25, 0.25, 0, 0.25]


def test_a_total_that_is_lower_than_before_has_begun_anew() -> None:
    assert in_dollars(CLAUDE, [cost(0.5)], [cost(0.75), cost(0.125)], [cost(0.25)]) == [
        0.5,
        0.375,
        0.125,
    ]


def test_costs_in_two_currencies_are_two_sums() -> None:
    (found,) = counted(BUILTIN_INFO, ([cost(1), cost(2, currency="EUR")], {}))
    assert found.costs == {"USD": 1, "EUR": 2}


def test_tokens_of_a_turn_are_summed_as_they_are() -> None:
    usage = {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7, "other": 1}
    found = counted(CLAUDE, ([], usage), ([], usage))
    assert [each.tokens for each in found] == [
        {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}
    ] * 2


@pytest.mark.parametrize(
    ("agent", "tokens", "money"),
    [
        ("OpenCode", Span.LAST_CALL, Span.SESSION),
        ("@agentclientprotocol/codex-acp", Span.UNKNOWN, Span.UNKNOWN),  # of no known version
        ("who-knows", Span.UNKNOWN, Span.UNKNOWN),
    ],
)
def test_figures_of_a_last_call_or_of_nobody_knows_what_are_said_and_never_summed(
    agent: str, tokens: Span, money: Span
) -> None:
    (found,) = counted(agent, ([cost(1)], {"inputTokens": 5}))
    assert found.tokens == {}
    assert ("tokens", agent, tokens) in found.uncounted
    assert bool(found.costs) is (money is Span.SESSION)
    assert (("cost", agent, money) in found.uncounted) is (money is Span.UNKNOWN)


def test_odd_figures_count_nothing_and_hide_nothing() -> None:
    odd: list[Any] = [cost(-1), cost(float("nan")), cost(True), {"amount": 3}, "x", None]
    usage: Any = {"inputTokens": -1, "outputTokens": "2", "totalTokens": True}
    found = counted(CLAUDE, ([*odd, cost(1)], usage), (7, []))  # type: ignore[arg-type]
    assert [(each.tokens, each.costs, each.uncounted) for each in found] == [
        ({}, {"USD": 1}, set()),
        ({}, {}, set()),
    ]
    assert counted([], ([], {}))[0].tokens == {}  # type: ignore[arg-type]
