"""Finds out whether the bridge that holds a session is alive: a stopped process says nothing.

Its silence alone proves nothing, since a turn may take hours. So whatever a client sends there is
followed by a question that every bridge answers where it reads it. One that takes what it is sent
is alive: a large prompt takes its time. What is silent after that is given up, or the client would
wait for ever for the end of what it cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import anyio

from acp_bridge.bridge_client.sent import Sent
from acp_bridge.protocol import LIVE

#: looks at the silence; one that this process itself has slept through costs one of them.
_LOOKS: Final = 3


class OtherBridge(Protocol):
    """The way to the other bridge (`bridge_client.Connection`)."""

    #: bytes that came from it.
    received: int

    @property
    def taken(self) -> int:
        """The bytes that it has taken of what was sent to it."""

    def send(self, method: str, params: Any) -> Sent:
        """Send a request."""


class HolderLife:
    """Watches one connection to another bridge."""

    def __init__(self, there: OtherBridge, seconds: float, owes: Callable[[], bool]) -> None:
        """`seconds`: a longer silence is too long. `owes`: True while it must answer soon.

        Call `note_sent` for everything that is sent there, and run `lost` to learn of a silence.
        """
        #: True while this bridge reads nothing from there, so that silence proves nothing.
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
        """Wait until the other bridge has said nothing for too long."""
        while True:
            with anyio.move_on_after(self._seconds if self._owes() else None):
                await self._sent.wait()
            await anyio.sleep(self._seconds / _LOOKS)  # one question for all that is sent meanwhile
            self._sent = anyio.Event()
            if not await self._answers():
                return

    async def _answers(self) -> bool:
        """Send the bridge a question; True when it answers, False if it is silent for too long."""
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
