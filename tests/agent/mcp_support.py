"""The MCP servers of a session, served in the test's task group."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from agent.mcp_servers import McpServers
from agent.mcp_tool import McpTool
from agent.tools import ToolContext, ToolResult
from tests.agent.support import MemoryClient
from tests.support.processes import MARK

SUPPORT = Path(__file__).parents[1] / "support"
SDK_SERVER = (sys.executable, "-I", str(SUPPORT / "mcp_server.py"))


def stdio(name: str, *command: str, mark: str = "", **env: str) -> dict[str, Any]:
    """As ACP has it."""
    env = {**env, **({MARK: mark} if mark else {})}
    return {
        "name": name,
        "command": command[0],
        "args": list(command[1:]),
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }


def odd(name: str, *behaviours: str, mark: str = "") -> dict[str, Any]:
    script = str(SUPPORT / "odd_mcp_server.py")
    return stdio(name, sys.executable, "-I", "-S", script, *behaviours, mark=mark)


@dataclass(slots=True)
class Stand:
    servers: McpServers
    cwd: Path
    #: what was reported in the session
    said: list[str] = field(default_factory=list)
    spoke: anyio.Event = field(default_factory=anyio.Event)

    async def report(self, sentence: str) -> None:
        self.said.append(sentence)
        self.spoke.set()

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.servers.tools]

    def tool(self, name: str) -> McpTool:
        """`name`: the end of its full one."""
        [tool] = [tool for tool in self.servers.tools if tool.name.endswith(f"__{name}")]
        assert isinstance(tool, McpTool)
        return tool

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        return await call(self.tool(name), self.cwd, **arguments)


async def call(tool: McpTool, cwd: Path, **arguments: Any) -> ToolResult:
    context = ToolContext(cwd, MemoryClient())
    action = await tool.prepare(tool.Args.model_validate(arguments), context)

    async def show(content: Any) -> None:
        raise AssertionError("MCP tools show nothing while they run")

    with anyio.fail_after(10):
        return await action.run(show)


@asynccontextmanager
async def serving(cwd: Path, *specs: dict[str, Any]) -> AsyncIterator[Stand]:
    """Each is connected or given up; closed at the end."""
    async with starting(cwd, *specs) as stand:
        with anyio.fail_after(20):
            await stand.servers.ready(20)
        yield stand


@asynccontextmanager
async def starting(cwd: Path, *specs: dict[str, Any]) -> AsyncIterator[Stand]:
    async def report(sentence: str) -> None:
        await stand.report(sentence)

    stand = Stand(McpServers(specs, cwd, report), cwd)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stand.servers.serve)
        try:
            yield stand
        finally:
            with anyio.fail_after(6, shield=True):
                await stand.servers.close()
