"""The deadlines of one session's machine, kept by the clock."""

from __future__ import annotations

import anyio

from acp_bridge.machine import events as ev
from acp_bridge.machine.events import Timer
from acp_bridge.runtime.log import event
from acp_bridge.session.core import Core
from acp_bridge.settings import Settings


class Deadlines:
    """At most one of each timer is armed; when it passes, the machine gets a `Deadline`."""

    def __init__(self, core: Core, settings: Settings) -> None:
        """Nothing is armed."""
        self._core = core
        self._seconds = {
            Timer.SPARE: settings.drain_timeout / 2,
            Timer.DRAIN: settings.drain_timeout,
            Timer.KILL: settings.kill_timeout,
            Timer.RESTART: settings.restart_timeout,
            Timer.SIGN: settings.sign_interval,
        }
        self._armed: dict[Timer, anyio.CancelScope] = {}

    def arm(self, timer: Timer, token: int) -> None:
        """Start a timer, in place of one that was armed for the same `Timer`."""
        self.disarm(timer)
        scope = self._armed[timer] = anyio.CancelScope()
        self._core.spawn(self._wait, timer, token, scope)

    def disarm(self, timer: Timer) -> None:
        """Stop a timer; nothing happens if it is not armed."""
        if scope := self._armed.pop(timer, None):
            scope.cancel()

    async def _wait(self, timer: Timer, token: int, scope: anyio.CancelScope) -> None:
        with scope:
            await anyio.sleep(self._seconds[timer])
        if not scope.cancel_called:  # it may have been disarmed just as it passed
            event("deadline", session=self._core.id, what=timer.name.lower())
            self._core.feed(ev.Deadline(timer, token))
