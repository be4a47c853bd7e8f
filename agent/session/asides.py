"""Updates of a session that belong to no prompt, and when the client may get them.

Examples: the end of an MCP server, tools that are gone, and what a library that took seconds to
load knows of the model.

Invariants
- After a session was opened again, and after a prompt was answered `cancelled`, updates are delayed
  until the client sends something (invariant C23). Texts for the user wait for a prompt, because
  what comes before one may be taken for a replay.
- Nothing is sent of a closed session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent.client import Update


class Asides:
    """The updates of one session; `update` sends an update to the client."""

    def __init__(self, update: Callable[[Update], Awaitable[None]]) -> None:
        self._update = update
        #: the delayed updates in order; None while updates are not delayed
        self._held: list[Update] | None = None
        #: True if only texts for the user are delayed
        self._states_pass = False
        self._open = True

    def close(self) -> None:
        self._open = False

    def hold(self) -> None:
        self._states_pass = False
        if self._held is None:
            self._held = []

    async def tell(self, update: Update) -> None:
        """Sends the update, or delays it; an equal update is delayed only once."""
        if not self._open:
            return
        if self._held is None or (self._states_pass and not _is_said(update)):
            await self._update(update)
        elif update not in self._held:
            self._held.append(update)

    async def release_states(self) -> None:
        """Sends the delayed updates that are no texts, because the client has set an option."""
        if (held := self._held) is None:
            return
        self._held, self._states_pass = [update for update in held if _is_said(update)], True
        for update in held:
            if not _is_said(update):
                await self._update(update)

    async def release(self) -> None:
        """Sends all delayed updates, because the client has sent a prompt."""
        held, self._held = self._held or [], None
        for update in held:
            await self._update(update)


def _is_said(update: Update) -> bool:
    return bool(update.get("sessionUpdate") == "agent_message_chunk")
