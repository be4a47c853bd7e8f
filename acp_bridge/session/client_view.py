"""One client's view of one session: what it is shown, in order, and what waits behind a replay.

- While a load replays, what happens in the session meanwhile waits behind it. Hold, backlog and
  the cut between replay and live belong to the one client.
- What this client can't take is converted here, where it leaves for it.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from acp_bridge.clients.client import Client
from acp_bridge.protocol import OPTIONS_UPDATE, Json
from acp_bridge.wire.jsonrpc import encode


def needs_fitting(params: Json) -> bool:
    """Return True for an update of which not every client can take all."""
    update = params.get("update")
    return isinstance(update, dict) and update.get("sessionUpdate") == OPTIONS_UPDATE


class ClientView:
    """Sends updates of one session to one client."""

    def __init__(self, client: Client, head: bytes) -> None:
        """`head`: what stands before the parameters of an update, on every line."""
        self.client = client
        self._head = head
        #: what is to be done after the replay; None outside of one.
        self._backlog: list[Callable[[], None]] | None = None
        self._backlog_bytes = 0
        self._caught_up = anyio.Event()

    def send(self, lines: bytes) -> None:
        """Send whole lines, in their order."""
        if self._backlog is not None:
            self._backlog_bytes += len(lines)
        self.then(lambda: self.client.outgoing.write(lines))

    def show(self, params: Json) -> None:
        """Send one update, in its order."""
        self.send(self._line(params))

    def then(self, action: Callable[[], None]) -> None:
        """Do this when all that was shown before is on its way."""
        if self._backlog is None:
            action()
        else:
            self._backlog.append(action)

    # --- a replay ------------------------------------------------------------------------------

    def begin_replay(self) -> None:
        """Let what is shown from now on wait."""
        self._backlog = []
        self._caught_up = anyio.Event()

    def replay(self, params: Json) -> None:
        """Send an update that is recorded already, past what waits."""
        self.client.outgoing.write(self._line(params))

    def end_replay(self) -> None:
        """Let what waited go."""
        backlog, self._backlog = self._backlog or [], None
        self._backlog_bytes = 0
        for action in backlog:
            action()
        self._caught_up.set()

    # --- a client that doesn't read ------------------------------------------------------------

    def full(self, limit: int) -> bool:
        """Return True when at least `limit` bytes wait for the client."""
        return self.client.outgoing.pending + self._backlog_bytes >= limit

    async def room(self, limit: int) -> None:
        """Wait until less than `limit` bytes may be waiting; the caller looks again."""
        if self._backlog_bytes:
            await self._caught_up.wait()
        else:
            await self.client.outgoing.drain_below(limit)

    def _line(self, params: Json) -> bytes:
        if needs_fitting(params):
            params = {**params, "update": self.client.abilities.fit(params["update"])}
        return self._head + encode(params)[1:-1] + b"}\n"
