"""Updates of a session that belong to no prompt: when the client may be told them.

Such are the end of an MCP server, tools that are gone, and what a library that took seconds to load
knows of the model.

Invariants
- While they are held nothing is sent of its own accord: after a session was opened again, and after
  a prompt was answered `cancelled`, until the client speaks (invariant C23). What is said to the
  user waits for a prompt, because what comes before one may be taken for a replay.
- Nothing is sent of a session that was closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent.client import Update


class Asides:
    """`update` sends an update to the client."""

    def __init__(self, update: Callable[[Update], Awaitable[None]]) -> None:
        self._update = update
        #: those that wait for the client to speak, in order; None if none has to
        self._held: list[Update] | None = None
        #: True if only what is said to the user has to wait
        self._states_pass = False
        self._open = True

    def close(self) -> None:
        self._open = False

    def hold(self) -> None:
        self._states_pass = False
        if self._held is None:
            self._held = []

    async def tell(self, update: Update) -> None:
        """Sends the update, or holds it; one that is held already is not held twice."""
        if not self._open:
            return
        if self._held is None or (self._states_pass and not _is_said(update)):
            await self._update(update)
        elif update not in self._held:
            self._held.append(update)

    async def release_states(self) -> None:
        """Sends what was held but for what is said, because the client has set something."""
        if (held := self._held) is None:
            return
        self._held, self._states_pass = [update for update in held if _is_said(update)], True
        for update in held:
            if not _is_said(update):
                await self._update(update)

    async def release(self) -> None:
        """Sends what was held, because the client has sent a prompt."""
        held, self._held = self._held or [], None
        for update in held:
            await self._update(update)


def _is_said(update: Update) -> bool:
    return bool(update.get("sessionUpdate") == "agent_message_chunk")
