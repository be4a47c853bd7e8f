"""A session whose process is to be replaced before a prompt: by which moment, and what waits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_bridge.core.agents.connection import AgentCommand
from acp_bridge.core.agents.parent import AgentParent, Phase
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import ASK, SESSION_PROMPT, SESSION_RESUME, SET_MODE
from acp_bridge.core.runtime import waits
from tests.core.session.living import CANCELLED, DONE, Living, Prepare, first, living, resumes
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.waiting import quiet, until

pytestmark = [pytest.mark.usefixtures("no_errors"), pytest.mark.hazard("F4")]

MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "edit"}]}


class PlayedParent(AgentParent):
    """Loads as long as the test likes; nothing is started."""

    def __init__(self) -> None:
        super().__init__(["none"])
        self._enter(Phase.LOADING)

    def loads(self, phase: Phase = Phase.READY) -> None:
        self._enter(phase)


def light(parent: AgentParent) -> PlayedAgent:
    """Return a light process in which the session was made."""
    agent = first()
    agent.connection.light, agent.connection.command = (
        True,
        AgentCommand(("agent",), {}, parent=parent),
    )
    return agent


@asynccontextmanager
async def provisional(
    folder: Path, *prepare: Prepare
) -> AsyncIterator[tuple[Living, PlayedParent]]:
    parent = PlayedParent()
    async with living(folder, *prepare, first=light(parent)) as here:
        await quiet()
        yield here, parent


@pytest.mark.hazard("F4.5")
async def test_the_first_prompt_has_the_process_replaced_and_goes_to_the_next_one(
    tmp_path: Path,
) -> None:
    async with provisional(tmp_path) as (here, _):
        prompt = here.prompt()
        ready = await here.agent(2)
        ready.answer(await ready.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE
        assert ready.heard[1:] == [SESSION_RESUME, SESSION_PROMPT]
        assert here.context.agents[0].dead.is_set()
        assert SESSION_PROMPT not in here.context.agents[0].heard
        assert here.texts() == []


async def test_it_is_replaced_when_the_parent_has_loaded_and_not_twice(tmp_path: Path) -> None:
    async with provisional(tmp_path) as (here, parent):
        await quiet()
        assert len(here.context.agents) == 1
        parent.loads()
        ready = await here.agent(2)
        await until(lambda: here.session.link is ready)
        assert here.context.agents[0].dead.is_set()
        await here.turn(ready)
        await quiet()
        assert len(here.context.agents) == 2


@pytest.mark.parametrize("phase", [Phase.READY, Phase.ABSENT])
async def test_a_parent_that_has_loaded_or_failed_before_is_not_waited_for(
    phase: Phase, tmp_path: Path
) -> None:
    parent = PlayedParent()
    parent.loads(phase)
    async with living(tmp_path, first=light(parent)) as here:
        ready = await here.agent(2)
        await here.turn(ready)


@pytest.mark.hazard("F4.3")
async def test_a_setting_is_taken_at_once_and_answered_before_the_process_is_replaced(
    tmp_path: Path,
) -> None:
    async with provisional(tmp_path) as (here, parent):
        agent = await here.agent()
        here.session.user_settings.note_result({"modes": MODES})
        setting = here.asks(SET_MODE, modeId="edit")
        asked = await agent.asked(SET_MODE)
        parent.loads()
        here.prompt()
        await quiet()
        assert len(here.context.agents) == 1
        agent.answer(asked, {})
        assert await here.answered(setting) == {}
        ready = await here.agent(2)
        ready.answer(await ready.asked(SET_MODE), {})  # it has what the user chose
        ready.answer(await ready.asked(SESSION_PROMPT), DONE)


async def test_a_request_that_is_not_answered_holds_the_replacement_up_for_its_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with provisional(tmp_path) as (here, _):
        agent = await here.agent()
        here.session.user_settings.note_result({"modes": MODES})
        here.asks(SET_MODE, modeId="edit")
        await agent.asked(SET_MODE)
        monkeypatch.setattr(waits, "REQUEST", 0)
        prompt = here.prompt()
        ready = await here.agent(2)
        monkeypatch.undo()
        ready.answer(await ready.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE


@pytest.mark.hazard("F4.4")
async def test_what_needs_the_model_waits_for_the_next_process_and_has_it_come(
    tmp_path: Path,
) -> None:
    async with provisional(tmp_path) as (here, _):
        question = here.asks(ASK, question="which?")
        ready = await here.agent(2)
        ready.answer(await ready.asked(ASK), {"answer": "this"})
        assert await here.answered(question) == {"answer": "this"}
        assert ASK not in here.context.agents[0].heard


@pytest.mark.hazard("F4.5")
async def test_a_prompt_that_waits_for_it_can_be_cancelled(tmp_path: Path) -> None:
    def gated(agent: PlayedAgent) -> None:
        resumes(agent)
        agent.ready = False

    async with provisional(tmp_path, gated) as (here, _):
        prompt = here.prompt()
        ready = await here.agent(2)
        here.session.feed(ev.Cancel())
        assert await here.answered(prompt) == CANCELLED
        assert SESSION_PROMPT not in ready.heard


async def test_a_light_process_that_dies_is_replaced_at_the_next_prompt(tmp_path: Path) -> None:
    async with provisional(tmp_path) as (here, parent):
        (await here.agent()).dies()
        await until(lambda: here.session.link is None)
        parent.loads()
        prompt = here.prompt()
        ready = await here.agent(2)
        ready.answer(await ready.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE


async def test_a_session_that_is_loaded_into_a_light_process_is_given_to_the_next_one(
    tmp_path: Path,
) -> None:
    parent = PlayedParent()

    def takes_it_up(agent: PlayedAgent) -> None:
        resumes(agent)
        if len(parent_seen) == 0:
            agent.connection.light, agent.connection.command = (
                True,
                AgentCommand(("agent",), {}, parent=parent),
            )
        parent_seen.append(agent)

    parent_seen: list[PlayedAgent] = []
    async with living(tmp_path, takes_it_up) as here:
        here.session.wake()
        agent = await here.agent()
        await until(lambda: here.session.link is agent)
        prompt = here.prompt()
        ready = await here.agent(2)
        ready.answer(await ready.asked(SESSION_PROMPT), DONE)
        assert await here.answered(prompt) == DONE
        assert SESSION_PROMPT not in agent.heard


async def test_a_session_with_a_light_process_is_closed_as_any_other(tmp_path: Path) -> None:
    async with provisional(tmp_path) as (here, _):
        here.prompt()
    assert here.session.closed.is_set()
