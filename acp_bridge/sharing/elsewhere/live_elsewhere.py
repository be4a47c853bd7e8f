"""Asks the other bridges of this data folder which sessions they have live.

All bridges are asked at once, in a bounded time; one that is silent is left out.
"""

from __future__ import annotations

from contextlib import suppress

import anyio

from acp_bridge.core.protocol import SOCKET_PROTOCOL, Json
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.sharing.bridge_client.by_socket import live_at
from acp_bridge.sharing.listening.run_files import live_bridges


async def live_elsewhere(context: SessionContext) -> list[Json]:
    """Return a row for each session of this bridge's agent that another bridge has live."""
    found: list[Json] = []
    with anyio.move_on_after(waits.KEPT_WORK), suppress(NoThread):
        bridges = await in_thread(live_bridges, context.settings.home, abandon_on_cancel=True)
        sockets = {each.socket for each in bridges if each.protocol == SOCKET_PROTOCOL}
        await live_at(sockets - {str(context.socket)}, found)
    owns = context.identity.owns
    ours = [row for row in found if owns(str(row.get("agent")), None)]
    return [*{row["sessionId"]: row for row in ours}.values()]
