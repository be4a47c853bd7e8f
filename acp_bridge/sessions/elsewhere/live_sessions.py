"""What other bridges have live: asked once, as a client that has no session there."""

from __future__ import annotations

from contextlib import suppress

import anyio

from acp_bridge import errors
from acp_bridge.bridge_client.by_socket import connect
from acp_bridge.protocol import LIVE, OBSERVES, Json, with_own_meta
from acp_bridge.sessions.elsewhere.holder_hello import NotLive, answer_to, introduce
from acp_bridge.wire.deaf import Deaf
from acp_bridge.wire.jsonrpc import Ok
from acp_bridge.wire.peer import Peer
from acp_bridge.wire.streams import Incoming


async def live_sessions(socket: str) -> list[Json]:
    """Return what the bridge at this path lists as live, in the shape of `_acp_bridge/live`.

    Nothing if it can't be asked. The caller bounds the wait for a bridge that is silent.
    """
    found: list[Json] = []
    with suppress(OSError):
        incoming, outgoing = await connect(socket)
        try:
            async with anyio.create_task_group() as tasks:
                asker = _Asker(Peer(Deaf(), outgoing.write, answer_malformed=False))
                tasks.start_soon(outgoing.run)
                tasks.start_soon(asker.read, incoming)
                with suppress(NotLive):
                    found = await asker.live()
                tasks.cancel_scope.cancel()
        finally:
            incoming.close()
            outgoing.close()
    return found


class _Asker:
    """One connection to another bridge."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def read(self, incoming: Incoming) -> None:
        """Read until the connection ends, which answers all that is open."""
        with suppress(OSError):
            while data := await incoming.read():
                self._peer.feed(data)
        self._peer.close(errors.agent_trouble("the connection has ended"))

    async def live(self) -> list[Json]:
        """Return what is live there; raises NotLive."""
        await introduce(self._peer, with_own_meta({}, {OBSERVES: True}))
        match await answer_to(self._peer, LIVE, {}):
            case Ok({"sessions": list(rows)}):
                return [row for row in rows if _is_row(row)]
        return []


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(row.get(key), str) for key in _WORDS)


#: what a row must have to be of use.
_WORDS = ("sessionId", "cwd", "agent", "state")
