"""What agents tell of tokens and costs: as recorded of them, behind a model that counts.

Each call of the model was told to take 10 tokens in and 5 out. `calls` is how many of them a turn
had, calls for a title and the like left out; `loaded`: the turn ran in a later process, which had
loaded the session. The model cost nothing in OpenCode's list of prices: that its cost is the
session's is from its source.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.features.spending.spent import Spent, spent, told
from acp_bridge.features.spending.usage_figures import Figures, Span, of_agent, tokens_in_meta

RECORDED: list[Any] = json.loads(Path(__file__).with_name("usage_figures.json").read_text("utf-8"))


def names(row: Any) -> str:
    return str(row["agentInfo"]["name"])


def counted(row: Any) -> list[Spent]:
    about = {"agent": row["agentInfo"]["name"], "version": row["agentInfo"]["version"]}
    return spent(
        told(number, {**about, "costs": [turn["cost"]]}, turn["usage"], None)
        for number, turn in enumerate(row["turns"], 1)
    )


@pytest.mark.parametrize("row", RECORDED, ids=names)
def test_the_tokens_of_a_recorded_turn_are_those_of_its_calls_or_not_summed(row: Any) -> None:
    figures = of_agent(row["agentInfo"]["name"], row["agentInfo"]["version"])
    assert figures.tokens is Span(row["tokens"])
    for turn, found in zip(row["turns"], counted(row), strict=True):
        if figures.tokens is Span.TURN:
            assert found.tokens["inputTokens"] == turn["calls"] * 10
            assert found.tokens["outputTokens"] == turn["calls"] * 5
        else:
            assert turn["usage"]["inputTokens"] == 10
            assert found.tokens == {}


@pytest.mark.parametrize("row", [row for row in RECORDED if row["cost"]], ids=names)
def test_the_recorded_costs_sum_up_to_the_last_total_also_over_a_load(row: Any) -> None:
    assert of_agent(row["agentInfo"]["name"]).cost is Span(row["cost"])
    whole = sum(each.costs["USD"] for each in counted(row))
    assert whole == pytest.approx(row["turns"][-1]["cost"]["amount"])


def test_gemini_tells_the_tokens_of_a_turn_in_meta_unless_it_tells_a_usage() -> None:
    counted = {"input_tokens": 7, "output_tokens": 0}
    told: Any = {"stopReason": "end_turn", "_meta": {"quota": {"token_count": counted}}}
    assert tokens_in_meta(told) == {"inputTokens": 7, "outputTokens": 0}
    assert tokens_in_meta({**told, "usage": {"inputTokens": 1}}) == {}
    odds: list[Any] = [None, 5, {"quota": None}, {"quota": {"token_count": [1]}}, {"quota": {}}]
    for odd in odds:
        assert tokens_in_meta({"_meta": odd}) == {}
    assert of_agent("gemini-cli", "0.61.0").tokens is Span.TURN


def test_of_an_earlier_version_than_was_looked_at_nothing_is_known() -> None:
    codex = "@agentclientprotocol/codex-acp"
    for version in ("2.5.9", "1.6.2", "", None, 2, "x"):
        assert of_agent(codex, version) == Figures()
    for version in ("2.6.0", "2.6", "2.10.0-beta", "3"):
        assert of_agent(codex, version).tokens is Span.TURN
