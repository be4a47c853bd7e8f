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
    """The pause of one prompt: `call` stands around each of its calls."""

    def __init__(self) -> None:
        #: set when the turn may go on; None while it is not paused
        self._going: anyio.Event | None = None
        #: calls that have begun, and those that wait to begin
        self._in_flight = 0
        self._waiting = 0
        self._ended = False
        self._changed = anyio.Event()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Waits until the turn is not paused, then counts a call as begun until the block ends."""
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
        """Pauses the turn; returns True once it waits and no call is in flight.

        Returns False if it goes on or ends before that.
        """
        going = self._going = self._going or anyio.Event()
        while not (self._ended or going.is_set()):
            if self._waiting and not self._in_flight:
                return True
            await self._changed.wait()
        return False

    def go(self) -> None:
        """Lets the turn go on; does nothing if it is not paused."""
        if self._going is not None:
            self._going.set()
            self._going = None
            self._note_change()

    def end(self) -> None:
        """Notes that the prompt is answered."""
        self._ended = True
        self._note_change()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
