"""When a bridge listens: from its first answer to `initialize` on, up to the beginning of its end.

So its start waits for nothing, and what only listening needs is imported behind it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from acp_bridge.listening.places import new_socket_path
from acp_bridge.runtime.log import event
from acp_bridge.settings import Settings
from acp_bridge.wire.stdio import Reader, Writer


class Listening:
    """The time in which others can connect to this bridge."""

    def __init__(self, settings: Settings, tasks: TaskGroup) -> None:
        """`tasks` serves those who connect. Nothing is made on disk before `run`."""
        self._settings = settings
        self._tasks = tasks
        self._scope = anyio.CancelScope()
        #: where the socket is to be; None: nobody is to connect, or there is no place.
        self.path = _path(settings) if settings.listen else None

    def stop(self) -> None:
        """Let nobody connect any more; who is served stays."""
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
            await Listener(self._tasks, home, self.path, agent, join).run()


def _path(settings: Settings) -> Path | None:
    try:
        return new_socket_path(settings.home, os.environ)
    except OSError as exc:
        event("socket.none", what=exc)
        return None
