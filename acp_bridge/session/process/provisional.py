"""Replaces a process that may not get a prompt by one that may: the first built-in agent's, which
has no model library (`agents.parent`).

- It is replaced by the ordinary restart, as soon as the parent of the agents has loaded the
  library, and at once when somebody needs the model; then the restart waits for the parent.
- It is not replaced while it has a request that is not answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import anyio

from acp_bridge import waits
from acp_bridge.agents.link import Link
from acp_bridge.machine import events as ev

#: seconds between two looks at a process that has requests.
_LOOK: Final = 0.01


class ProvisionalPort(Protocol):
    """What is needed of the session."""

    @property
    def provisional(self) -> bool:
        """True while the session's process may not get a prompt."""

    @property
    def waiting(self) -> tuple[int, ...]:
        """The keys of the prompts in the queue."""

    @property
    def link(self) -> Link | None:
        """The process that has the session open and takes requests, or None."""

    def feed(self, event_: ev.Event) -> None:
        """Give the machine an event."""

    def spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a piece of work whose failure is this session's only."""


class Provisional:
    """Follows one session from a provisional process to another one."""

    def __init__(self, port: ProvisionalPort) -> None:
        """Nothing happens before `begin`."""
        self._port = port
        self._needed = anyio.Event()

    def begin(self, link: Link) -> None:
        """Follow the process that was given the session, if it is provisional."""
        if link.light:
            self._needed = anyio.Event()
            self._port.spawn(self._replace, link)
            self.look_again()

    def hasten(self) -> None:
        """Note that somebody needs the model."""
        self._needed.set()

    def look_again(self) -> None:
        """Follow a change of the machine's state."""
        if self._port.provisional and self._port.waiting:
            self.hasten()

    async def _replace(self, link: Link) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._loaded, link, tasks.cancel_scope)
            await self._needed.wait()
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(waits.REQUEST):
            while link.peer.busy and not link.gone:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(_LOOK)
        if self._port.provisional and self._port.link is link:
            self._port.feed(ev.ReplaceProcess())

    async def _loaded(self, link: Link, scope: anyio.CancelScope) -> None:
        if parent := link.command.parent:
            await parent.settled()
        scope.cancel()
