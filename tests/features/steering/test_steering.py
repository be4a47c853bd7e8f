"""Work that a client asks for beside prompts: shown, asked about and stopped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.settings import Delivery, ReloadAfterCancel
from tests.core.bridge.at_work import AtWork, at_work
from tests.core.bridge.test_questions import PERMISSION, chosen
from tests.core.sessions.agent import Agent, until
from tests.features.steering.test_words_that_join import running

WORDS = [f"word {n}" for n in range(20)]


@asynccontextmanager
async def stopped(home: Path, **more: Any) -> AsyncIterator[AtWork]:
    agent = Agent()
    agent.script["_agent/goal"] = {"outcome": "startedNewTurn"}
    async with at_work(home, agent, **more) as here:
        it, gate = here.it, agent.stops_at("session/prompt")
        prompt = it.editor.prompt(here.id, "runs")
        await until(lambda: gate.reached)
        await here.stops()
        await until(lambda: agent.params("session/cancel"))
        gate.open()
        assert await it.editor.stop_reason(prompt) == "cancelled"
        await until(lambda: here.session.now.state.name == "IDLE")
        yield here


@pytest.mark.hazard("C6.2", "C24.3")
@pytest.mark.parametrize("reload", ReloadAfterCancel)
async def test_work_that_is_asked_for_after_a_stop_is_shown_asked_about_and_not_killed(
    tmp_path: Path, reload: ReloadAfterCancel
) -> None:
    async with stopped(tmp_path, reload_after_cancel=reload) as here:
        processes = len(here.it.agent.processes)
        await here.steers()
        here.says(*WORDS)
        here.asks()
        (asked,) = await here.it.editor.got(PERMISSION)
        here.it.editor.answers_with(asked, chosen("yes"))
        assert await here.answered() == [chosen("yes")]
        here.shows("edit", "completed")
        await here.it.editor.handled()
        assert [text for text in here.it.editor.texts(here.id) if text in WORDS] == WORDS
        assert len(here.it.agent.processes) == processes


@pytest.mark.hazard("C6.2", "C24.2")
async def test_work_that_a_notification_of_the_agents_own_asks_for_is_shown_and_not_killed(
    tmp_path: Path,
) -> None:
    async with stopped(tmp_path) as here:
        here.it.editor.notify("_agent/goal", {"sessionId": here.id})
        await until(lambda: here.it.agent.params("_agent/goal"))
        here.says(*WORDS)
        here.shows("edit", "in_progress")
        await here.it.editor.handled()
        assert [text for text in here.it.editor.texts(here.id) if text in WORDS] == WORDS
        assert len(here.it.agent.processes) == 1


@pytest.mark.hazard("C6.2", "C15")
async def test_such_work_can_be_stopped_and_what_comes_after_that_is_a_leak(tmp_path: Path) -> None:
    async with stopped(tmp_path, work_silence=0.01) as here:
        await here.steers()
        here.shows("t", "in_progress")
        here.asks()
        await here.it.editor.got(PERMISSION)
        before = here.cancels
        await here.stops()
        await until(lambda: here.cancels == before + 1)
        await until(lambda: here.session.now.state.name == "IDLE")
        assert await here.answered() == [{"outcome": {"outcome": "cancelled"}}]
        here.says("late")
        here.shows("t", "completed")  # an end of what it did is no leak
        await here.it.editor.handled()
        assert "late" not in here.it.editor.texts(here.id)
        assert len(here.it.agent.processes) == 1
        here.shows("more", "in_progress")
        await until(lambda: len(here.it.agent.processes) == 2)


@pytest.mark.hazard("C6")
async def test_a_stop_where_nothing_was_asked_for_reaches_no_agent(tmp_path: Path) -> None:
    async with stopped(tmp_path) as here:
        before = here.cancels
        await here.stops()
        await here.it.settled()
        assert here.cancels == before


@pytest.mark.hazard("C23.1", "C24.3", "V1")
@pytest.mark.parametrize("kind", ["request", "notification"])
async def test_work_that_another_client_asks_for_is_shown_to_the_one_that_stopped_before_a_question(
    tmp_path: Path, kind: str
) -> None:
    async with stopped(tmp_path) as here:
        here.it.agent.script["_agent/goal"] = {}
        other = await here.it.attached(here.id)
        if kind == "request":
            await other.ask("_agent/goal", {"sessionId": here.id})
        else:
            other.notify("_agent/goal", {"sessionId": here.id})
        await until(lambda: here.it.agent.params("_agent/goal"))
        here.says("working")
        here.shows("edit", "in_progress")
        here.asks()
        for client in (here.it.editor, other):
            await client.got(PERMISSION)
            assert "working" in client.texts(here.id)


@pytest.mark.hazard("Q15")
async def test_with_the_setting_every_prompt_during_a_turn_steers(tmp_path: Path) -> None:
    async with running(tmp_path, delivery=Delivery.STEER) as here:
        here.it.editor.prompt(here.id, "also")
        await until(lambda: here.steered == ["also"])
