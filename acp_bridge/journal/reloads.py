"""The agents that were seen to take up a session again, in the index that all bridges share.

One is known by the name and the version that it gives itself: an upgrade has to be seen anew.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class Run(Protocol):
    """Uses the index in a worker thread."""

    def __call__(self, use: Callable[[sqlite3.Connection], Any], /) -> Awaitable[Any]:
        """Return what `use` returns; raises IndexUnusable."""


class Reloads:
    """The table `reloads` of the index. Every method raises IndexUnusable."""

    def __init__(self, run: Run) -> None:
        """Touches nothing yet."""
        self._run = run

    async def seen(self, agent: str, version: str) -> bool:
        """Return True if a reload of this version of the agent was seen to work."""
        which = "SELECT 1 FROM reloads WHERE agent = ? AND version = ?"
        found = await self._run(lambda db: db.execute(which, (agent, version)).fetchone())
        return found is not None

    async def note(self, agent: str, version: str) -> None:
        """Remember that a reload of this version of the agent has worked."""
        what = "INSERT OR IGNORE INTO reloads(agent, version) VALUES (?, ?)"
        await self._run(lambda db: db.execute(what, (agent, version)))

    async def forget(self, agent: str, version: str) -> None:
        """Forget it: this version of the agent would not load a session that it should know."""
        what = "DELETE FROM reloads WHERE agent = ? AND version = ?"
        await self._run(lambda db: db.execute(what, (agent, version)))
