"""Lets a turn wait between its calls, at the user's word.

Invariants
- While it is paused no model call and no tool call begins; what has begun goes on to its end.
- A cancellation ends the wait at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class Pause:
    """The pause of one prompt; each model or tool call runs inside the block of `call`."""

    def __init__(self) -> None:
        #: set when the turn may continue; None while it is not paused
        self._going: anyio.Event | None = None
        #: how many calls have begun and not ended, and how many wait to begin
        self._in_flight = 0
        self._waiting = 0
        self._ended = False
        self._changed = anyio.Event()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Waits while the turn is paused, then counts a call as in flight until the block ends."""
        while (going := self._going) is not None:
            self._waiting += 1
            self._note_change()
            try:
                await going.wait()
            finally:
                self._waiting -= 1
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._note_change()

    async def begin(self) -> bool:
        """Pauses the turn; returns True once no call is in flight and the next one waits.

        Returns False if the turn continues or ends before that.
        """
        going = self._going = self._going or anyio.Event()
        while not (self._ended or going.is_set()):
            if self._waiting and not self._in_flight:
                return True
            await self._changed.wait()
        return False

    def go(self) -> None:
        """Ends the pause; does nothing if the turn is not paused."""
        if self._going is not None:
            self._going.set()
            self._going = None
            self._note_change()

    def end(self) -> None:
        """Notes that the prompt is answered, so that `begin` waits no longer."""
        self._ended = True
        self._note_change()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
