"""Work that a client asks for beside prompts: shown, asked about and stopped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.settings import ReloadAfterCancel
from tests.bridge.test_questions import OPTIONS, PERMISSION, chosen
from tests.sessions.agent import Agent, Json, Process, until
from tests.sessions.bench import Bench, bench

WORDS = [f"word {n}" for n in range(20)]


@dataclass(slots=True)
class Stopped:
    """A session whose turn was stopped, with an agent that can be given work."""

    it: Bench
    id: str

    @property
    def process(self) -> Process:
        return self.it.agent.processes[-1]

    async def steers(self) -> None:
        """Ask for work; the agent has answered, and works now."""
        block = {"type": "text", "text": "go on"}
        await self.it.editor.ask("_agent/goal", {"sessionId": self.id, "prompt": [block]})

    def says(self, *words: str) -> None:
        for word in words:
            self.process.update(str(self.process.agent_session_id), word)

    def shows(self, card: str, status: str) -> None:
        update = {"sessionUpdate": "tool_call", "toolCallId": card, "title": card, "status": status}
        self.process.shows(self.process.agent_session_id, update)

    def asks(self) -> None:
        call = {"toolCallId": "edit", "title": "Edit x"}
        params = {"toolCall": call, "options": OPTIONS, "sessionId": self.process.agent_session_id}
        self.process.says({"id": 7, "method": PERMISSION, "params": params})

    async def answered(self) -> list[Json]:
        """Return what the agent got as answer to its question."""

        def answers() -> list[Json]:
            return [
                m["result"] for m in self.process.received if m.get("id") == 7 and "result" in m
            ]

        await until(answers)
        return answers()

    async def stops(self) -> None:
        self.it.editor.notify("session/cancel", {"sessionId": self.id})
        await self.it.editor.handled()


@asynccontextmanager
async def stopped(home: Path, **more: Any) -> AsyncIterator[Stopped]:
    agent = Agent()
    agent.script["_agent/goal"] = {"outcome": "startedNewTurn"}
    async with bench(home, agent, drain_timeout=60, **more) as it:
        here = Stopped(it, await it.new())
        gate = agent.stops_at("session/prompt")
        prompt = it.editor.prompt(here.id, "runs")
        await until(lambda: gate.reached)
        await here.stops()
        await until(lambda: agent.params("session/cancel"))
        gate.open()
        assert await it.editor.stop_reason(prompt) == "cancelled"
        await until(lambda: it.bridge._sessions.live[here.id].now.state.name == "IDLE")
        yield here


@pytest.mark.hazard("C6", "C24")
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


@pytest.mark.hazard("C6", "C24")
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


@pytest.mark.hazard("C6", "C15")
async def test_such_work_can_be_stopped_and_what_comes_after_that_is_a_leak(tmp_path: Path) -> None:
    async with stopped(tmp_path) as here:
        await here.steers()
        here.shows("t", "in_progress")
        here.asks()
        await here.it.editor.got(PERMISSION)
        before = len(here.it.agent.params("session/cancel"))
        await here.stops()
        assert len(here.it.agent.params("session/cancel")) == before + 1
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
        before = len(here.it.agent.params("session/cancel"))
        await here.stops()
        assert len(here.it.agent.params("session/cancel")) == before


@pytest.mark.hazard("C23", "C24", "V1")
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
