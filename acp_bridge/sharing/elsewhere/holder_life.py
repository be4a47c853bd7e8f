"""Finds out whether the bridge that holds a session is alive; a process that hangs says nothing.

Silence alone proves nothing, since a turn may take hours. So whatever a client sends to the other
bridge is followed by a request that every bridge answers as soon as it reads it. A bridge that
still takes bytes is alive, since a large prompt needs its time. One that is silent after that is
given up, or the client would wait for ever for the end of a turn that it cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import anyio

from acp_bridge.core.protocol import LIVE
from acp_bridge.sharing.bridge_client.sent import Sent

#: how many looks in a row must find the other bridge silent; a sleep of this process costs one.
_LOOKS: Final = 3


class OtherBridge(Protocol):
    """The way to the other bridge (`bridge_client.Connection`)."""

    #: the number of bytes that came from the other bridge.
    received: int

    @property
    def taken(self) -> int:
        """The number of bytes that the other bridge has taken of what was sent to it."""

    def send(self, method: str, params: Any) -> Sent:
        """Send a request to the other bridge; returns it, so that its answer can be awaited."""


class HolderLife:
    """Watches whether the other bridge on one connection still answers."""

    def __init__(self, there: OtherBridge, seconds: float, owes: Callable[[], bool]) -> None:
        """`seconds`: the longest silence. `owes` returns True while the other bridge must answer.

        Call `note_sent` for everything that is sent to it, and run `lost` to learn of a silence.
        """
        #: True while this bridge reads nothing from the other one, so that silence proves nothing.
        self.held_up = False
        #: the id of the newest request which the other bridge is known to have read, or 0.
        self.has_read = 0
        self._there = there
        self._seconds = seconds
        self._owes = owes
        self._sent = anyio.Event()

    def note_sent(self) -> None:
        """Note that something was sent, so that the other bridge is asked whether it reads."""
        self._sent.set()

    async def lost(self) -> None:
        """Ask the other bridge for a sign of life after each sending; return when it gives none.

        While `owes` returns True, it is asked after `seconds` without a sending too.
        """
        while True:
            with anyio.move_on_after(self._seconds if self._owes() else None):
                await self._sent.wait()
            await anyio.sleep(self._seconds / _LOOKS)  # one question for all that is sent meanwhile
            self._sent = anyio.Event()
            if not await self._answers():
                return

    async def _answers(self) -> bool:
        """Ask for a sign of life; True on the answer, False after a silence of `seconds`."""
        silent, question = 0, self._there.send(LIVE, {})
        while silent < _LOOKS:
            before = self._there.received, self._there.taken
            with anyio.move_on_after(self._seconds / _LOOKS):
                await question.answered.wait()
                self.has_read = question.id
                return True
            is_heard = before != (self._there.received, self._there.taken)
            silent = 0 if self.held_up or is_heard else silent + 1
        return False
