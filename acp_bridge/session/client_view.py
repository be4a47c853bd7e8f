"""One client's view of one session: what it is shown, in order, and what waits behind a replay.

- While a load replays, what happens in the session meanwhile waits behind it. Hold, backlog and
  the cut between replay and live belong to the one client.
- After the answer `cancelled` nothing at all is shown until the client speaks again or a turn
  begins (invariant C23); after a load, nothing but the conversation.
- What this client can't take is converted here, where it leaves for it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import anyio

from acp_bridge.clients.client import Client
from acp_bridge.protocol import (
    COMMANDS_UPDATE,
    OPTIONS_UPDATE,
    STATE,
    Json,
    is_state,
    kind_of,
    own_meta,
)
from acp_bridge.wire.jsonrpc import encode


def _is_aside(params: Json) -> bool:
    return is_state(params["update"]) or bool(own_meta(params))


class Quiet(Enum):
    """What is kept from a client until it speaks, or a turn begins."""

    #: nothing.
    NONE = auto()
    #: what is no conversation of the agent's: states, and what the bridge says. After a load.
    ASIDES = auto()
    #: everything: after the answer `cancelled`.
    ALL = auto()


class ClientView:
    """Sends updates of one session to one client."""

    def __init__(self, client: Client, head: bytes) -> None:
        """`head`: what stands before the parameters of an update, on every line."""
        self.client = client
        self._head = head
        #: what is to be done after the replay; None outside of one.
        self._backlog: list[Callable[[], None]] | None = None
        self._waiting_bytes = 0
        self._caught_up = anyio.Event()
        self._quiet = Quiet.NONE
        #: lines that wait for the end of the quiet.
        self._kept: list[bytes] = []
        #: by kind, the state of the session that the client was shown last.
        self._states: dict[object, Json] = {}
        self._prompted = False

    def send(self, lines: bytes) -> None:
        """Send whole lines, in their order."""
        if self._quiet is Quiet.ALL:
            self._keep(lines)
            return
        if self._backlog is not None:
            self._waiting_bytes += len(lines)
        self.then(lambda: self.client.outgoing.write(lines))

    def show(self, params: Json, *, again: bool = False) -> None:
        """Send one update, in its order; a list of commands that was shown is not shown again.

        `again`: no other state is, either: the agent only repeats it.
        """
        if self._known(params) and (again or kind_of(params) == COMMANDS_UPDATE):
            return
        if self._quiet is Quiet.ASIDES and _is_aside(params):
            self._keep(self._line(params))
        else:
            self.send(self._line(params))

    @property
    def listens(self) -> bool:
        """Nothing is kept from the client now, and no replay runs."""
        return self._quiet is Quiet.NONE and self._backlog is None

    def then(self, action: Callable[[], None]) -> None:
        """Do this when the replay is over, if one runs: answer a request, say."""
        if self._backlog is None:
            action()
        else:
            self._backlog.append(action)

    def _known(self, params: Json) -> bool:
        kind = kind_of(params)
        if kind not in STATE or (own_meta(params) and kind != COMMANDS_UPDATE):
            return False
        known, self._states[kind] = self._states.get(kind) == params, params
        return known

    # --- the quiet -----------------------------------------------------------------------------

    def hush(self, quiet: Quiet) -> None:
        """Keep this back from now on, until `wake`."""
        self._quiet = quiet

    def wake(self) -> None:
        """Send what was kept back: the client speaks, or a turn begins."""
        self._quiet = Quiet.NONE
        if self._kept:
            kept, self._kept, self._waiting_bytes = self._kept, [], 0
            self.send(b"".join(kept))
            self._caught_up.set()

    def begin_turn(self) -> None:
        """End the quiet; with the first prompt the commands are shown once more.

        There are clients that take no update of a session before they have read the answer that
        named it.
        """
        self.wake()
        if not self._prompted:
            self._prompted = True
            if (commands := self._states.get(COMMANDS_UPDATE)) is not None:
                self.send(self._line(commands))

    def _keep(self, line: bytes) -> None:
        if not self._kept:
            self._caught_up = anyio.Event()
        self._kept.append(line)
        self._waiting_bytes += len(line)

    # --- a replay ------------------------------------------------------------------------------

    def begin_replay(self) -> None:
        """Let what is shown from now on wait."""
        self.wake()
        self._backlog = []
        self._caught_up = anyio.Event()

    def replay(self, params: Json) -> None:
        """Send an update that is recorded already, past what waits."""
        self._known(params)
        self.client.outgoing.write(self._line(params))

    def end_replay(self) -> None:
        """Let what waited go."""
        backlog, self._backlog = self._backlog or [], None
        self._waiting_bytes = 0
        for action in backlog:
            action()
        self._caught_up.set()

    # --- a client that doesn't read ------------------------------------------------------------

    def full(self, limit: int) -> bool:
        """Return True when at least `limit` bytes wait for the client."""
        return self.client.outgoing.pending + self._waiting_bytes >= limit

    async def room(self, limit: int) -> None:
        """Wait until less than `limit` bytes may be waiting; the caller looks again."""
        if self._waiting_bytes:
            await self._caught_up.wait()
        else:
            await self.client.outgoing.drain_below(limit)

    def _line(self, params: Json) -> bytes:
        if kind_of(params) == OPTIONS_UPDATE:  # of which not every client can take all
            params = {**params, "update": self.client.abilities.fit(params["update"])}
        return self._head + encode(params)[1:-1] + b"}\n"
