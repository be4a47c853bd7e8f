"""The room of the process without a session, the agent behind it, and a client to be asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from acp_bridge.agents.command import AgentCommand
from acp_bridge.agents.link import Link, Owner
from acp_bridge.clients.client import Client
from acp_bridge.sessions.waiting_process import WaitingProcess
from tests.session.memory import ClientEnd
from tests.sessions.agent import Agent


class Room:
    """A WaitingProcess, the agent behind it, and the client that is asked."""

    def __init__(self, agent: Agent, tasks: TaskGroup, timeout: float) -> None:
        self.agent, self.tasks = agent, tasks
        self.editor = ClientEnd({"elicitation": {"form": {}}})
        self.asked: Client | None = self.editor.client
        self.waiting = WaitingProcess(self, lambda: self.asked, timeout)

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        return self.agent.new_link(AgentCommand(("agent",), {}), owner, name, parked=parked)

    async def both(self) -> list[Link]:
        """Let two take a process at once; returns what they got."""
        got: list[Link] = []

        async def take() -> None:
            got.append(await self.waiting.take())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            tasks.start_soon(take)
        return got


@asynccontextmanager
async def room(seconds: float = 60) -> AsyncIterator[Room]:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            yield Room(Agent(), tasks, seconds)
            tasks.cancel_scope.cancel()
