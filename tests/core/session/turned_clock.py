"""A clock that the test turns, in the place of `anyio.sleep` and `anyio.current_time`."""

import anyio
import pytest

from tests.core.session.waiting import quiet


class TurnedClock:
    """Stands still until the test lets time pass; what sleeps goes on at its own moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self._sleeping: list[tuple[float, anyio.Event]] = []
        monkeypatch.setattr(anyio, "sleep", self.sleep)
        monkeypatch.setattr(anyio, "current_time", lambda: self.now)

    async def sleep(self, seconds: float) -> None:
        sleeper = (self.now + seconds, anyio.Event())
        self._sleeping.append(sleeper)
        try:
            await sleeper[1].wait()
        finally:
            self._sleeping.remove(sleeper)

    async def passes(self, seconds: float) -> None:
        """Let so much time pass, and every task go on that had slept until a moment in it."""
        await quiet()
        end = self.now + seconds
        while due := [sleeper for sleeper in self._sleeping if sleeper[0] <= end]:
            self.now, wakes = min(due, key=lambda each: each[0])
            wakes.set()
            await quiet()
        self.now = end
