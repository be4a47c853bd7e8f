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
        self._delayed: list[Update] | None = None
        #: True if only texts for the user are delayed
        self._states_pass = False
        self._open = True

    def close(self) -> None:
        self._open = False

    def delay(self) -> None:
        self._states_pass = False
        if self._delayed is None:
            self._delayed = []

    async def tell(self, update: Update) -> None:
        """Sends the update, or delays it; an equal update is delayed only once."""
        if not self._open:
            return
        if self._delayed is None or (self._states_pass and not _is_said(update)):
            await self._update(update)
        elif update not in self._delayed:
            self._delayed.append(update)

    async def send_delayed_states(self) -> None:
        """Sends the delayed updates that are no texts, because the client has set an option."""
        if (delayed := self._delayed) is None:
            return
        self._delayed, self._states_pass = [update for update in delayed if _is_said(update)], True
        for update in delayed:
            if not _is_said(update):
                await self._update(update)

    async def send_delayed(self) -> None:
        """Sends all delayed updates, because the client has sent a prompt."""
        delayed, self._delayed = self._delayed or [], None
        for update in delayed:
            await self._update(update)


def _is_said(update: Update) -> bool:
    return bool(update.get("sessionUpdate") == "agent_message_chunk")
