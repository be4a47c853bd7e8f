"""Stands for `ServerSet`: the life of a session's MCP servers, and a tool, without servers."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from agent.tools import Access, Action, Grant, Show, ToolContext, ToolResult


class Nothing(BaseModel):
    pass


class Greet:
    """A tool that needs no permission."""

    description = "Greets."
    kind = "other"
    Args = Nothing
    access: Access = "none"

    def __init__(self, server: str) -> None:
        self.name = f"mcp__{server}__greet"

    def title(self, args: Nothing) -> str:
        return "Greet"

    def locations(self, args: Nothing, cwd: Path) -> list[dict[str, Any]]:
        return []

    async def prepare(self, args: Nothing, context: ToolContext) -> Action:
        async def run(show: Show) -> ToolResult:
            return ToolResult(f"hello from {self.name}")

        return Action(run, Grant((self.name,), self.name))


class RecordedServers:
    """`made`: every one that there was. A test may hold `started` back."""

    made: list["RecordedServers"]

    def __init__(
        self,
        servers: Sequence[dict[str, Any]],
        cwd: Path,
        report: Callable[[str], Awaitable[None]],
    ) -> None:
        self.given = servers
        self.report = report
        self.cwd = cwd
        self.names = [server["name"] for server in servers]
        self.tools = [Greet(name) for name in self.names]
        self.served = 0
        self.waited: list[float] = []
        #: that so many more wait for them to start
        self.waits = [anyio.Event() for _ in range(9)]
        self.started = anyio.Event()
        self.closed = anyio.Event()
        if "slow" not in self.names:
            self.started.set()
        RecordedServers.made.append(self)

    async def serve(self) -> None:
        self.served += 1
        await self.closed.wait()

    async def ready(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.waits[len(self.waited) - 1].set()
        await self.started.wait()

    async def close(self) -> None:
        self.closed.set()
        self.started.set()
