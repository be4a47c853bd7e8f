"""A session whose agent a test lets work outside of prompts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acp_bridge.core.session.session import Session
from tests.core.bridge.test_questions import OPTIONS, PERMISSION
from tests.core.sessions.agent import Agent, Json, Process, until
from tests.core.sessions.bench import Bench, Served, bench


@dataclass(slots=True)
class AtWork:
    """A session, and what its agent does and its client says there."""

    it: Bench
    id: str

    @property
    def process(self) -> Process:
        """The last process that was given the session."""
        return self._place[0]

    @property
    def agent_id(self) -> str:
        """The session's id at the agent."""
        return self._place[1]

    @property
    def _place(self) -> tuple[Process, str]:
        ours = self.session.from_agent
        places = [
            (process, link.agent_session_id)
            for process in self.it.agent.processes
            for link in process.places
            if link.owner is ours and link.agent_session_id
        ]
        return places[-1]

    @property
    def session(self) -> Session:
        return self.it.bridge._sessions.live[self.id]

    @property
    def cancels(self) -> int:
        """How often the agent was told to cancel."""
        return len(self.it.agent.params("session/cancel"))

    async def steers(self) -> None:
        """Ask for work; the agent has answered, and works now."""
        block = {"type": "text", "text": "go on"}
        await self.it.editor.ask("_agent/goal", {"sessionId": self.id, "prompt": [block]})

    def says(self, *words: str) -> None:
        for word in words:
            self.process.update(self.agent_id, word)

    def tells(self, kind: str, **more: Any) -> None:
        self.process.shows(self.agent_id, {"sessionUpdate": kind, **more})

    def shows(self, card: str, status: str, *, opens: bool = True) -> None:
        kind = "tool_call" if opens else "tool_call_update"
        self.tells(kind, toolCallId=card, title=card, status=status)

    def asks(self) -> None:
        call = {"toolCallId": "edit", "title": "Edit x"}
        params = {"toolCall": call, "options": OPTIONS, "sessionId": self.agent_id}
        self.process.says({"id": 7, "method": PERMISSION, "params": params})

    async def answered(self) -> list[Json]:
        """Return what the agent got as answer to its question."""

        def answers() -> list[Json]:
            return [
                m["result"] for m in self.process.received if m.get("id") == 7 and "result" in m
            ]

        await until(answers)
        return answers()

    async def stops(self, client: Served | None = None) -> None:
        """Send a client's Stop, which has been read."""
        client = client or self.it.editor
        client.notify("session/cancel", {"sessionId": self.id})
        await client.handled()

    async def row(self) -> Json:
        """Return the session's row in the list of what is live."""
        (row,) = (await self.it.editor.ask("_acp_bridge/live", {}))["sessions"]
        return dict(row)


@asynccontextmanager
async def at_work(home: Path, agent: Agent | None = None, **more: Any) -> AsyncIterator[AtWork]:
    """A session in which nothing has happened; a Stop of work reaches the agent at once."""
    given: Json = {"drain_timeout": 60, "stop_delay": 0, "work_silence": 60, **more}
    async with bench(home, agent, **given) as it:
        yield AtWork(it, await it.new())
