"""A session with modes, models and options, and what its later processes are sent of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp_bridge.core.protocol import SET_CONFIG_OPTION, SET_MODE, SET_MODEL
from tests.core.sessions.agent import Agent, Json, Process
from tests.core.sessions.bench import Bench, Served, bench
from tests.core.sessions.world import SETUP

MODES: Json = {
    "currentModeId": "plan",
    "availableModes": [{"id": "plan"}, {"id": "edit"}, {"id": "auto"}],
}
MODELS: Json = {"currentModelId": "big", "availableModels": [{"modelId": "big"}, {"modelId": "s"}]}
SETTINGS = (SET_MODE, SET_MODEL, SET_CONFIG_OPTION)


def option(option_id: str, value: object, *values: str, category: str = "other") -> Json:
    held = {"id": option_id, "category": category, "currentValue": value}
    return {**held, "options": [{"value": each} for each in values]} if values else held


def options_told(*options: Json) -> Json:
    return {"sessionUpdate": "config_option_update", "configOptions": list(options)}


def mode_told(mode: object) -> Json:
    return {"sessionUpdate": "current_mode_update", "currentModeId": mode}


OPTIONS = [
    option("perm", "plan", "plan", "edit", "auto", category="mode"),
    option("model", "big", "big", "s", category="model"),
    option("effort", "low", "low", "high"),
    option("fast", False),
]
TOLD: Json = {"modes": MODES, "models": MODELS, "configOptions": OPTIONS}


class Settled:
    """The session, and the client that has it."""

    def __init__(self, it: Bench, session_id: str) -> None:
        self.it, self.id = it, session_id
        self.agent = it.agent
        self._other: Served | None = None

    @property
    def process(self) -> Process:
        """The process that has the session."""
        return next(each for each in self.agent.living if each.agent_session_id)

    async def chooses(self, method: str, answer: Any = None, **params: Any) -> None:
        """Let the client choose a setting, which the agent confirms with this answer."""
        self.agent.script[method] = answer or {}
        await self.it.editor.ask(method, {"sessionId": self.id, **params})
        self.agent.script[method] = {}

    def tells(self, update: Json) -> None:
        """Let the agent tell a state of the session."""
        self.process.shows(self.process.agent_session_id, update)

    async def prompt(self) -> None:
        """Let a prompt run; a process is started for it if none is there."""
        assert await self.it.editor.stop_reason(self.it.editor.prompt(self.id, "go")) == "end_turn"

    async def sent_again(self, begins_with: Json | None = None) -> list[tuple[str, Json]]:
        """Let the process die; returns the settings that the next one is sent before the prompt.

        `begins_with`: what the next one tells of its settings.
        """
        self.agent.script["session/resume"] = begins_with or {}
        self.process.dies()
        await self.prompt()
        return set_in(self.process)

    async def shown(self) -> Json:
        """Return the settings that a client is shown that loads the session."""
        self._other = self._other or await self.it.joined(
            session={"configOptions": {"boolean": True}}
        )
        load = {**SETUP, "sessionId": self.id}
        answer: Json = await self._other.ask("session/load", load)
        return {key: answer[key] for key in answer if key != "_meta"}

    def updates(self) -> list[Json]:
        """Return the updates of mode and options that the client was shown, in order."""
        shown = [m["params"]["update"] for m in self.it.editor.asked("session/update")]
        kinds = ("current_mode_update", "config_option_update")
        return [each for each in shown if each["sessionUpdate"] in kinds]


def set_in(process: Process) -> list[tuple[str, Json]]:
    """Return the settings that a process was sent, without the session's id."""
    sent = [each for each in process.received if each.get("method") in SETTINGS]
    return [
        (each["method"], {k: v for k, v in each["params"].items() if k != "sessionId"})
        for each in sent
    ]


@asynccontextmanager
async def settled(
    home: Path, told: Json = TOLD, agent: Agent | None = None
) -> AsyncIterator[Settled]:
    """A new session of which a turn has ended; the agent tells this with it."""
    agent = agent or Agent()
    agent.script |= {each: {} for each in SETTINGS}
    new = agent.script["session/new"]

    async def tells(process: Process, params: Json) -> Json:
        return {**await new(process, params), **told}

    agent.script["session/new"] = tells
    async with bench(home, agent) as it:
        here = Settled(it, await it.new())
        await here.prompt()
        yield here


@asynccontextmanager
async def next_bridge(home: Path, before: Settled) -> AsyncIterator[Settled]:
    """The same session in another bridge, whose process is given it when a prompt comes."""
    async with bench(home, before.agent) as it:
        load = {**SETUP, "sessionId": before.id}
        await it.editor.ask("session/load", load)
        here = Settled(it, before.id)
        await here.prompt()
        yield here
