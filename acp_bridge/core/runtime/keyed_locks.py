"""Locks by key, each kept only while it is in use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class KeyedLocks:
    """Lets one task at a time hold the lock of a key; the others get it in the order of asking."""

    def __init__(self) -> None:
        """Begin without locks."""
        self._locks: dict[str, anyio.Lock] = {}

    def __len__(self) -> int:
        """Return how many keys a task holds or waits for."""
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of this key during the block."""
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # else it has gone to the next who waited
                self._locks.pop(key, None)
