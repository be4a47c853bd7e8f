"""When a bridge listens: from its first answer to `initialize` on, up to the beginning of its end.

So its start waits for nothing, and what only listening needs is imported behind it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from acp_bridge.listening.places import new_socket_path
from acp_bridge.runtime.log import event
from acp_bridge.settings import Settings
from acp_bridge.wire.stdio import Reader, Writer

if TYPE_CHECKING:
    from acp_bridge.listening.listener import Listener


class Listening:
    """Lets other clients connect from the first answer to `initialize` on, until `stop`."""

    def __init__(self, settings: Settings, tasks: TaskGroup) -> None:
        """`tasks` serves those who connect. Nothing is made on disk before `run`."""
        self._settings = settings
        self._tasks = tasks
        self._scope = anyio.CancelScope()
        self._listener: Listener | None = None
        #: where the socket is to be; None: nobody is to connect, or there is no place.
        self.path = _path(settings) if settings.listen else None

    def stop(self) -> None:
        """Accept no more connections; clients that are connected stay."""
        self._scope.cancel()

    async def run(
        self,
        ready: Callable[[], Awaitable[object]],
        join: Callable[[Reader, Writer], Awaitable[None]],
    ) -> None:
        """Listen from when `ready` returns until `stop`; `join` serves one more client."""
        if self.path is None:
            return
        with self._scope:
            await ready()
            from acp_bridge.listening.listener import Listener

            home, agent = self._settings.home, self._settings.agent_name
            self._listener = Listener(self._tasks, home, self.path, agent, join)
            await self._listener.run()

    def look_again(self) -> None:
        """Check that others find the socket, and make it again if they don't."""
        if self._listener:
            self._listener.look_again()


def _path(settings: Settings) -> Path | None:
    try:
        return new_socket_path(settings.home, os.environ)
    except OSError as exc:
        event("socket.none", what=exc)
        return None
