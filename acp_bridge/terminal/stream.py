"""A stream of bytes to a bridge, and writing to it without waiting."""

from __future__ import annotations

from typing import Protocol

import anyio


class Stream(Protocol):
    """Carries bytes both ways, in pieces of any length."""

    async def receive(self) -> bytes:
        """Return what is there; raises EndOfStream."""

    async def send(self, item: bytes, /) -> None:
        """Return when the bytes are taken; raises BrokenResourceError."""

    async def aclose(self) -> None:
        """Close it, as far as the other end is to see it."""


class Outgoing:
    """Sends in order what is written; `run` must be running. `write` never waits and never raises.

    What a client says is little, so what a bridge does not take is kept without a bound.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._unsent, self._news, self._progress = bytearray(), anyio.Event(), anyio.Event()
        self._broken = False

    def write(self, data: bytes) -> None:
        """Send as soon as there is room; dropped if the other end is gone."""
        if not self._broken:
            self._unsent += data
            self._news.set()

    async def run(self) -> None:
        """Send what is written, until cancelled or until the other end is gone."""
        try:
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                piece = bytes(self._unsent)
                await self._stream.send(piece)
                del self._unsent[: len(piece)]
                self._tell()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self.give_up()

    async def flush(self, seconds: float) -> None:
        """Wait at most that long until all is sent, or nothing more can be."""
        with anyio.move_on_after(seconds):
            while self._unsent:
                await self._progress.wait()

    def give_up(self) -> None:
        """Drop what is not sent, and everything later."""
        self._broken = True
        self._unsent.clear()
        self._tell()

    def _tell(self) -> None:
        self._progress.set()
        self._progress = anyio.Event()
