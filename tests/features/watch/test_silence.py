"""A turn of which the agent says nothing: what is said of it, and when it is cancelled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.agents.descendants import Program
from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.states import State
from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    GO,
    PAUSE,
    REQUEST_PERMISSION,
    SESSION_CANCEL,
    SESSION_PROMPT,
    SPARES,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    own_meta,
    text_chunk,
)
from acp_bridge.core.settings import OnCancel
from acp_bridge.features.watch import silence
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.memory import Json
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.test_from_agent import USAGE, says
from tests.core.session.test_turn import SAYS_STATES, Lists
from tests.core.session.turned_clock import TurnedClock
from tests.core.session.waiting import until

pytestmark = pytest.mark.usefixtures("no_errors")

SILENT = "[acp-bridge] The agent has said nothing for "
STOPPING = "[acp-bridge] Stopping this turn: "
ABLE: Json = {"_meta": {"acp_bridge": {"pause": True}}}
MINUTE = 60.0


class Below:
    """The processes below each agent, as a look finds them."""

    def __init__(self) -> None:
        self.programs: dict[int, Program] | None = {}
        #: changes them before the next look.
        self.meanwhile: Callable[[], None] = lambda: None

    def look(self, main: int) -> dict[int, Program] | None:
        self.meanwhile()
        return None if self.programs is None else dict(self.programs)

    def computes(self, seconds: float) -> None:
        """Add CPU time to that of every process."""
        for pid, each in (self.programs or {}).items():
            self.programs = {pid: Program(each.name, each.cpu + seconds, each.age)}


@pytest.fixture(autouse=True)
def below(monkeypatch: pytest.MonkeyPatch) -> Below:
    async def at_once(function: Callable[..., Any], *args: Any, **how: Any) -> Any:
        return function(*args)

    found = Below()
    monkeypatch.setattr(silence, "programs_below", found.look)
    monkeypatch.setattr(silence, "in_thread", at_once)
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    return TurnedClock(monkeypatch)


def said(here: Living, beginning: str = SILENT) -> list[str]:
    return [text for text in here.texts() if text.startswith(beginning)]


async def running(here: Living, agent: PlayedAgent) -> tuple[int, Json]:
    """Let a prompt run; returns the client's request and the agent's."""
    asked = here.prompt()
    return asked, await agent.asked(SESSION_PROMPT)


def begins_call(agent: PlayedAgent) -> None:
    agent.update(sessionUpdate=TOOL_CALL, toolCallId="t", title="make", status="in_progress")


async def test_a_silence_is_told_once_with_the_programs_below_the_agent(
    tmp_path: Path, below: Below, clock: TurnedClock
) -> None:
    below.programs = {
        5: Program("node", 0.21, 400),
        7: Program("cargo", 75, 190),
        9: Program("", 3, 4),
    }
    agent = first()
    async with living(tmp_path, first=agent) as here:
        asked, turn = await running(here, agent)
        await clock.passes(119)
        assert said(here) == []
        await clock.passes(1)
        (text,) = said(here)
        assert text.startswith(f"{SILENT}2 min. Below it run:\n\n- `cargo`: 1 min 15 s of CPU time")
        assert "- `node`: 0.2 s of CPU time, began 6 min 40 s ago\n\n" in text
        assert text.count("\n- ") == 2
        await clock.passes(60 * MINUTE)
        assert said(here) == [text]
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE


async def test_without_a_program_and_where_none_can_be_seen_the_notice_says_so(
    tmp_path: Path, below: Below, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        _, turn = await running(here, agent)
        await clock.passes(2 * MINUTE)
        below.programs = None
        agent.answer(turn, DONE)
        await running(here, agent)
        await clock.passes(2 * MINUTE)
        assert "No program runs below it." in said(here)[0]
        assert "What runs below it can't be seen." in said(here)[1]


async def test_what_the_agent_says_of_its_turn_and_asks_breaks_a_silence_and_states_do_not(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        await running(here, agent)
        await clock.passes(100)
        says(agent, text_chunk(AGENT_MESSAGE, "at work", "m"), USAGE)
        await clock.passes(100)
        agent.update(sessionUpdate="subagent_update", sessionId="kid", title="Look around")
        await clock.passes(100)
        asked = {"path": "/x", "sessionId": "0"}
        agent.says({"id": 1, "method": "fs/read_text_file", "params": asked})
        await clock.passes(100)
        says(agent, USAGE)
        assert said(here) == []
        await clock.passes(20)
        assert len(said(here)) == 1


async def test_a_turn_that_falls_silent_again_is_told_again_after_twice_the_time(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        await running(here, agent)
        for number, seconds in ((1, 120), (2, 240), (3, 480)):
            await clock.passes(seconds - 1)
            assert len(said(here)) == number - 1
            await clock.passes(1)
            assert len(said(here)) == number
            agent.says_text("at work")


async def test_an_open_tool_call_has_ten_minutes_and_its_end_counts_at_once(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        await running(here, agent)
        begins_call(agent)
        await clock.passes(10 * MINUTE - 1)
        assert said(here) == []
        await clock.passes(1)
        assert said(here)[0].startswith(f"{SILENT}10 min, and a tool call is open.")
    agent = first()
    (tmp_path / "b").mkdir()
    async with living(tmp_path / "b", first=agent) as here:
        await running(here, agent)
        begins_call(agent)
        await clock.passes(3 * MINUTE)
        agent.update(sessionUpdate=TOOL_CALL_UPDATE, toolCallId="t", status="completed")
        await clock.passes(2 * MINUTE)
        assert said(here)[0].startswith(f"{SILENT}2 min. ")


async def test_what_a_client_is_asked_to_do_counts_as_an_open_tool_call(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, cancel_silent_after=MINUTE) as here:
        await running(here, agent)
        params = {"sessionId": "0", "command": "make"}
        agent.says({"id": 9, "method": "terminal/create", "params": params})
        await clock.passes(10 * MINUTE - 1)
        assert said(here) == []
        await clock.passes(1)
        assert said(here)
        assert SESSION_CANCEL not in agent.heard


async def test_a_hold_in_the_turn_changes_nothing_about_its_open_tool_call(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        await running(here, agent)
        begins_call(agent)
        here.session.feed(ev.HoldQueue())
        await clock.passes(3 * MINUTE)
        assert said(here) == []


async def test_a_call_that_an_earlier_turn_has_left_open_is_not_of_this_turn(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        _, turn = await running(here, agent)
        begins_call(agent)
        agent.answer(turn, DONE)
        await running(here, agent)
        await clock.passes(2 * MINUTE)
        assert said(here)


async def test_while_a_person_is_asked_nothing_is_silent(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, cancel_silent_after=MINUTE) as here:
        await running(here, agent)
        options = [{"optionId": "a", "name": "Yes", "kind": "allow_once"}]
        call = {"toolCallId": "t", "title": "rm"}
        params = {"sessionId": "0", "toolCall": call, "options": options}
        agent.says({"id": 9, "method": REQUEST_PERMISSION, "params": params})
        await clock.passes(600 * MINUTE)
        assert said(here) == []
        assert here.session.now.state is State.RUNNING
        (question,) = [m for m in here.got if m.get("method") == REQUEST_PERMISSION]
        here.client.answers(question["id"], {"outcome": {"outcome": "selected", "optionId": "a"}})
        await clock.passes(10 * MINUTE - 1)
        assert said(here) == []
        await clock.passes(1)
        assert len(said(here)) == 1
        agent.update(sessionUpdate=TOOL_CALL_UPDATE, toolCallId="t", status="completed")
        await clock.passes(1.5 * MINUTE)
        assert said(here, STOPPING)


async def test_a_paused_turn_is_not_silent_and_a_held_one_is(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, capabilities=ABLE) as here:
        await running(here, agent)
        here.session.pauses.take(here.request(PAUSE))
        agent.answer(await agent.asked(PAUSE), {"paused": True})
        await clock.passes(60 * MINUTE)
        here.session.pauses.take(here.request(GO))
        await clock.passes(119)
        assert said(here) == []
        here.session.feed(ev.HoldQueue())
        await clock.passes(2 * MINUTE)
        assert said(here)


async def test_an_agent_that_is_not_read_because_a_client_reads_nothing_is_not_silent(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, cancel_silent_after=MINUTE) as here:
        await running(here, agent)
        here.session.audience.pacing.waits = True
        await clock.passes(60 * MINUTE)
        assert said(here) == []
        assert SESSION_CANCEL not in agent.heard
        here.session.audience.pacing.waits = False
        await clock.passes(1.5 * MINUTE)
        assert SESSION_CANCEL in agent.heard


async def test_an_agent_that_ends_its_turn_or_dies_is_not_called_silent(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        _, turn = await running(here, agent)
        await clock.passes(100)
        agent.answer(turn, DONE)
        await clock.passes(60 * MINUTE)
        asked, _ = await running(here, agent)
        await clock.passes(100)
        agent.dies()
        assert "code" in await here.answered(asked)
        await clock.passes(60 * MINUTE)
        assert said(here) == []


@pytest.mark.hazard("C26.6", "C26.8", "C3", "C10")
async def test_a_turn_that_is_silent_for_too_long_is_cancelled_and_what_waits_runs(
    tmp_path: Path, below: Below, clock: TurnedClock
) -> None:
    below.programs = {5: Program("server", 3, 400)}
    agent = first()
    async with living(
        tmp_path, first=agent, cancel_silent_after=30 * MINUTE, on_cancel=OnCancel.CLEAR
    ) as here:
        asked, turn = await running(here, agent)
        waits = here.prompt("next")
        await clock.passes(30 * MINUTE - 1)
        assert SESSION_CANCEL not in agent.heard
        await clock.passes(1)
        assert SESSION_CANCEL in agent.heard
        assert said(here, f"{STOPPING}for 30 min the agent has said nothing")
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await here.answered(waits) == DONE
        assert agent.heard.count(SESSION_CANCEL) == 1


@pytest.mark.hazard("C16", "C26.6")
async def test_that_cancel_spares_no_background_for_an_earlier_stop_that_did(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = Lists("resume")
    async with living(tmp_path, first=agent, cancel_silent_after=MINUTE) as here:
        here.client.client.abilities = ClientAbilities(SAYS_STATES)
        asked, turn = await running(here, agent)
        here.session.audience.cancel(here.client.client)
        agent.answer(turn, CANCELLED)
        assert await here.answered(asked) == CANCELLED
        await running(here, agent)
        await clock.passes(MINUTE)
        stopped, silent = agent.params(SESSION_CANCEL)
        assert (own_meta(stopped), own_meta(silent)) == ({SPARES: True}, {})


@pytest.mark.hazard("C26.6", "C8.1")
async def test_an_agent_that_is_deaf_to_that_cancel_is_killed_and_reloaded(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent, cancel_silent_after=MINUTE, drain_timeout=4) as here:
        asked, _ = await running(here, agent)
        await clock.passes(MINUTE + 4)
        assert await here.answered(asked) == CANCELLED
        assert agent.dead.is_set()
        more = here.prompt("more")
        woken = await here.agent(2)
        woken.answer(await woken.asked(SESSION_PROMPT), DONE)
        assert await here.answered(more) == DONE


@pytest.mark.hazard("C26.7")
@pytest.mark.parametrize("what", ["computes", "a new process", "a call", "unseen", "progress"])
async def test_a_turn_in_which_something_can_be_at_work_is_not_cancelled(
    tmp_path: Path, below: Below, clock: TurnedClock, what: str
) -> None:
    below.programs = {5: Program("cargo", 3, 400)}
    agent = first()
    async with living(tmp_path, first=agent, cancel_silent_after=4 * MINUTE) as here:
        asked, turn = await running(here, agent)
        match what:
            case "computes":
                below.meanwhile = lambda: below.computes(1)
            case "a new process":
                below.programs = {}
                numbers = iter(range(100, 1000))

                def another() -> None:
                    below.programs = {next(numbers): Program("cc", 1, 1)}

                below.meanwhile = another
            case "a call":
                begins_call(agent)
            case "unseen":
                below.programs = None
            case _:
                below.meanwhile = lambda: agent.says_text("at work")
        await clock.passes(60 * MINUTE)
        assert SESSION_CANCEL not in agent.heard
        agent.answer(turn, DONE)
        assert await here.answered(asked) == DONE


@pytest.mark.hazard("C26.7")
async def test_the_time_begins_anew_when_what_has_computed_stops(
    tmp_path: Path, below: Below, clock: TurnedClock
) -> None:
    below.programs = {5: Program("cargo", 3, 400)}
    below.meanwhile = lambda: below.computes(1)
    agent = first()
    async with living(tmp_path, first=agent, cancel_silent_after=4 * MINUTE) as here:
        await running(here, agent)
        await clock.passes(60 * MINUTE)
        below.meanwhile = lambda: below.computes(0.1)  # what waits for something uses a little
        await clock.passes(4 * MINUTE - 1)
        assert SESSION_CANCEL not in agent.heard
        await clock.passes(MINUTE + 1)
        await until(lambda: SESSION_CANCEL in agent.heard)


async def test_without_the_option_no_silent_turn_is_cancelled(
    tmp_path: Path, clock: TurnedClock
) -> None:
    agent = first()
    async with living(tmp_path, first=agent) as here:
        await running(here, agent)
        await clock.passes(10_000 * MINUTE)
        assert SESSION_CANCEL not in agent.heard
