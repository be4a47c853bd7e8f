"""Swaps an agent that was forked before the model library was loaded for one that has the library
(`agents.parent`). Until then the session's process is provisional: it may not get a prompt.

- The swap is the ordinary restart. It comes as soon as the parent has loaded the library, or at
  once when the model is needed; then the restart waits for the parent.
- It waits until the provisional process has answered every request, for `waits.REQUEST` at most.
"""

from __future__ import annotations

from typing import Final

import anyio

from acp_bridge.agents.link import Link
from acp_bridge.machine import events as ev
from acp_bridge.runtime import waits
from acp_bridge.session.core import Core, SessionState

#: seconds between two looks at a process that has requests.
_LOOK: Final = 0.01


class Provisional:
    """Swaps one session's provisional process for one that has loaded the model library."""

    def __init__(self, core: Core) -> None:
        """Nothing happens before `begin`."""
        self._core = core
        self._needed = anyio.Event()

    def begin(self, link: Link) -> None:
        """Plan the swap of the process that now has the session, if it is a light one."""
        if link.light:
            self._needed = anyio.Event()
            self._core.spawn(self._replace, link)
            if self._core.now.provisional and self._core.now.waiting:
                self.hasten()

    def hasten(self) -> None:
        """Swap the provisional process at once, since the model is needed."""
        self._needed.set()

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Swap the process at once: in the new state a prompt waits for the model."""
        self.hasten()

    async def _replace(self, link: Link) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._loaded, link, tasks.cancel_scope)
            await self._needed.wait()
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(waits.REQUEST):
            while link.peer.busy and not link.gone:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(_LOOK)
        if self._core.now.provisional and self._core.link is link:
            self._core.feed(ev.ReplaceProcess())

    async def _loaded(self, link: Link, scope: anyio.CancelScope) -> None:
        if parent := link.command.parent:
            await parent.settled()
        scope.cancel()
