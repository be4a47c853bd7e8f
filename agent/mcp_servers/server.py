"""One MCP server of a session, from its start to its end.

Invariants
- `serve` owns the server: it connects, lists the tools, runs the calls, and leaves nothing behind.
  Whatever goes wrong with the server is told in one sentence, once, and harms nothing else.
- A call runs in the task group of `serve`. A caller that is cancelled does not wait; the SDK tells
  the server of the cancellation afterwards.
- Every wait is bounded: by START_SECONDS until the tools are known, by CALL_SECONDS for a call.
- A server's words about its tool are for the model only. `access` is "execute" for every tool,
  whatever its annotations promise, so that the user is asked.
- Arguments go to the server unchanged; the server checks them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from pydantic import RootModel

from agent.mcp_servers.mcp_session import McpSession, connect
from agent.mcp_servers.names import identity, tool_names
from agent.mcp_servers.problems import Problem, in_words, refusal
from agent.mcp_servers.results import tool_result
from agent.tools import Access, Action, Grant, Show, ToolContext, ToolError, ToolResult

logger = logging.getLogger(__name__)

#: seconds until a server has listed its tools; many are downloaded at their first start
START_SECONDS = 60.0
#: seconds for listing a server's changed tools
LIST_SECONDS = 20.0
#: seconds for one call
CALL_SECONDS = 600.0
#: characters of a server's name when it is shown
_NAME_LIMIT = 60

#: calls a tool by the server's name of it, with arguments; returns a CallToolResult in wire form,
#: or raises ToolError
Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class McpServer:
    """One MCP server.

    `spec`: its entry in ACP's `mcpServers`. `part`: its part in its tools' names.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        part: str,
        cwd: Path,
        report: Callable[[str], Awaitable[None]],
    ) -> None:
        self.name = str(spec["name"])[:_NAME_LIMIT]
        self.tools: tuple[McpTool, ...] = ()
        #: set once the server is connected or has failed
        self.settled = anyio.Event()
        self._spec = spec
        self._part = part
        self._cwd = cwd
        self._identity = identity(spec, cwd)
        self._report = report
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self._ending = False
        self._changed = anyio.Event()
        #: the task group of calls; None without a connection
        self._calls: TaskGroup | None = None
        self._connection: McpSession | None = None
        #: what was said of odd tools
        self._odd = set[str]()

    async def serve(self) -> None:
        """Runs the server until it ends or `end` is called.

        Its errors are shown to the user, not raised.
        """
        sentence = ""
        try:
            await self._serve()
        except Exception as error:
            # The traceback may contain addresses and keys: log it at debug only.
            logger.debug("the MCP server %s failed", self.name, exc_info=error)
            sentence = self._told(in_words(error))
        finally:
            self.tools = ()
            self.settled.set()
        if sentence and not self._ending:
            logger.warning("%s", sentence)
            await self.say(sentence)

    def end(self) -> None:
        """Ends the server: `serve` closes its connection and returns; no problem is shown."""
        self._ending = True
        self._over.set()
        if not self.settled.is_set():
            self._scope.cancel()

    async def say(self, sentence: str) -> None:
        try:
            await self._report(sentence)
        except Exception:
            logger.exception("it could not be said: %s", sentence)

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool; returns a CallToolResult in wire form. Raises ToolError."""
        if self._calls is None or self._connection is None:
            raise ToolError(f"The MCP server {self.name} is gone.")
        call = _Call(self._connection, tool, arguments)
        self._calls.start_soon(call.run)
        try:
            with anyio.move_on_after(CALL_SECONDS) as limit:
                await call.ended.wait()
        finally:
            call.scope.cancel()
        if limit.cancelled_caught:
            raise ToolError(f"The MCP server {self.name} gave no answer in {CALL_SECONDS:g} s.")
        if call.error is not None:
            logger.debug("a call of the MCP server %s failed", self.name, exc_info=call.error)
            raise ToolError(refusal(self.name, call.error)) from call.error
        if call.answer is None:
            raise ToolError(f"The MCP server {self.name} ended before it answered.")
        return call.answer

    async def _serve(self) -> None:
        # Calls run outside of the connection's context: the SDK shields its notification of a
        # cancelled call for seconds unless the connection is closed.
        async with anyio.create_task_group() as calls:
            self._scope.deadline = anyio.current_time() + START_SECONDS
            with self._scope:
                async with connect(
                    self._spec,
                    self._cwd,
                    on_change=lambda: self._changed.set(),
                    on_end=self._over.set,
                ) as connection:
                    self.tools = await self._list(connection)
                    self._scope.deadline = math.inf
                    self.settled.set()
                    await self._attend(connection, calls)
            calls.cancel_scope.cancel()
        if self._scope.cancelled_caught:
            raise Problem(f"it was not ready within {START_SECONDS:g} s")

    async def _attend(self, connection: McpSession, calls: TaskGroup) -> None:
        """Runs calls, and lists changed tools again, until the connection is over.

        Raises Problem.
        """
        try:
            async with anyio.create_task_group() as tasks:
                self._connection, self._calls = connection, calls
                tasks.start_soon(self._follow, connection)
                await self._over.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._connection = self._calls = None
        if not self._ending:
            raise Problem("its connection ended")

    async def _follow(self, connection: McpSession) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                with anyio.fail_after(LIST_SECONDS):
                    self.tools = await self._list(connection)
            except Exception as error:  # the old tools stay; a call tells if the server is gone
                logger.warning("the tools of the MCP server %s could not be listed", self.name)
                logger.debug("the MCP server %s", self.name, exc_info=error)

    async def _list(self, connection: McpSession) -> tuple[McpTool, ...]:
        page = await connection.list_tools()
        for sentence in page.oddities():
            if sentence not in self._odd:
                self._odd.add(sentence)
                logger.info("the MCP server %s %s", self.name, sentence)
                await self.say(f"The MCP server {self.name} {sentence}")
        found = {tool["name"]: tool for tool in page.tools}
        names = tool_names(self._part, list(found))
        return tuple(
            McpTool(full, self.name, found[tool], self.call, self._identity)
            for full, tool in names.items()
        )

    def _told(self, problem: str) -> str:
        if self.settled.is_set():
            return f"The MCP server {self.name} is gone, and its tools with it: {problem}."
        return f"The MCP server {self.name} can't be used: {problem}."


class _Call:
    """A call that runs in the server's task group while the turn's task waits for its end."""

    def __init__(self, connection: McpSession, tool: str, arguments: dict[str, Any]) -> None:
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.answer: dict[str, Any] | None = None
        self.error: Exception | None = None
        self._connection, self._tool, self._arguments = connection, tool, arguments

    async def run(self) -> None:
        try:
            with self.scope:
                self.answer = await self._connection.call(self._tool, self._arguments)
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()


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
