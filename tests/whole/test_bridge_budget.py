"""The budget of a session, with real processes: agents that tell costs in mid-turn, late, never."""

import json
import signal

import pytest

from acp_bridge.core.updates import notices
from acp_bridge.features.spending import notices as budget
from tests.support.fixture_agents import fixture_command
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped

pytestmark = [pytest.mark.process, pytest.mark.hazard("R18")]

OPTIONS = ("--budget", "5 USD")


def costs(total: float) -> str:
    """Return the command that lets the agent tell this total."""
    told = {"amount": total, "currency": "USD"}
    usage = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": told}
    return f"update {json.dumps(usage)}"


def held(cost: float, limit: float) -> str:
    return budget.is_spent(cost, limit, 5, "USD")


@pytest.mark.hazard("K1", "Q6", "R12", "C8", "R18.8")
async def test_a_turn_that_costs_too_much_is_cancelled_and_what_waits_is_held_over_a_kill(
    world: World,
) -> None:
    async with world.bridge(
        "tells-costs", "ignores-cancel", options=OPTIONS, capabilities=TELL_ACCEPTED, exits=-9
    ) as client:
        running = client.send_prompt(f"say one; gate g; {costs(4.5)}; {costs(5.5)}; gate h")
        await world.gates.reached("g")
        await accepted(client, client.send_prompt("say two"))
        await accepted(client, client.send_prompt("history"))
        world.gates.open("g")
        assert await stopped(client, running) == "cancelled"
        for said in (budget.nearly_spent(4.5, 5, "USD"), held(5.5, 5), budget.STOPPING):
            assert client.text().count(said) == 1
        session = client.session_id
        client.kill()
        assert await client.wait(within=3) == -signal.SIGKILL
    assert len(world.log.prompts()) == 1
    async with world.bridge("tells-costs", options=OPTIONS, session=False) as client:
        await client.load_session(session, world.cwd)
        waits = client.send_prompt("/queue run")
        await client.until_text(notices.RUN_LATER)
        assert client.text().count(held(5.5, 5)) == 2  # then, and now
        assert len(world.log.prompts()) == 1
        await client.prompt("/queue go")
        assert await stopped(client, waits) == "end_turn"
        assert world.log.prompts()[1:] == ["say two", "history"]
        assert await client.prompt(f"say three; {costs(10)}; {costs(10.5)}") == {
            "stopReason": "end_turn"
        }
        assert held(10.5, 10.5) in client.text()


@pytest.mark.hazard("C10", "R18.2")
async def test_a_cost_at_the_end_of_a_turn_holds_the_next_prompt_until_go(world: World) -> None:
    async with world.bridge("tells-costs", options=OPTIONS, capabilities=TELL_ACCEPTED) as client:
        assert await client.prompt(f"say one; {costs(7)}") == {"stopReason": "end_turn"}
        waits = client.send_prompt("say two")
        await client.until_text(notices.WAITS_FOR_GO)
        assert held(7, 5) in client.text()
        assert budget.STOPPING not in client.text()
        assert len(world.log.prompts()) == 1
        await client.prompt("/queue go")
        assert await stopped(client, waits) == "end_turn"


@pytest.mark.hazard("R18.9")
async def test_with_an_agent_that_tells_no_cost_the_session_says_so_once(world: World) -> None:
    env = {"ACP_BRIDGE_BUDGET": "0.50EUR"}
    async with world.bridge(env=env) as client:
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        await client.until_text(budget.not_told(0.5, "EUR"))
        assert await client.prompt(f"say two; {costs(7)}") == {"stopReason": "end_turn"}
        assert await client.prompt("say three") == {"stopReason": "end_turn"}
        assert client.text().count("no cost of this turn") == 1


async def test_run_ends_where_a_person_would_be_asked_to_say_go(world: World) -> None:
    agent = ("--", *fixture_command("tells-costs"))
    spends = f"say one; {costs(5.5)}; gate g"
    code, _, told = await world.command("run", *OPTIONS, spends, *agent)
    assert code == 4
    assert "the budget of the session is spent: the turn was cancelled" in told
    code, _, told = await world.command("run", *OPTIONS, "--continue", "say two", *agent)
    assert code == 4
    assert "the budget of the session is spent" in told
    assert world.log.prompts() == [spends]
    code, out, _ = await world.command("run", "--continue", "say three", *agent)
    assert (code, out) == (0, "three\n")


async def test_run_waits_for_no_go_in_a_session_that_another_bridge_holds_for_its_budget(
    world: World,
) -> None:
    async with world.bridge("tells-costs", options=OPTIONS) as client:
        assert await client.prompt(f"say one; {costs(7)}") == {"stopReason": "end_turn"}
        waits = client.send_prompt("say two")
        await client.until_text(notices.WAITS_FOR_GO)
        agent = ("--", *fixture_command("tells-costs"))
        code, out, told = await world.command(
            "run", "--session", client.session_id, "say three", *agent
        )
        assert (code, out) == (4, "")
        assert "the budget of the session is spent: the turn was cancelled" in told
        await client.prompt("/queue go")
        assert await stopped(client, waits) == "end_turn"
        assert world.log.prompts()[1:] == ["say two"]


async def test_a_turn_of_send_that_is_cancelled_for_the_budget_says_so(world: World) -> None:
    async with world.bridge("tells-costs", options=OPTIONS) as client:
        spends = f"say one; {costs(5.5)}; gate g"
        code, _, told = await world.command("send", "--wait", client.session_id, spends)
        assert code == 4
        assert "the budget of the session is spent: the turn was cancelled" in told
        world.gates.open("g")
