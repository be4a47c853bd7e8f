"""Keeps a process ready for the next session, where the user wants that (`--spare`).

It is the process that waits for a session (`waiting_process.py`), under a few rules more:

- When a session has taken one, the next is started, a moment later: the session opens first.
- One that nobody takes is ended after a while, and none is started before a session takes one.
- One that dies or does not start is started again, with growing pauses, and not often.
- None is started where a session beside it would have no room.
- It is replaced when somebody logs in or out, or sets something, at another process: it may have
  read at its start what counts no more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge import errors
from acp_bridge.agents.link import Link
from acp_bridge.log import event
from acp_bridge.sessions.waiting_process import WaitingProcess
from acp_bridge.wire.jsonrpc import RpcError

#: starts in a row of which no process came to a session.
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class SpareTimes:
    """How long things take, in seconds."""

    #: a process that nobody takes is ended.
    unused: float
    #: from the moment in which one was taken to the next start; doubled with each that failed.
    pause: float
    #: for the process to end by itself.
    grace: float


class Spare:
    """Has `waiting` hold a process that no session has asked for yet."""

    def __init__(
        self,
        waiting: WaitingProcess,
        tasks: TaskGroup,
        room: Callable[[], AbstractContextManager[None]],
        times: SpareTimes,
    ) -> None:
        """`room` keeps room for a session beside this process; it raises RpcError without it."""
        self._waiting = waiting
        self._tasks = tasks
        self._room = room
        self._times = times
        self._tries = 0
        self._runs = False
        #: the process that was started here last.
        self._link: Link | None = None
        #: how often something was set that a process reads when it starts.
        self._changes = 0
        waiting.on_taken = self.note_taken

    def note_taken(self) -> None:
        """Note that a session has got a process: another one is to be ready for the next."""
        self._tries = 0
        if not self._runs:
            self._runs = True
            self._tasks.start_soon(self._keep)

    def note_change(self, told: Link) -> None:
        """Note that somebody logged in or out, or set something, at the process `told`."""
        self._changes += 1
        link = self._link
        if link is not None and link is not told and self._waiting.give_up(link):
            self._tasks.start_soon(link.close, self._times.grace)

    async def _keep(self) -> None:
        try:
            while self._tries < _TRIES and await self._one():
                pass
        except Exception as exc:  # no session is to suffer from it (invariant P6)
            errors.internal(exc, "no process is kept ready")
        finally:
            self._runs = False

    async def _one(self) -> bool:
        """Start a process and watch it as long as it waits; False when no other one is wanted."""
        await anyio.sleep(self._times.pause * 2**self._tries)
        if not self._waiting.empty:
            return False
        self._tries += 1
        before = self._changes
        try:
            with self._room():
                await self._waiting.warm()
        except RpcError:
            return False
        link = self._link = self._waiting.link
        if link is None:
            return True
        event("spare.ready", agent=link.name)
        if before != self._changes:
            await self._waiting.end(link, self._times.grace)
            return True
        return not await self._unused(link)

    async def _unused(self, link: Link) -> bool:
        """Return False when the process was taken or has ended; True when it was ended unused."""
        while self._waiting.link is link:
            with anyio.move_on_after(self._times.unused) as waited:
                await self._waiting.emptied.wait()
            if waited.cancelled_caught and not link.peer.busy:
                event("spare.unused", agent=link.name)
                await self._waiting.end(link, self._times.grace)
                return True
        return False
