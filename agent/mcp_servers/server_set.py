"""A set of MCP servers that are started and ended together.

Invariants
- `serve` owns the servers: each has one task, in which its connection is opened and closed.
- The servers live as long as `serve` runs, and none is left after it (invariants P7, P1).
- A problem of one server is told in the session in one sentence; the others go on.
- `mcp` is imported only if there is a server, and in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from agent.mcp_servers.names import server_parts
from agent.mcp_servers.server import McpServer
from agent.tools import AnyTool

#: seconds in which servers may end by themselves; then their tasks are cancelled
_CLOSE_SECONDS = 2.0
#: seconds in which cancelled tasks may kill what is left (`agent.mcp_servers.stdio`)
_KILL_SECONDS = 3.0


class ServerSet:
    """The servers of an `mcpServers` of ACP (`agent.mcp_servers.transports` has the form).

    `cwd`: the folder in which their processes run. `report` shows the user a sentence in the
    session.
    """

    def __init__(
        self,
        servers: Sequence[dict[str, Any]],
        cwd: Path,
        report: Callable[[str], Awaitable[None]],
    ) -> None:
        parts = server_parts([str(spec["name"]) for spec in servers])
        self._servers = [
            McpServer(spec, part, cwd, report) for spec, part in zip(servers, parts, strict=True)
        ]
        self._scope = anyio.CancelScope()
        self._closing = anyio.Event()
        self._ended: anyio.Event | None = None
        self._late: set[str] = set()

    @property
    def tools(self) -> Sequence[AnyTool]:
        """The tools of the servers that are connected."""
        return [tool for server in self._servers for tool in server.tools]

    async def serve(self) -> None:
        """Starts the servers and runs them until `close` is called or the task is cancelled."""
        if self._closing.is_set():
            return
        self._ended = ended = anyio.Event()
        try:
            with self._scope:
                if self._servers:
                    await anyio.to_thread.run_sync(_import_sdk, abandon_on_cancel=True)
                async with anyio.create_task_group() as tasks:
                    for server in self._servers:
                        tasks.start_soon(server.serve)
                    await self._closing.wait()
        finally:
            ended.set()

    async def ready(self, seconds: float) -> None:
        """Waits until each server is connected or has failed, at most `seconds`.

        Then it tells the user which servers are still starting, each once.
        """
        with anyio.move_on_after(seconds):
            for server in self._servers:
                await server.settled.wait()
        for server in self._servers:
            if not server.settled.is_set() and server.name not in self._late:
                self._late.add(server.name)
                await server.say(
                    f"The MCP server {server.name} is still starting; its tools come later."
                )

    async def close(self) -> None:
        """Ends all servers, within _CLOSE_SECONDS + _KILL_SECONDS."""
        self._closing.set()
        for server in self._servers:
            server.end()
        if self._ended is None:
            return
        with anyio.move_on_after(_CLOSE_SECONDS):
            await self._ended.wait()
        self._scope.cancel()
        with anyio.move_on_after(_KILL_SECONDS):
            await self._ended.wait()


def _import_sdk() -> None:
    """Imports `mcp`, which takes more than a second, and silences its logs.

    They contain addresses, which may hold keys; this package logs what matters.
    """
    import mcp.client.sse
    import mcp.client.stdio
    import mcp.client.streamable_http  # noqa: F401

    for name in ("mcp", "client", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
