"""A usage limit that an agent has met: what waits is held until go, or until the reset."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents.process import Exit
from acp_bridge.core.journal import PromptState
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import Standstill
from acp_bridge.core.protocol import (
    ACCEPTED,
    GO,
    HOLD,
    SESSION_CANCEL,
    SESSION_PROMPT,
    STEERING,
    USAGE_UPDATE,
)
from acp_bridge.core.updates import agent_trouble
from acp_bridge.features.hooks.definitions import HookEvent
from acp_bridge.features.usage_limits import hold as usage_limit
from tests.core.session.living import CANCELLED, DONE, LONG, Living, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import PlayedAgent, refusal
from tests.core.session.turned_clock import TurnedClock
from tests.core.session.waiting import quiet, until
from tests.features.hooks.hooked import hooked

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("R17")]

CLAUDE: Json = {"agentInfo": {"name": "@agentclientprotocol/claude-agent-acp"}}
LIMIT = refusal(-32603, "You've hit your limit", errorKind="rate_limit")
#: what an agent answers a client that wants failures told so; hooks take it for a turn's good end.
FAILURE: Json = {"category": "limit", "severity": "error", "actions": []}
TYPED: Json = {**DONE, "_meta": {"jetbrains": {"air": {"sessionFailure": FAILURE}}}}
MET = "[acp-bridge] The agent has met a usage limit."
HOUR = 3600.0
#: from a reset to the moment when the queue goes on.
AFTER = 30.0
NEVER = 1e9
RESUMES: Json = {"resume_at_reset": True, "sign_interval": NEVER}


class Wall:
    """A clock on the wall, which somebody may set."""

    def __init__(self, clock: TurnedClock) -> None:
        self._clock, self.ahead = clock, 1_795_526_321.0

    def time(self) -> float:
        return self._clock.now + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    return TurnedClock(monkeypatch)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch, clock: TurnedClock) -> Wall:
    found = Wall(clock)
    monkeypatch.setattr(usage_limit, "time", found.time)
    return found


def limited(*capabilities: str) -> PlayedAgent:
    """Return an agent whose limits are recognised."""
    agent = first(*capabilities)
    agent.connection.initialized = {**agent.initialized, **CLAUDE}
    return agent


def says_reset(agent: PlayedAgent, resets: object) -> None:
    told = {"status": "rejected", "resetsAt": resets}
    agent.update(sessionUpdate=USAGE_UPDATE, used=1, size=2, _meta={"_claude/rateLimit": told})


def said(here: Living) -> list[str]:
    return [text for text in here.texts() if text.startswith(MET)]


def pauses(here: Living) -> list[Any]:
    own = [m["params"].get("_meta", {}).get("acp_bridge", {}) for m in here.got if "method" in m]
    return [each["pause"] for each in own if "pause" in each]


def accepted(here: Living) -> int:
    return [message.get("method") for message in here.got].count(ACCEPTED)


async def meets_limit(here: Living, agent: PlayedAgent, resets: object = None) -> tuple[int, int]:
    """Let a prompt meet the limit while another waits, on disk; returns both requests."""
    before = accepted(here)
    asked = here.prompt("one")
    turn = await agent.asked(SESSION_PROMPT)
    waits = here.prompt("two")
    await until(lambda: accepted(here) == before + 2)
    if resets is not None:
        says_reset(agent, resets)
    agent.answer(turn, LIMIT)
    await here.answered(asked)
    return asked, waits


@pytest.mark.hazard("R17.1", "R17.2")
async def test_the_prompt_is_answered_with_the_agents_error_and_what_waits_is_held_until_go(
    tmp_path: Path,
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent) as here:
        asked, waits = await meets_limit(here, agent)
        assert here.answers()[asked] == LIMIT.to_wire()
        await quiet()
        assert agent.heard.count(SESSION_PROMPT) == 1
        assert said(here) == [
            f"{MET} The agent has not said when the limit resets. What waits is on hold until"
            " `/queue go`."
        ]
        assert pauses(here)[-1] == {"state": "held", "seconds": 0, "usageLimit": {}}
        here.session.pauses.take(here.request(GO))
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE
        assert here.states() == [PromptState.DONE] * 2
        assert [each["prompt"][0]["text"] for each in agent.params(SESSION_PROMPT)] == [
            "one",
            "two",
        ]


async def test_the_reset_is_told_where_the_agent_tells_it(tmp_path: Path, wall: Wall) -> None:
    agent = limited()
    async with living(tmp_path, first=agent) as here:
        resets = int(wall.time() + HOUR)
        await meets_limit(here, agent, resets)
        words = usage_limit._in_words(resets)
        assert said(here) == [
            f"{MET} The limit resets at {words}. What waits is on hold until `/queue go`."
        ]
        assert pauses(here)[-1]["usageLimit"] == {"resetsAt": resets}
        queue = here.request("session/prompt", prompt=[{"type": "text", "text": "/queue"}])
        here.session.on_prompt(queue, queue.params)
        await until(lambda: "1 waiting." in here.texts()[-1])
        assert said(here)[-1].startswith(f"{MET} The limit resets at {words}.")


@pytest.mark.hazard("R17.4")
@pytest.mark.parametrize("resets", [-5, 0, "soon", 253_402_300_799, 1, float("nan")])
async def test_a_reset_in_the_past_or_at_an_absurd_time_is_none(
    tmp_path: Path, clock: TurnedClock, wall: Wall, resets: object
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        await meets_limit(here, agent, resets)
        assert "has not said when" in said(here)[0]
        await clock.passes(1000 * HOUR)
        assert agent.heard.count(SESSION_PROMPT) == 1


async def test_a_reset_of_an_earlier_turn_is_not_that_of_this_limit(
    tmp_path: Path, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent) as here:
        here.prompt()
        turn = await agent.asked(SESSION_PROMPT)
        says_reset(agent, wall.time() + HOUR)
        agent.answer(turn, DONE)
        await meets_limit(here, agent)
        assert "has not said when" in said(here)[0]


async def test_with_nothing_that_waits_nothing_is_held_and_the_next_prompt_is_sent(
    tmp_path: Path,
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent) as here:
        asked = here.prompt("one")
        agent.answer(await agent.asked(SESSION_PROMPT), LIMIT)
        assert await here.answered(asked) == LIMIT.to_wire()
        more = here.prompt("two")
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(more) == DONE
        assert said(here) == []


@pytest.mark.hazard("R17.3")
@pytest.mark.parametrize("error", [refusal(-32603, "rate_limit"), refusal(-32603, "x", a=1)])
async def test_another_error_holds_nothing(tmp_path: Path, error: Any) -> None:
    agent = limited()
    async with living(tmp_path, first=agent) as here:
        here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        waits = here.prompt("two")
        agent.answer(turn, error)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE


@pytest.mark.hazard("R17.4")
async def test_the_queue_goes_on_by_itself_at_the_reset_if_the_user_wants_that(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        _, waits = await meets_limit(here, agent, wall.time() + HOUR)
        assert "goes on by itself then" in said(here)[0]
        await clock.passes(HOUR + AFTER - 1)
        assert agent.heard.count(SESSION_PROMPT) == 1
        await clock.passes(1)
        assert agent.heard.count(SESSION_PROMPT) == 2
        assert agent_trouble.LIMIT_RESET in here.texts()
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE


@pytest.mark.hazard("R17.4")
async def test_without_the_option_it_waits_for_go_whatever_the_time_is(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, sign_interval=NEVER) as here:
        await meets_limit(here, agent, wall.time() + HOUR)
        await clock.passes(100 * HOUR)
        assert agent.heard.count(SESSION_PROMPT) == 1


@pytest.mark.hazard("R17.5")
async def test_the_reset_is_a_time_of_the_wall_clock_which_may_be_set_either_way(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        await meets_limit(here, agent, wall.time() + 2 * HOUR)
        wall.ahead -= HOUR
        await clock.passes(2 * HOUR + AFTER)
        assert agent.heard.count(SESSION_PROMPT) == 1
        wall.ahead += HOUR  # as after the sleep of a laptop
        await clock.passes(AFTER)
        assert agent.heard.count(SESSION_PROMPT) == 2


async def test_go_before_the_reset_goes_on_once_and_the_reset_does_nothing_more(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        _, waits = await meets_limit(here, agent, wall.time() + HOUR)
        here.session.pauses.take(here.request(GO))
        turn = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.HoldQueue())  # the user's own
        late = here.prompt("three")
        agent.answer(turn, DONE)
        assert await here.answered(waits) == DONE
        await clock.passes(100 * HOUR)
        assert agent.heard.count(SESSION_PROMPT) == 2
        assert late not in here.answers()


@pytest.mark.hazard("R17.6")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_users_own_hold_is_never_ended_by_a_reset(
    tmp_path: Path, clock: TurnedClock, wall: Wall, when: str
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        if when == "before":
            here.prompt("one")
            turn = await agent.asked(SESSION_PROMPT)
            here.prompt("two")
            here.session.pauses.take(here.request(HOLD))
            says_reset(agent, wall.time() + HOUR)
            agent.answer(turn, LIMIT)
        else:
            await meets_limit(here, agent, wall.time() + HOUR)
            here.session.pauses.take(here.request(HOLD))
        await clock.passes(100 * HOUR)
        assert agent.heard.count(SESSION_PROMPT) == 1
        assert here.session.now.standstill is Standstill.HELD
        assert "usageLimit" not in (here.session.pauses.state or {})


def _said_so_often(here: Living, times: int) -> bool:
    return len(said(here)) == times


@pytest.mark.hazard("R17.5")
async def test_it_goes_on_by_itself_five_times_and_not_a_sixth(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        for number in range(10):
            here.prompt(str(number))
        for times in range(1, 7):
            turn = await agent.asked(SESSION_PROMPT)
            says_reset(agent, wall.time() + HOUR)
            agent.answer(turn, LIMIT)
            await until(partial(_said_so_often, here, times))
            await clock.passes(HOUR + AFTER)
        assert agent.heard.count(SESSION_PROMPT) == 6
        assert "it has gone on by itself 5 times, and does so no more" in said(here)[-1]
        await clock.passes(100 * HOUR)
        assert agent.heard.count(SESSION_PROMPT) == 6


@pytest.mark.hazard("R17.2")
async def test_words_for_the_limited_turn_of_an_agent_that_takes_none_are_held(
    tmp_path: Path,
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent) as here:
        own = {"acp_bridge": {"delivery": "steer"}}
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        joins = here.prompt("and", _meta=own)
        agent.answer(turn, LIMIT)
        assert await here.answered(asked) == LIMIT.to_wire()
        await quiet()
        assert agent.heard.count(SESSION_PROMPT) == 1
        assert said(here)
        here.session.pauses.take(here.request(GO))
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert (await here.answered(joins))["stopReason"] == "end_turn"


@pytest.mark.hazard("Q15", "R17.2")
async def test_words_of_which_the_agent_says_after_the_limited_turn_that_it_has_none_are_held(
    tmp_path: Path,
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, steers=True) as here:
        own = {"acp_bridge": {"delivery": "steer"}}
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        joins = here.prompt("and", _meta=own)
        steered = await agent.asked(STEERING)
        agent.answer(turn, LIMIT)
        assert await here.answered(asked) == LIMIT.to_wire()
        agent.answer(steered, {"outcome": "promptRequired"})
        await quiet()
        assert agent.heard.count(SESSION_PROMPT) == 1
        here.session.pauses.take(here.request(GO))
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert (await here.answered(joins))["stopReason"] == "end_turn"


@pytest.mark.hazard("Q15")
async def test_words_that_have_joined_the_limited_turn_end_with_it_and_hold_nothing(
    tmp_path: Path,
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, steers=True) as here:
        own = {"acp_bridge": {"delivery": "steer"}}
        here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        joins = here.prompt("and", _meta=own)
        agent.answer(await agent.asked(STEERING), {"outcome": "injected"})
        agent.says_text("at work")
        agent.answer(turn, LIMIT)
        assert await here.answered(joins) == LIMIT.to_wire()
        assert said(here) == []
        assert here.session.now.standstill is Standstill.OPEN


@pytest.mark.hazard("C5")
async def test_a_limit_that_a_cancelled_turn_meets_holds_what_waits_and_is_answered_cancelled(
    tmp_path: Path,
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent) as here:
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        waits = here.prompt("two")
        here.session.audience.cancel(here.client.client)
        await until(lambda: SESSION_CANCEL in agent.heard)
        agent.answer(turn, LIMIT)
        assert await here.answered(asked) == CANCELLED
        await quiet()
        assert agent.heard.count(SESSION_PROMPT) == 1
        assert said(here)
        here.session.pauses.take(here.request(GO))
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE


@pytest.mark.hazard("C23")
async def test_when_what_was_held_is_cancelled_the_hold_ends_and_the_next_prompt_is_sent(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        _, waits = await meets_limit(here, agent, wall.time() + HOUR)
        here.session.audience.cancel(here.client.client)
        assert await here.answered(waits) == CANCELLED
        shown = len(here.got)
        assert here.session.now.standstill is Standstill.OPEN
        await clock.passes(2 * HOUR)
        assert here.got[shown:] == []
        more = here.prompt("three")
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(more) == DONE
        assert agent_trouble.LIMIT_RESET not in here.texts()


@pytest.mark.hazard("C23.1")
async def test_what_goes_on_by_itself_after_a_cancelled_turn_is_shown_to_its_client(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        asked = here.prompt("one")
        turn = await agent.asked(SESSION_PROMPT)
        waits = here.prompt("two")
        here.session.audience.cancel(here.client.client)
        says_reset(agent, wall.time() + HOUR)
        agent.answer(turn, LIMIT)
        assert await here.answered(asked) == CANCELLED
        await clock.passes(HOUR + AFTER)
        turn = await agent.asked(SESSION_PROMPT)
        agent.says_text("the second")
        agent.answer(turn, DONE)
        assert await here.answered(waits) == DONE
        assert "the second" in here.texts()


async def test_an_agent_that_dies_while_its_queue_is_held_is_started_again_at_the_reset(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES, restart_timeout=LONG) as here:
        _, waits = await meets_limit(here, agent, wall.time() + HOUR)
        agent.dies(Exit(1, None))
        await clock.passes(HOUR + AFTER)
        woken = await here.agent(2)
        woken.answer(await woken.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE


async def test_a_session_without_clients_goes_on_at_the_reset(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        await meets_limit(here, agent, wall.time() + HOUR)
        here.session.audience.leave(here.client.client)
        await clock.passes(HOUR + AFTER)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        await until(lambda: here.states() == [PromptState.DONE] * 2)


@pytest.mark.process
@pytest.mark.hazard("Q11", "R17.2")
async def test_a_hooks_feedback_after_a_turn_that_met_the_limit_waits_for_go(
    tmp_path: Path,
) -> None:
    agent = limited()
    again = (HookEvent.TURN_END, "test -e once || { touch once; echo again >&2; exit 2; }")
    async with hooked(tmp_path, again, agent=agent) as here:
        asked = here.prompt("one")
        agent.answer(await agent.asked(SESSION_PROMPT), TYPED)
        await until(lambda: said(here))
        await until(lambda: here.session.now.standstill is Standstill.HELD)
        assert agent.heard.count(SESSION_PROMPT) == 1
        here.session.pauses.take(here.request(GO))
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(asked) == DONE


@pytest.mark.process
@pytest.mark.hazard("Q11")
async def test_a_hooks_feedback_after_a_later_turn_is_sent(tmp_path: Path) -> None:
    agent = limited()
    again = (HookEvent.TURN_END, "test -e once || { touch once; echo again >&2; exit 2; }")
    async with hooked(tmp_path, again, agent=agent) as here:
        asked = here.prompt("one")
        agent.answer(await agent.asked(SESSION_PROMPT), LIMIT)
        await here.answered(asked)
        more = here.prompt("two")
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(more) == DONE
        assert said(here) == []


@pytest.mark.hazard("R12.1")
async def test_the_end_of_the_bridge_leaves_what_waits_over(
    tmp_path: Path, clock: TurnedClock, wall: Wall
) -> None:
    agent = limited()
    async with living(tmp_path, first=agent, **RESUMES) as here:
        await meets_limit(here, agent, wall.time() + HOUR)
        here.session.feed(ev.Shutdown())
        agent.dies()
        await here.session.closed.wait()
        assert agent.heard.count(SESSION_PROMPT) == 1
