"""The pool of processes without a session, the agent behind it, and a client to be asked."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.agents.connection import AgentCommand, OfSession
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process_pool import ProcessPool, Sharing
from acp_bridge.core.clients.client import Client
from acp_bridge.core.sessions.pool import Pool
from tests.core.session.memory import ClientEnd
from tests.core.sessions.agent import Agent

T = TypeVar("T")


class Room:
    """A pool, the agent behind it, and the client that is asked."""

    def __init__(self, agent: Agent, tasks: TaskGroup, timeout: float) -> None:
        self.agent, self.tasks = agent, tasks
        self.editor = ClientEnd({"elicitation": {"form": {}}})
        self.asked: Client | None = self.editor.client
        self.processes: ProcessPool[OfSession] = ProcessPool()
        self.pool = Pool(self, lambda: self.asked, timeout)

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        return self.agent.new_link(
            AgentCommand(("agent",), {}), owner, name, self.processes, parked=parked
        )

    #: no process is shared, unless a test says so.
    shares = Sharing.NEVER

    @property
    def links(self) -> list[Link]:
        """The link to each process that was started, in order."""
        return [process.link for process in self.agent.processes]

    async def both(self) -> list[Link]:
        """Let two take a process at once; returns what they got."""
        got: list[Link] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(into, got, self.pool.take)
            tasks.start_soon(into, got, self.pool.take)
        return got


async def into(got: list[T], work: Callable[[], Awaitable[T]]) -> None:
    """Add to `got` what the work comes to."""
    got.append(await work())


@asynccontextmanager
async def room(seconds: float = 60) -> AsyncIterator[Room]:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            yield Room(Agent(), tasks, seconds)
            tasks.cancel_scope.cancel()
