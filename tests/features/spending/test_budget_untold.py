"""Agents that tell no cost, or none that can be counted: a budget holds nothing, and says so."""

from pathlib import Path

import pytest

from acp_bridge.core.machine.states import Standstill
from acp_bridge.core.protocol import BUILTIN_INFO, SESSION_PROMPT
from acp_bridge.features.spending import notices as budget
from tests.core.session.living import DONE
from tests.core.session.memory import Json
from tests.core.session.played_agent import refusal
from tests.core.session.turned_clock import TurnedClock
from tests.core.session.waiting import quiet, until
from tests.features.spending.budgeted import budget_of, costs, go, limited, said, telling

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("R18")]

CODEX: Json = {"name": "@agentclientprotocol/codex-acp", "version": "2.6.1"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    return TurnedClock(monkeypatch)


async def test_of_an_agent_that_is_known_to_tell_no_cost_that_is_said_as_the_first_turn_begins(
    tmp_path: Path,
) -> None:
    agent = telling(CODEX)
    async with limited(tmp_path, agent) as here:
        asked = here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        lacking = [budget.never_told(5, "USD")]
        await until(lambda: said(here, "[acp-bridge]") == lacking)
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        await here.turn(agent)
        assert said(here, "[acp-bridge]") == lacking


@pytest.mark.hazard("R18.9")
@pytest.mark.parametrize("name", [BUILTIN_INFO, "who-knows"])
async def test_of_any_other_it_is_said_once_after_the_first_turn_that_ended_without_a_cost(
    tmp_path: Path, name: str
) -> None:
    agent = telling({"name": name})
    async with limited(tmp_path, agent) as here:
        asked = here.prompt()
        agent.answer(await agent.asked(SESSION_PROMPT), refusal(-32603, "the model failed"))
        await here.answered(asked)
        assert said(here, "[acp-bridge] The agent has told no cost") == []
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        if name != BUILTIN_INFO:
            costs(agent, 100)  # of a turn, or a total: nobody knows
        agent.answer(turn, DONE)
        await until(lambda: budget.not_told(5, "USD") in here.texts())
        await here.turn(agent)
        assert here.texts().count(budget.not_told(5, "USD")) == 1
        assert here.session.now.standstill is Standstill.OPEN


async def test_of_an_agent_that_has_told_one_in_an_earlier_turn_nothing_is_said(
    tmp_path: Path,
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        costs(agent, 0)
        agent.answer(turn, DONE)
        await here.turn(agent)
        assert said(here, "[acp-bridge]") == []


@pytest.mark.hazard("R18.1")
async def test_a_cost_in_another_currency_is_said_once_and_never_converted(
    tmp_path: Path,
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        costs(agent, 100, "EUR")
        costs(agent, 200, "a `name`\nof two lines")
        costs(agent, 300, "EUR")
        agent.answer(turn, DONE)
        await here.turn(agent)
        assert said(here, "[acp-bridge]") == [budget.other_currency("EUR", 5, "USD")]
        assert here.session.now.standstill is Standstill.OPEN


async def test_odd_costs_are_counted_as_far_as_they_can_be_and_break_nothing(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        for total in (1e15, 0, 1e15):
            here.prompt()
            turn = await agent.asked(SESSION_PROMPT)
            for odd in (-1, float("1e309"), 1e16, 10**400, True, "6", None):
                costs(agent, odd)
            costs(agent, 1, "\ud800\x1b`")
            costs(agent, total)
            agent.answer(turn, DONE)
            await quiet()
            go(here)
        assert len(said(here)) == 2
        await here.turn(agent)
        assert budget_of(here).cost == 2e15
        assert here.journal.get("budget") == {"limit": 2e15 + 5, "currency": "USD"}


async def test_costs_in_two_currencies_by_turns_are_kept_once_each_and_many_odd_ones_are_bounded(
    tmp_path: Path,
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        for number in range(1, 50):
            costs(agent, number / 100)
            costs(agent, number, "EUR")
        ((of_turn, kept),) = here.journal.usage()
        assert of_turn == here.journal.prompts()[0].seq
        amounts = {each["currency"]: each["amount"] for each in kept["costs"]}
        assert len(kept["costs"]) == 2
        assert amounts == {"USD": 0.49, "EUR": 49}
        for number in range(1000):
            costs(agent, 1, f"C{number}")
            costs(agent, number % 2, "EUR")
        ((_, kept),) = here.journal.usage()
        assert len(kept["costs"]) == 100
        costs(agent, 4.5)
        assert said(here, "[acp-bridge] This session") == [budget.nearly_spent(4.5, 5, "USD")]
        agent.answer(turn, DONE)
