"""The budget of a session beside a user's pause and hold, and beside another process."""

from contextlib import suppress
from pathlib import Path

import pytest

from acp_bridge.core.protocol import GO, HOLD, PAUSE, SESSION_CANCEL, SESSION_PROMPT, SESSION_RESUME
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.features.spending import notices as budget
from tests.core.session.living import CANCELLED, DONE, does_nothing
from tests.core.session.test_pauses import ABLE
from tests.core.session.turned_clock import TurnedClock
from tests.core.session.waiting import quiet
from tests.features.spending.budgeted import budget_of, costs, go, limited, said, telling
from tests.features.spending.test_budget import MOMENT, pause, spent, waiting

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("R18")]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    return TurnedClock(monkeypatch)


@pytest.mark.parametrize("word", ["hold", "pause"])
@pytest.mark.parametrize("typed", [True, False])
async def test_what_a_user_says_who_does_not_go_on_hides_no_reason_for_the_hold(
    tmp_path: Path, clock: TurnedClock, word: str, typed: bool
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        asked, turn, _ = await waiting(here, agent)
        costs(agent, 6)
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        if typed:
            here.prompt(f"/queue {word}")
            await quiet()
        else:
            with suppress(RpcError):  # this agent can't pause
                here.session.pauses.take(here.request({"hold": HOLD, "pause": PAUSE}[word]))
        assert pause(here)["budget"]["cost"] == 6
        assert here.session.pauses.said == spent("6", "5")


@pytest.mark.hazard("R18.5")
async def test_a_turn_that_the_user_has_paused_does_not_go_on_for_the_hold(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent, capabilities=ABLE) as here:
        asked, turn, waits = await waiting(here, agent)
        here.session.pauses.take(here.request(PAUSE))
        costs(agent, 6)
        assert agent.heard[-2:] == [PAUSE, SESSION_CANCEL]
        agent.answer(await agent.asked(PAUSE), {"paused": True})
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        await clock.passes(10 * MOMENT)
        assert GO not in agent.heard
        assert here.texts().count(budget.STOPPING) == 1
        assert pause(here)["state"] == "held"
        assert waits not in here.answers()
        go(here)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE


@pytest.mark.hazard("R18.3")
async def test_totals_that_a_process_repeats_while_it_is_given_the_session_do_not_count_again(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()

    async with limited(tmp_path, agent) as here:
        here.context.prepare = [does_nothing]
        asked = here.prompt()
        await agent.asked(SESSION_PROMPT)
        costs(agent, 3)
        agent.dies()
        await here.answered(asked)
        asked = here.prompt()
        again = await here.agent(2)
        again.connection.initialized = agent.initialized
        loads = await again.asked(SESSION_RESUME)
        again.agent_session_id = "0"
        for total in (1, 2, 3):
            costs(again, total)
        again.answer(loads, {})
        turn = await again.asked(SESSION_PROMPT)
        costs(again, 4.9)
        assert said(here) == []
        assert budget_of(here).cost == 4.9
        again.answer(turn, DONE)
        assert await here.answered(asked) == DONE
