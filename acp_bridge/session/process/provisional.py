"""Replaces a process that may not get a prompt by one that may: the first built-in agent's, which
has no model library (`agents.parent`).

- It is replaced by the ordinary restart, as soon as the parent of the agents has loaded the
  library, and at once when somebody needs the model; then the restart waits for the parent.
- It is not replaced while it has a request that is not answered.
"""

from __future__ import annotations

from typing import Final

import anyio

from acp_bridge import waits
from acp_bridge.agents.link import Link
from acp_bridge.machine import events as ev
from acp_bridge.session.core import Core, SessionState

#: seconds between two looks at a process that has requests.
_LOOK: Final = 0.01


class Provisional:
    """Follows one session from a provisional process to another one."""

    def __init__(self, core: Core) -> None:
        """Nothing happens before `begin`."""
        self._core = core
        self._needed = anyio.Event()

    def begin(self, link: Link) -> None:
        """Follow the process that was given the session, if it is provisional."""
        if link.light:
            self._needed = anyio.Event()
            self._core.spawn(self._replace, link)
            self._hasten_for_prompts()

    def hasten(self) -> None:
        """Note that somebody needs the model."""
        self._needed.set()

    def wake(self) -> None:
        """Have a process started and given the session, if there is none that may get a prompt."""
        self.hasten()
        self._core.feed(ev.Warm())

    def follow(self, before: SessionState, after: SessionState) -> None:
        """Follow a change of the session's state."""
        self._hasten_for_prompts()

    def _hasten_for_prompts(self) -> None:
        if self._core.now.provisional and self._core.now.waiting:
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
