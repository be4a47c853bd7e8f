"""A tool of an MCP server in the form of the agent's own tools.

Invariants
- A server's words about its tool are for the model only. `access` is "execute" for every tool,
  whatever its annotations promise, so that the user is asked.
- Arguments go to the server unchanged; the server checks them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import RootModel

from agent.mcp_servers.results import tool_result
from agent.tools import Access, Action, Grant, Show, ToolContext, ToolResult

#: calls a tool by the server's name of it, with arguments; returns a CallToolResult in wire form,
#: or raises ToolError
Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Arguments(RootModel[dict[str, Any]]):
    """Any object; each tool has a subclass with the server's schema."""


class McpTool:
    """A tool of an MCP server.

    `definition`: an MCP `Tool` in wire form. `server`: its server's name, for the user. `identity`
    tells the server from another one of the same name.
    """

    kind = "other"
    access: Access = "execute"

    def __init__(
        self,
        name: str,
        server: str,
        definition: Mapping[str, Any],
        call: Call,
        identity: str = "",
    ) -> None:
        self.name = name
        self._tool = str(definition["name"])
        self._server = server
        self._call = call
        self._identity = identity
        self.description = str(definition.get("description") or definition.get("title") or "")
        self.Args = _arguments(definition.get("inputSchema") or {})

    def title(self, args: Arguments) -> str:
        return f"{self._server}: {self._tool}"

    def locations(self, args: Arguments, cwd: Path) -> list[dict[str, Any]]:
        return []

    async def prepare(self, args: Arguments, context: ToolContext) -> Action:
        async def run(show: Show) -> ToolResult:
            return tool_result(await self._call(self._tool, args.root), context.secrets.mask)

        name = f"`{self._tool}` of {self._server}"
        return Action(run, Grant(("mcp", self.name), name, within=self._identity))


def _arguments(schema: dict[str, Any]) -> type[Arguments]:
    # Some servers leave `properties` out, without which some providers refuse an object.
    told = {"type": "object", "properties": {}, **schema}

    class ToolArguments(Arguments):
        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return told

    return ToolArguments
