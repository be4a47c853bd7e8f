"""The MCP servers of one session: those of the client's last request that named some.

Invariants
- Servers live while `serve` runs. When the client names others, those replace them and the old ones
  are closed. After `close` none is left (invariant P7).
- A turn waits for servers that are still starting, but only once for the same servers, and for a
  bounded time (invariant C21).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from agent.mcp_servers.server_set import ServerSet
from agent.tools import AnyTool

#: seconds for servers to start before the first turn that may use them
READY_SECONDS = 15.0


class SessionServers:
    """The servers of one session. `report` shows the user a sentence in the session."""

    def __init__(self, report: Callable[[str], Awaitable[None]]) -> None:
        self._report = report
        self._given: Sequence[dict[str, Any]] = ()
        self._current: ServerSet | None = None
        self._replaced: list[ServerSet] = []
        #: the sets whose `serve` is running
        self._served: list[ServerSet] = []
        self._settled = True

    @property
    def tools(self) -> Sequence[AnyTool]:
        return self._current.tools if self._current else ()

    def use(self, servers: Sequence[dict[str, Any]], cwd: Path) -> None:
        """Replaces the session's servers; does nothing if they are the same as before."""
        if list(servers) == list(self._given):
            return
        self._given = servers
        if self._current:
            self._replaced.append(self._current)
        self._current = ServerSet(servers, cwd, self._report) if servers else None
        self._settled = self._current is None

    async def serve(self) -> None:
        """Closes the replaced servers, then runs the current ones until they are closed.

        Returns at once if there are none, or if they are running already.
        """
        while self._replaced:
            await self._replaced.pop().close()
        if (current := self._current) is None or current in self._served:
            return
        self._served.append(current)
        try:
            await current.serve()
        finally:
            self._served.remove(current)

    async def settled(self) -> None:
        """Waits, READY_SECONDS at most, until each of the servers has connected or failed.

        Returns at once if it has waited for the same servers before.
        """
        if self._current and not self._settled:
            await self._current.ready(READY_SECONDS)
            self._settled = True

    async def close(self) -> None:
        """Closes all servers in bounded time; `use` may be called again afterwards."""
        closing = [*self._replaced, *([self._current] if self._current else [])]
        self._replaced.clear()
        self._given, self._current = (), None
        async with anyio.create_task_group() as tasks:
            for servers in closing:
                tasks.start_soon(servers.close)
