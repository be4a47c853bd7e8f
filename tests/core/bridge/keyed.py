"""A session whose prompts are sent under keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.core.sessions.agent import Agent, Gate, Json, until
from tests.core.sessions.bench import Bench, Served, bench


def keyed(session_id: str, text: str, key: Any, **own: Any) -> Json:
    """The parameters of a prompt that is sent under a key."""
    blocks = [{"type": "text", "text": text}]
    return {
        "sessionId": session_id,
        "prompt": blocks,
        "_meta": {"acp_bridge": {"promptKey": key, **own}},
    }


@dataclass(slots=True)
class Keyed:
    """A session whose agent stops at the gate with each prompt."""

    it: Bench
    id: str
    gate: Gate

    @property
    def editor(self) -> Served:
        return self.it.editor

    @property
    def prompted(self) -> list[str]:
        """The texts of the prompts that the agent got."""
        return [each["prompt"][0]["text"] for each in self.it.agent.params("session/prompt")]

    @property
    def rows(self) -> list[str]:
        """The words of all prompts that the journal has."""
        rows = self.it.bridge._sessions.live[self.id].journal.prompts()
        return [row.params["prompt"][0]["text"] for row in rows]

    def send(self, text: str, key: Any, client: Any = None, **own: Any) -> Any:
        params = keyed(self.id, text, key, **own)
        return (client or self.editor).send("session/prompt", params)

    async def runs(self, text: str, key: Any, client: Any = None) -> Any:
        """Send a prompt, and return the id of its request when the agent has the prompt."""
        before = self.gate.reached
        asked = self.send(text, key, client)
        await until(lambda: self.gate.reached > before)
        return asked

    async def runs_for_one_who_leaves(self, text: str, key: Any) -> None:
        """Have a client send a prompt, and leave when the agent has it."""
        lost = await self.it.attached(self.id)
        await self.runs(text, key, lost)
        lost.leaves()
        await lost.parted.wait()

    async def says(self, text: str) -> str:
        assert await self.editor.stop_reason(self.editor.prompt(self.id, text)) == "end_turn"
        return self.editor.texts(self.id)[-1].strip()

    async def shown_by(self, client: Any, text: str) -> int:
        """How often a client was shown this text."""
        await self.it.settled()
        return [each.strip() for each in client.texts(self.id)].count(text)


@asynccontextmanager
async def session(
    home: Path, agent: Agent | None = None, *, load: str = "", **more: Any
) -> AsyncIterator[Keyed]:
    agent = agent or Agent()
    gate = agent.stops_at("session/prompt")
    async with bench(home, agent, **more) as it:
        setup = {"cwd": str(home), "mcpServers": []}
        if load:
            await it.editor.ask("session/load", {**setup, "sessionId": load})
        else:
            load = (await it.editor.ask("session/new", setup))["sessionId"]
        yield Keyed(it, load, gate)


@asynccontextmanager
async def left_over(home: Path, *texts: str, **more: Any) -> AsyncIterator[Keyed]:
    """The session in the next bridge; these prompts are left over, each under its text as key."""
    async with session(home) as here:
        await here.runs("runs", "runs")
        for text in texts:
            here.send(text, text)
        await here.it.settled()
        session_id = here.id
    async with session(home, load=session_id, **more) as here:
        here.gate.open()
        yield here
