"""Lets a bridge listen from its first answer to `initialize` on, until it begins to end.

So its start does not wait for the socket, and modules that only listening needs are imported later.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.runtime.log import event
from acp_bridge.core.settings import Settings
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.sharing.listening.places import new_socket_path

if TYPE_CHECKING:
    from acp_bridge.sharing.listening.listener import Listener


class Listening:
    """Runs a listener for other clients, from the first answer to `initialize` on until `stop`."""

    def __init__(self, settings: Settings, tasks: TaskGroup) -> None:
        """`tasks` runs the clients that connect. Nothing is made on disk before `run`."""
        self._settings = settings
        self._tasks = tasks
        self._scope = anyio.CancelScope()
        self._listener: Listener | None = None
        #: the path for the socket; None: nobody is to connect, or no folder is fit for it.
        self.path = _path(settings) if settings.listen else None

    def stop(self) -> None:
        """Accept no more connections; clients that are connected stay."""
        self._scope.cancel()

    async def run(
        self,
        ready: Callable[[], Awaitable[object]],
        join: Callable[[Reader, Writer], Awaitable[None]],
    ) -> None:
        """Wait for `ready`, then listen until `stop`; `join` serves each client that connects."""
        if self.path is None:
            return
        with self._scope:
            await ready()
            from acp_bridge.sharing.listening.listener import Listener

            home, agent = self._settings.home, self._settings.agent_name
            self._listener = Listener(self._tasks, home, self.path, agent, join)
            await self._listener.run()

    def look_again(self) -> None:
        """Check soon that the socket is still in place, and make it again if not."""
        if self._listener:
            self._listener.look_again()


def _path(settings: Settings) -> Path | None:
    try:
        return new_socket_path(settings.home, os.environ)
    except OSError as exc:
        event("socket.none", what=exc)
        return None
