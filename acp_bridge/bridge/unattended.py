"""The time of a bridge without the client that started it, up to its end."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from acp_bridge.bridge.attendance import Attendance
from acp_bridge.runtime.log import event


class Unattended:
    """Waits for the end of a bridge whose client is gone; `attendance` says when that is."""

    def __init__(
        self, keep: float, is_attended: Callable[[], bool], works: Callable[[], bool]
    ) -> None:
        """`keep` in seconds. `is_attended`: a client is there. `works`: something is to be done."""
        self._attendance = Attendance(keep)
        self._keep = keep
        self._is_attended = is_attended
        self._works = works
        self._changed = anyio.Event()
        self._runs = False

    def look_again(self) -> None:
        """Note that a client may have come or gone, or work have begun or ended."""
        if self._runs:
            self._note(anyio.current_time())
            self._changed.set()

    async def run(self) -> None:
        """Wait until the bridge is to end."""
        event("bridge.kept", seconds=self._keep)
        self._runs = True
        while not self._is_over():
            self._changed = anyio.Event()
            end = self._attendance.end
            with anyio.CancelScope(deadline=end if end is not None else float("inf")):
                await self._changed.wait()

    def _is_over(self) -> bool:
        now = anyio.current_time()
        self._note(now)
        end = self._attendance.end
        return end is not None and now >= end

    def _note(self, now: float) -> None:
        self._attendance.note_clients(self._is_attended(), now)
        self._attendance.note_work(self._works(), now)
