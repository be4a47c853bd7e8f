"""What the client of one session is shown, and when.

Invariants
- While it is held nothing is sent: after a session was opened again, and after `cancelled`, until
  the client speaks (invariant C23). What came meanwhile is sent then, the oldest of very much left
  out with a word.
- Nothing is sent of a session that was closed, and nothing of a turn after it was answered
  `cancelled`, though its run may go on where the server can't be reached (invariant C6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from acp_bridge.protocol import AGENT_MESSAGE, TRANSCRIPT, text_chunk
from agent.client import Client, Update
from agent.openhands.turn_words import LEFT_OUT

#: updates that are held
_HELD: Final = 5000


class Shown:
    def __init__(self, client: Client, session_id: str) -> None:
        self._client = client
        self._id = session_id
        self._held: deque[Update] | None = None
        self._left_out = False
        self._messages = 0
        self._open = True
        self._muted = False

    def close(self) -> None:
        self._open = False

    def hold(self) -> None:
        if self._held is None:
            self._held = deque()
            self._left_out = False

    def forget_held(self) -> bool:
        """Drops what is held, which a replay shows; returns True if anything was to be held."""
        held, self._held = self._held, None
        return held is not None

    async def release(self) -> None:
        held, self._held = self._held, None
        if self._left_out:
            await self.say(LEFT_OUT)
        await self.all(held or ())

    def mute(self, muted: bool) -> None:
        """Leaves out, or no more, what a run says that was cancelled and may go on."""
        self._muted = muted

    async def update(self, update: Update) -> None:
        if not (self._muted and update["sessionUpdate"] in TRANSCRIPT):
            await self._send(update)

    async def _send(self, update: Update) -> None:
        if not self._open:
            return
        if self._held is None:
            await self._client.update(update)
            return
        self._held.append(update)
        if len(self._held) > _HELD:
            self._held.popleft()
            self._left_out = True

    async def all(self, updates: Iterable[Update]) -> None:
        for update in updates:
            await self.update(update)

    async def say(self, text: str) -> None:
        """Shows what the agent did not say, as a message of its own."""
        await self.message(f"\n\n{text}\n\n")

    async def message(self, text: str) -> None:
        self._messages += 1
        await self._send(text_chunk(AGENT_MESSAGE, text, f"{self._id}-{self._messages}"))
