"""What is kept from a client after `cancelled` or a load, until it speaks or a turn begins."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.core.sessions.agent import Json, Process, until
from tests.core.sessions.bench import Bench, Served, bench
from tests.core.sessions.world import SETUP

pytestmark = pytest.mark.hazard("C23")
KINDS = ("usage_update", "agent_message_chunk", "available_commands_update", "_x/y")


class Quiet:
    """A session with two clients; the agent says things in it outside of a turn."""

    def __init__(self, it: Bench, session_id: str, other: Served) -> None:
        self.it, self.id, self.other = it, session_id, other
        (self.process,) = it.agent.processes
        self._said = 0

    def uses(self) -> None:
        """Let the agent tell how much it has used."""
        self._said += 1
        usage = {"sessionUpdate": "usage_update", "used": self._said, "size": 9}
        self.process.shows("agent-1", usage)

    def notifies(self) -> None:
        self.process.says({"method": "_x/y", "params": {"sessionId": "agent-1"}})

    async def stops(self) -> None:
        """Let the client on stdin send a prompt and stop it."""
        gate = self.it.agent.stops_at("session/prompt")
        prompt = self.it.editor.prompt(self.id, "go")
        await until(lambda: gate.reached)
        self.it.editor.notify("session/cancel", {"sessionId": self.id})
        await self.it.editor.handled()
        gate.open()
        assert await self.it.editor.stop_reason(prompt) == "cancelled"
        self.shown(self.it.editor)
        self.shown(self.other)

    def shown(self, client: Served) -> list[str]:
        """Return the kinds of what the client was shown since it was looked at last."""
        got = [_kind(message) for message in client.out.take() if "method" in message]
        return [kind for kind in got if kind in KINDS]


def _kind(message: Json) -> Any:
    return message["params"].get("update", {}).get("sessionUpdate", message["method"])


@asynccontextmanager
async def quiet(home: Path) -> AsyncIterator[Quiet]:
    async with bench(home, drain_timeout=60) as it:
        session_id = await it.new()
        yield Quiet(it, session_id, await it.attached(session_id))


@pytest.mark.hazard("C23.1")
async def test_after_cancelled_nothing_is_shown_until_the_client_speaks_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async with quiet(tmp_path) as here:
        await here.stops()
        here.uses()
        here.notifies()
        assert here.shown(here.it.editor) == []
        assert here.shown(here.other) == ["usage_update", "_x/y"]
        here.it.editor.notify("session/cancel", {"sessionId": here.id})
        await here.it.editor.handled()
        assert here.shown(here.it.editor) == ["usage_update", "_x/y"]


async def test_a_turn_that_begins_ends_the_quiet(tmp_path: Path) -> None:
    async with quiet(tmp_path) as here:
        await here.stops()
        here.uses()
        await here.other.stop_reason(here.other.prompt(here.id, "go on"))
        assert here.shown(here.it.editor) == ["usage_update", "agent_message_chunk"]


@pytest.mark.hazard("T2")
async def test_a_turn_that_begins_during_a_load_ends_a_quiet_that_begins_there_too(
    tmp_path: Path,
) -> None:
    async with quiet(tmp_path) as here:
        gate = here.it.agent.stops_at("session/prompt")
        prompt = here.it.editor.prompt(here.id, "go")
        await until(lambda: gate.reached)
        here.it.editor.notify("session/cancel", {"sessionId": here.id})
        load = here.it.editor.send("session/load", {**SETUP, "sessionId": here.id})
        other = here.other.prompt(here.id, "go on")
        await here.other.handled()
        gate.open()
        assert await here.it.editor.stop_reason(prompt) == "cancelled"
        await here.it.editor.result(load)
        assert await here.other.stop_reason(other) == "end_turn"
        assert here.it.editor.texts(here.id)[-1] == "echo go on"


@pytest.mark.hazard("C23.1")
async def test_after_a_load_all_but_the_conversation_waits_for_the_client(tmp_path: Path) -> None:
    async with quiet(tmp_path) as here:
        await here.other.ask("session/load", {**SETUP, "sessionId": here.id})
        here.shown(here.other)
        here.uses()
        here.process.update("agent-1", "said")
        assert here.shown(here.other) == ["agent_message_chunk"]
        here.other.notify("session/cancel", {"sessionId": here.id})
        await here.other.handled()
        assert here.shown(here.other) == ["usage_update"]


async def test_commands_are_shown_once_and_once_more_with_the_first_prompt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told(*names: str) -> Json:
        commands = [{"name": each} for each in names]
        return {"sessionUpdate": "available_commands_update", "availableCommands": commands}

    async def commands(process: Process, params: Json) -> Json:
        process.shows(params["sessionId"], told("old"))
        return {"stopReason": "end_turn"}

    async with quiet(tmp_path) as here:
        here.it.agent.script["session/prompt"] = commands
        here.shown(here.it.editor)
        for _ in range(2):
            here.process.shows("agent-1", told("old"))
        assert here.shown(here.it.editor) == ["available_commands_update"]
        for again in (1, 0):
            await here.it.editor.stop_reason(here.it.editor.prompt(here.id, "go"))
            assert here.shown(here.it.editor) == ["available_commands_update"] * again
        here.process.shows("agent-1", told("old", "new"))
        assert here.shown(here.it.editor) == ["available_commands_update"]
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
