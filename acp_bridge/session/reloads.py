"""Tells whether an agent has been seen to take up a session again, and so may be ended meanwhile.

It is kept for all bridges by the name and the version that the agent gives itself. Of an agent
without a version, which can be upgraded unseen, only what this bridge has seen counts. The built-in
agent is ours and can reload.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from acp_bridge.agents.link import Link
from acp_bridge.journal import JournalError
from acp_bridge.journal.reloads import Reloads
from acp_bridge.json_values import as_object
from acp_bridge.log import event
from acp_bridge.settings import Settings


class Kept(Protocol):
    """Where it is kept (`journal.index.Index`)."""

    reloads: Reloads


class SeenReloads:
    """What is known of reloads of this bridge's agent. No method raises."""

    def __init__(self, kept: Kept, settings: Settings) -> None:
        """Nothing was seen yet."""
        self._kept = kept.reloads
        self._settings = settings
        #: names and versions of which this bridge has seen a reload.
        self._here: set[tuple[str, str]] = set()

    @property
    def is_ours(self) -> bool:
        """The agent is the built-in one, which has no process but for work."""
        return self._settings.builtin

    async def seen(self, link: Link) -> bool:
        """Return True if a reload of the agent of this process has worked."""
        name, version = self._known_as(link)
        if self._settings.builtin or (not version and (name, version) in self._here):
            return True
        if not version:
            return False
        try:
            return await self._kept.seen(name, version)
        except JournalError as exc:
            event("journal.failed", what=exc)
            return False

    async def note(self, link: Link) -> None:
        """Note that a process of the agent has taken up a session that another one had."""
        known = self._known_as(link)
        if known in self._here or self._settings.builtin:
            return
        self._here.add(known)
        if known[1]:
            await _tried(self._kept.note(*known))

    async def forget(self, link: Link) -> None:
        """Note that a process of the agent has refused a session that it should know."""
        known = self._known_as(link)
        self._here.discard(known)
        if known[1]:
            await _tried(self._kept.forget(*known))

    def _known_as(self, link: Link) -> tuple[str, str]:
        """Return the agent's name, the bridge's if it gives none, and its version or ""."""
        info = as_object(link.initialized.get("agentInfo"))
        name, version = info.get("name"), info.get("version")
        return (
            name if isinstance(name, str) and name else self._settings.agent_name,
            version if isinstance(version, str) else "",
        )


async def _tried(work: Awaitable[None]) -> None:
    try:
        await work
    except JournalError as exc:
        event("journal.failed", what=exc)
