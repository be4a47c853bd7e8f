"""The updates for the client of one session, and when they are sent.

Invariants
- After a session was opened again, and after `cancelled`, updates are delayed until the client
  sends something (invariant C23). Then they are sent; of too many, the oldest are left
  out, and the user is told.
- Nothing is sent of a session that was closed, and nothing of a turn after it was answered
  `cancelled`, though its run may continue if the server can't be reached (invariant C6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from acp_bridge.core.protocol import AGENT_MESSAGE, NOTICE, TRANSCRIPT, text_chunk
from agent.client import Client, Marked, Update
from agent.openhands.turn_words import LEFT_OUT

#: how many updates are delayed at most
_MOST_DELAYED: Final = 5000


class Shown:
    def __init__(self, client: Client, session_id: str) -> None:
        self._client = client
        self._id = session_id
        self._delayed: deque[Update] | None = None
        self._left_out = False
        self._messages = 0
        self._open = True
        self._muted = False

    def close(self) -> None:
        self._open = False

    def delay(self) -> None:
        if self._delayed is None:
            self._delayed = deque()
            self._left_out = False

    def drop_delayed(self) -> bool:
        """Drops the updates that were delayed, since a replay shows them.

        Returns True if updates were being delayed.
        """
        delayed, self._delayed = self._delayed, None
        return delayed is not None

    async def send_delayed(self) -> None:
        delayed, self._delayed = self._delayed, None
        if self._left_out:
            await self.say(LEFT_OUT)
        await self.all(delayed or ())

    def mute(self, muted: bool) -> None:
        """Sets whether updates are dropped: a cancelled run may continue and send more of them."""
        self._muted = muted

    async def update(self, update: Update) -> None:
        if not (self._muted and update["sessionUpdate"] in TRANSCRIPT):
            await self._send(update)

    async def _send(self, update: Update) -> None:
        if not self._open:
            return
        if self._delayed is None:
            await self._client.update(update)
            return
        self._delayed.append(update)
        if len(self._delayed) > _MOST_DELAYED:
            self._delayed.popleft()
            self._left_out = True

    async def all(self, updates: Iterable[Update]) -> None:
        for update in updates:
            await self.update(update)

    async def say(self, text: str) -> None:
        """Shows the user a sentence of this agent's own, marked as the bridge's notices are."""
        await self._send(Marked(self._chunk(f"\n\n{text}\n\n"), {NOTICE: True}))

    async def message(self, text: str) -> None:
        await self._send(self._chunk(text))

    def _chunk(self, text: str) -> Update:
        self._messages += 1
        return text_chunk(AGENT_MESSAGE, text, f"{self._id}-{self._messages}")
