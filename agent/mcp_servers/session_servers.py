"""The MCP servers of one session: those that the client gave last.

Invariants
- Servers live while `serve` runs; others given meanwhile take their place, and the old ones are
  closed. After `close` none is left (HAZARDS P7).
- A turn waits for servers that are still starting once, and not for ever (C21).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from agent.mcp_servers.server_set import ServerSet
from agent.tools import AnyTool

#: for servers to start before the first turn that may use them
READY_SECONDS = 15.0


class SessionServers:
    """`report` says a sentence in the session."""

    def __init__(self, report: Callable[[str], Awaitable[None]]) -> None:
        self._report = report
        self._given: Sequence[dict[str, Any]] = ()
        self._current: ServerSet | None = None
        self._replaced: list[ServerSet] = []
        #: those with a running `serve`
        self._served: list[ServerSet] = []
        self._settled = True

    @property
    def tools(self) -> Sequence[AnyTool]:
        return self._current.tools if self._current else ()

    def use(self, servers: Sequence[dict[str, Any]], cwd: Path) -> None:
        """From now on these; those that run already go on if they are the same."""
        if list(servers) == list(self._given):
            return
        self._given = servers
        if self._current:
            self._replaced.append(self._current)
        self._current = ServerSet(servers, cwd, self._report) if servers else None
        self._settled = self._current is None

    async def serve(self) -> None:
        """Close those that were replaced, then run the present ones until they are closed. Returns
        at once if there are none, or they run already."""
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
        """Wait once until each is there or given up, or READY_SECONDS are over."""
        if self._current and not self._settled:
            await self._current.ready(READY_SECONDS)
            self._settled = True

    async def close(self) -> None:
        """Bounded; they can be given anew afterwards."""
        closing = [*self._replaced, *([self._current] if self._current else [])]
        self._replaced.clear()
        self._given, self._current = (), None
        async with anyio.create_task_group() as tasks:
            for servers in closing:
                tasks.start_soon(servers.close)
