"""A session that has cost what it may is stopped and held until go, by what its agent tells."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.history import History
from acp_bridge.core.journal import PromptState, SessionJournal
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Standstill, State
from acp_bridge.core.protocol import (
    ACCEPTED,
    BUILTIN_INFO,
    HOLD,
    REQUEST_PERMISSION,
    SESSION_CANCEL,
    SESSION_PROMPT,
    SPARES,
    USAGE_UPDATE,
    own_meta,
)
from acp_bridge.core.settings import OnCancel
from acp_bridge.core.updates import agent_trouble, notices
from acp_bridge.features.spending import notices as budget
from acp_bridge.features.usage_limits import hold as usage_limit
from tests.core.session.living import CANCELLED, DONE, Living, living
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import PlayedAgent, refusal
from tests.core.session.test_turn import SAYS_STATES, Lists
from tests.core.session.turned_clock import TurnedClock
from tests.core.session.waiting import quiet, until
from tests.features.hooks.hooked import CALL, OPTIONS
from tests.features.spending.budgeted import budget_of, costs, go, limited, said, telling

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("R18")]

#: seconds that a turn has to end by itself.
MOMENT = 0.5


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    return TurnedClock(monkeypatch)


def spent(cost: str, limit: str) -> str:
    return budget.is_spent(float(cost), float(limit), 5, "USD")


def pause(here: Living) -> Any:
    return here.session.pauses.state


async def on_disk(here: Living, number: int) -> None:
    """Wait until so many prompts are on disk, and all that could follow has happened."""
    await until(lambda: [each.get("method") for each in here.got].count(ACCEPTED) == number)
    await quiet()


async def waiting(here: Living, agent: PlayedAgent) -> tuple[int, Json, int]:
    """Let a prompt run while another waits on disk; returns the first, its turn, the other."""
    asked = here.prompt("one")
    turn = await agent.asked(SESSION_PROMPT)
    waits = here.prompt("two")
    await on_disk(here, 2)
    return asked, turn, waits


# --- in mid-turn ----------------------------------------------------------------------------------


@pytest.mark.hazard("C3", "C10", "R18.2", "R18.4")
async def test_a_turn_that_costs_too_much_is_cancelled_and_what_waits_is_held_until_go(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        asked, turn, waits = await waiting(here, agent)
        costs(agent, 3.9)
        assert said(here, "[acp-bridge]") == []
        costs(agent, 4)
        assert said(here, "[acp-bridge]") == [budget.nearly_spent(4, 5, "USD")]
        costs(agent, 4.5)
        costs(agent, 5.25)
        assert said(here) == [spent("5.25", "5")]
        assert len(said(here, "[acp-bridge]")) == 2
        await clock.passes(MOMENT - 0.1)
        assert SESSION_CANCEL not in agent.heard
        await clock.passes(0.1)
        assert agent.heard.count(SESSION_CANCEL) == 1
        assert here.session.now.state is State.DRAINING
        agent.says_text("a last word")
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        assert here.texts()[-2:] == [budget.STOPPING, "a last word"]
        await clock.passes(1000)
        assert agent.heard.count(SESSION_PROMPT) == 1
        assert here.states()[1] is PromptState.WAITING
        told = {"cost": 5.25, "limit": 5, "currency": "USD"}
        assert {**pause(here), "seconds": 0} == {"state": "held", "seconds": 0, "budget": told}
        go(here)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE
        assert [each["prompt"][0]["text"] for each in agent.params(SESSION_PROMPT)] == [
            "one",
            "two",
        ]


@pytest.mark.hazard("R18.8")
async def test_go_lets_the_session_cost_as_much_again_and_is_kept(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        asked, turn, waits = await waiting(here, agent)
        costs(agent, 4.5)
        costs(agent, 23)
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        here.prompt("/queue go")
        turn = await agent.asked(SESSION_PROMPT)
        assert here.journal.get("budget") == {"limit": 28, "currency": "USD"}
        costs(agent, 26.9)
        nearly = [budget.nearly_spent(4.5, 5, "USD")]
        assert said(here, "[acp-bridge] This session") == nearly
        costs(agent, 27)
        nearly.append(budget.nearly_spent(27, 28, "USD"))
        assert said(here, "[acp-bridge] This session") == nearly
        assert said(here) == [spent("23", "5")]
        costs(agent, 28)
        assert said(here) == [spent("23", "5"), spent("28", "28")]
        await clock.passes(MOMENT)
        agent.answer(turn, CANCELLED)
        assert await here.answered(waits) == CANCELLED


@pytest.mark.hazard("C8")
async def test_an_agent_that_is_deaf_to_that_cancel_is_killed_and_what_waits_stays_held(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent, drain_timeout=4) as here:
        asked, _, waits = await waiting(here, agent)
        costs(agent, 5)
        await clock.passes(MOMENT + 4)
        assert await here.answered(asked) == CANCELLED
        assert agent.dead.is_set()
        await clock.passes(100)
        assert waits not in here.answers()
        go(here)
        again = await here.agent(2)
        again.answer(await again.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE


@pytest.mark.hazard("R18.4")
async def test_the_cancel_ends_the_turn_alone_and_its_open_question(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent, on_cancel=OnCancel.CLEAR) as here:
        asked, turn, waits = await waiting(here, agent)
        params = {"sessionId": "0", "toolCall": CALL, "options": OPTIONS}
        agent.asks(REQUEST_PERMISSION, params, "p")
        costs(agent, 6)
        await clock.passes(MOMENT)
        (answer,) = [each for each in agent.sent.messages if each.get("id") == "p"]
        assert answer["result"] == {"outcome": {"outcome": "cancelled"}}
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        await quiet()
        assert waits not in here.answers()


@pytest.mark.hazard("C16")
@pytest.mark.parametrize("works", [False, True])
async def test_the_cancel_spares_no_background_for_an_earlier_stop_that_did(
    tmp_path: Path, clock: TurnedClock, works: bool
) -> None:
    agent = Lists("resume")
    agent.connection.initialized = telling().initialized
    async with limited(tmp_path, agent) as here:
        here.client.client.abilities = ClientAbilities(SAYS_STATES)
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        here.session.audience.cancel(here.client.client)
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        if works:
            await here.turn(agent)
            agent.says_text("by itself", "w")
        else:
            here.prompt("two")
            await agent.asked(SESSION_PROMPT)
        costs(agent, 6)
        await clock.passes(MOMENT)
        stopped, cancelled = agent.params(SESSION_CANCEL)
        assert (own_meta(stopped), own_meta(cancelled)) == ({SPARES: True}, {})


@pytest.mark.hazard("Q15.5", "R18.6")
async def test_words_that_were_to_join_the_turn_are_given_back_as_at_any_cancel(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent, steers=True) as here:
        here.session.feed(ev.MaySteer(1, now=False))
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        joins = here.prompt("and", _meta={"acp_bridge": {"delivery": "steer"}})
        await on_disk(here, 2)
        costs(agent, 6)
        await clock.passes(MOMENT)
        agent.answer(turn, CANCELLED)
        assert (await here.answered(asked))["stopReason"] == "cancelled"
        assert (await here.answered(joins))["stopReason"] == "cancelled"
        assert agent.heard.count(SESSION_PROMPT) == 1


@pytest.mark.hazard("C25.8")
async def test_what_the_agent_does_without_a_prompt_is_stopped_too(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        await here.turn(agent)
        agent.says_text("by itself", "w")
        assert here.session.now.state is State.WORKING
        costs(agent, 5)
        await clock.passes(MOMENT)
        assert agent.heard.count(SESSION_CANCEL) == 1
        assert budget.STOPPING in here.texts()
        assert here.session.now.standstill is Standstill.HELD


async def test_work_that_begins_in_a_session_that_has_spent_its_budget_is_stopped_when_it_costs(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        costs(agent, 5)
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        await clock.passes(MOMENT)
        agent.says_text("by itself", "w")
        await clock.passes(MOMENT)
        assert SESSION_CANCEL not in agent.heard
        costs(agent, 6)
        await clock.passes(MOMENT)
        assert agent.heard.count(SESSION_CANCEL) == 1
        assert said(here) == [spent("5", "5")]


@pytest.mark.parametrize("how", ["go", "stop", "death"])
async def test_no_cancel_follows_what_has_happened_in_the_moment_before_it(
    tmp_path: Path, clock: TurnedClock, how: str
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        asked, turn, _ = await waiting(here, agent)
        costs(agent, 5)
        costs(agent, 6)
        if how == "go":
            go(here)
        elif how == "stop":
            here.session.audience.cancel(here.client.client)
        else:
            agent.dies()
        await clock.passes(10 * MOMENT)
        assert agent.heard.count(SESSION_CANCEL) == (how == "stop")
        assert budget.STOPPING not in here.texts()
        if how != "death":
            agent.answer(turn, DONE)
        await here.answered(asked)


# --- at its end -----------------------------------------------------------------------------------


@pytest.mark.hazard("R18.2")
@pytest.mark.parametrize("when", ["before the answer", "after it"])
async def test_a_cost_that_is_told_at_the_end_of_a_turn_holds_the_next_prompt(
    tmp_path: Path, clock: TurnedClock, when: str
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        if when == "before the answer":
            costs(agent, 5.5)
            agent.answer(turn, DONE)
        else:
            agent.answer(turn, DONE)
            costs(agent, 5.5)
        assert await here.answered(asked) == DONE
        waits = here.prompt("two")
        await clock.passes(1000)
        assert SESSION_CANCEL not in agent.heard
        assert agent.heard.count(SESSION_PROMPT) == 1
        assert said(here) == [spent("5.5", "5")]
        assert here.texts()[-1] == notices.WAITS_FOR_GO
        hasty = here.prompt("now", _meta={"acp_bridge": {"delivery": "interrupt"}})
        await on_disk(here, 3)
        assert agent.heard.count(SESSION_PROMPT) == 1
        go(here)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(hasty) == DONE
        await here.answered(waits)


async def test_totals_count_over_turns_and_one_that_begins_anew_is_added(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        for total in (2, 3.5, 1):
            here.prompt()
            turn = await agent.asked(SESSION_PROMPT)
            costs(agent, total)
            agent.answer(turn, DONE)
            await quiet()
        assert said(here) == []
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        costs(agent, 1.4)
        assert said(here) == []
        costs(agent, 1.5)
        assert said(here) == [spent("5", "5")]
        assert agent.heard.count(SESSION_PROMPT) == 4


# --- what was spent before ------------------------------------------------------------------------


def kept(
    *totals: float, limit: Any = None, accepted: str = "", **more: Any
) -> Callable[[SessionJournal], None]:
    """Have a bridge before this one note such a total for each turn, and `more` with it."""

    def write(journal: SessionJournal) -> None:
        for number, total in enumerate(totals, 1):
            told = {"amount": total, "currency": "USD"}
            journal.set_usage(
                str(number),
                {"agent": BUILTIN_INFO, "at": f"2026-0{number}", "costs": [told], **more},
            )
        if limit is not None:
            journal.set("budget", limit)
        if accepted:
            blocks = [{"type": "text", "text": accepted}]
            journal.accept("id", {"sessionId": "s", "prompt": blocks})

    return write


@pytest.mark.hazard("R18.1")
async def test_a_session_that_has_spent_its_budget_before_is_held_when_a_prompt_comes(
    tmp_path: Path,
) -> None:
    agent = telling()
    async with limited(tmp_path, agent, before=kept(3, 6)) as here:
        await quiet()
        assert here.session.now.standstill is Standstill.OPEN
        costs(agent, 6)  # the total that was told before, by an agent that has loaded it
        assert said(here) == []
        asked = here.prompt()
        await on_disk(here, 1)
        assert said(here) == [spent("6", "5")]
        assert SESSION_PROMPT not in agent.heard
        go(here)
        turn = await agent.asked(SESSION_PROMPT)
        costs(agent, 10.9)
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        assert len(said(here)) == 1
        assert said(here, "[acp-bridge] This session") == [budget.nearly_spent(10.9, 11, "USD")]


async def test_what_was_spent_before_the_session_was_imported_does_not_count(
    tmp_path: Path,
) -> None:
    agent = telling()
    async with limited(tmp_path, agent, before=kept(3, 6, elsewhere=True)) as here:
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        costs(agent, 10.9)
        assert said(here) == []
        assert said(here, "[acp-bridge] This session") == [budget.nearly_spent(4.9, 5, "USD")]
        costs(agent, 11)
        assert said(here) == [spent("5", "5")]


@pytest.mark.hazard("R12")
async def test_prompts_that_are_left_over_in_such_a_session_run_only_after_go(
    tmp_path: Path,
) -> None:
    agent = telling()
    async with limited(tmp_path, agent, before=kept(6, accepted="left")) as here:
        await here.session.recovery.run()
        here.prompt("/queue run")
        await quiet()
        assert said(here) == [spent("6", "5")]
        assert notices.RUN_LATER in here.texts()
        assert SESSION_PROMPT not in agent.heard
        here.prompt("/queue go")
        turn = await agent.asked(SESSION_PROMPT)
        assert turn["params"]["prompt"][0]["text"] == "left"
        agent.answer(turn, DONE)


@pytest.mark.hazard("R18.8")
@pytest.mark.parametrize(
    ("limit", "held"),
    [
        ({"limit": 10, "currency": "USD"}, False),
        ({"limit": 10, "currency": "EUR"}, True),
        ({"limit": 1, "currency": "USD"}, True),
        ({"limit": "10", "currency": "USD"}, True),
        ([], True),
    ],
)
async def test_what_go_has_allowed_in_an_earlier_bridge_counts(
    tmp_path: Path, limit: Any, held: bool
) -> None:
    agent = telling()
    async with limited(tmp_path, agent, before=kept(6, limit=limit)) as here:
        assert budget_of(here).cost == 6
        here.prompt()
        await on_disk(here, 1)
        assert bool(said(here)) is held
        assert (SESSION_PROMPT in agent.heard) is not held


async def test_a_budget_that_is_larger_than_what_go_has_allowed_counts(tmp_path: Path) -> None:
    agent = telling()
    less = {"limit": 3, "currency": "USD"}
    async with limited(tmp_path, agent, before=kept(4, limit=less)) as here:
        await here.turn(agent)
        assert said(here) == []


@pytest.mark.parametrize("ends", [ev.Close(), ev.Shutdown()])
async def test_the_end_of_a_session_is_no_go(tmp_path: Path, ends: ev.Event) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        costs(agent, 6)
        here.session.feed(ends)
        assert here.session.now.standstill is Standstill.OPEN
        assert here.journal.get("budget") is None
        agent.answer(turn, DONE)


@pytest.mark.hazard("R18.2")
async def test_words_for_a_turn_that_none_runs_are_held_as_a_prompt_is(tmp_path: Path) -> None:
    agent = telling()
    async with limited(tmp_path, agent, before=kept(6)) as here:
        words = here.request("_session/steering", prompt=[{"type": "text", "text": "and"}])
        here.session.on_steering(words, words.params)
        await until(lambda: here.states() == [PromptState.WAITING])
        await quiet()
        assert said(here) == [spent("6", "5")]
        assert SESSION_PROMPT not in agent.heard


# --- beside other holds ---------------------------------------------------------------------------


async def test_a_users_own_hold_becomes_one_of_the_budget_and_one_go_ends_both(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        asked, turn, waits = await waiting(here, agent)
        here.session.pauses.take(here.request(HOLD))
        costs(agent, 6)
        assert said(here) == [spent("6", "5")]
        assert pause(here)["budget"]["cost"] == 6
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE
        here.session.pauses.take(here.request(HOLD))
        go(here)
        turn = await agent.asked(SESSION_PROMPT)
        costs(agent, 10)
        assert len(said(here)) == 1
        agent.answer(turn, DONE)
        assert await here.answered(waits) == DONE


@pytest.mark.hazard("R18.7")
async def test_a_hold_for_the_budget_outlasts_what_ends_one_behind_a_usage_limit(
    tmp_path: Path, clock: TurnedClock
) -> None:
    info = {"name": "@agentclientprotocol/claude-agent-acp"}
    agent = telling(info)
    async with limited(tmp_path, agent) as here:
        asked, turn, waits = await waiting(here, agent)
        agent.answer(turn, refusal(-32603, "You've hit your limit", errorKind="rate_limit"))
        await here.answered(asked)
        assert "usageLimit" in pause(here)
        costs(agent, 6)
        assert "usageLimit" not in pause(here)
        here.session.cancel_request(here.client.client, waits)
        assert await here.answered(waits) == CANCELLED
        await quiet()
        assert agent_trouble.NOTHING_HELD not in here.texts()
        assert pause(here)["budget"]["cost"] == 6


@pytest.mark.hazard("R18.7")
async def test_the_reset_of_a_usage_limit_ends_no_hold_for_the_budget(
    tmp_path: Path, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_limit, "time", lambda: clock.now + 1e9)
    agent = telling({"name": "@agentclientprotocol/claude-agent-acp"})
    async with limited(tmp_path, agent, resume_at_reset=True) as here:
        asked, turn, waits = await waiting(here, agent)
        reset = {"_claude/rateLimit": {"status": "rejected", "resetsAt": clock.now + 1e9 + 60}}
        agent.update(sessionUpdate=USAGE_UPDATE, used=1, size=2, _meta=reset)
        agent.answer(turn, refusal(-32603, "You've hit your limit", errorKind="rate_limit"))
        await here.answered(asked)
        assert "resetsAt" in pause(here)["usageLimit"]
        costs(agent, 6)
        await clock.passes(1000)
        assert agent_trouble.LIMIT_RESET not in here.texts()
        assert waits not in here.answers()
        assert here.session.now.standstill is Standstill.HELD


async def test_a_client_that_loads_the_session_then_is_told_why_it_is_held(
    tmp_path: Path,
) -> None:
    agent = telling()
    async with limited(tmp_path, agent) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        costs(agent, 6)
        agent.answer(turn, DONE)
        await until(partial(said, here))
        other = ClientEnd({})
        request = other.asks("session/load", {"sessionId": "s"}, 1)
        await here.session.replay.load(request, History.PENDING)
        texts = [str(message) for message in other.sent.messages]
        assert any(spent("6", "5") in text for text in texts)
        assert '"budget"' in texts[-1].replace("'", '"')


async def test_without_a_budget_a_session_may_cost_what_it_likes(tmp_path: Path) -> None:
    agent = telling()
    async with living(tmp_path, first=agent) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        costs(agent, 1e6)
        agent.answer(turn, DONE)
        await here.turn(agent)
        assert said(here, "[acp-bridge]") == []
