"""Waits for the end of a whole bridge, or of each of its sessions, that no client has open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import anyio

from acp_bridge.core.bridge.attendance import Attendance


class Attended(Protocol):
    """Something that clients have open."""

    @property
    def attended(self) -> bool:
        """True while at least one client has the bridge or the session open."""

    @property
    def busy(self) -> bool:
        """True while a prompt there has no answer, or the agent works without one."""


_Thing = TypeVar("_Thing", bound=Attended)


class Unattended(Generic[_Thing]):
    """Waits until one of several things that no client has open is to end, by `Attendance`."""

    def __init__(self, keep: float, things: Callable[[], Iterable[_Thing]]) -> None:
        """`keep`: seconds for which work goes on. `things` returns all that there are now."""
        self._keep = keep
        self._things = things
        self._attendance: dict[_Thing, Attendance] = {}
        self._changed = anyio.Event()
        self._runs = False

    def look_again(self) -> None:
        """Note that a client may have come or gone, or work have begun or ended."""
        if self._runs:
            self._note(anyio.current_time())
            self._changed.set()

    async def over(self) -> _Thing:
        """Wait until the time of one of the things is over, and return that thing.

        If it is still there at the next call, its time begins anew.
        """
        self._runs = True
        while (found := self._find()) is None:
            self._changed = anyio.Event()
            ends = [each.end for each in self._attendance.values() if each.end is not None]
            with anyio.CancelScope(deadline=min(ends, default=float("inf"))):
                await self._changed.wait()
        del self._attendance[found]
        return found

    def _find(self) -> _Thing | None:
        now = anyio.current_time()
        self._note(now)
        for thing, attendance in self._attendance.items():
            if attendance.end is not None and now >= attendance.end:
                return thing
        return None

    def _note(self, now: float) -> None:
        known, there = self._attendance.get, self._things()
        self._attendance = {each: known(each) or Attendance(self._keep) for each in there}
        for thing, attendance in self._attendance.items():
            attendance.note_clients(thing.attended, now)
            attendance.note_work(thing.busy, now)
