"""Says in a new session that work goes on in its folder which no client has open.

It is looked for behind the answer to `session/new`, in this bridge and in the others of the home,
for a bounded time. Nobody waits for it, and a bridge that is silent is left out.
"""

from __future__ import annotations

from pathlib import PurePath

import anyio

from acp_bridge import notices, waits, work_notices
from acp_bridge.clients.client import Client
from acp_bridge.listening.run_files import live_bridges
from acp_bridge.protocol import SOCKET_PROTOCOL, Json
from acp_bridge.session.session import Session
from acp_bridge.session.session_context import SessionContext
from acp_bridge.sessions.attaching import Attaching
from acp_bridge.sessions.elsewhere.live_sessions import live_sessions


class KeptWork:
    """Finds work without a client, for clients that open a session where it is done."""

    def __init__(
        self, context: SessionContext, attaching: Attaching, patience: float = waits.KEPT_WORK
    ) -> None:
        """`patience`: seconds for all other bridges together."""
        self._context = context
        self._attaching = attaching
        self._patience = patience

    async def tell(self, session: Session, client: Client) -> None:
        """Say what is found in the folder of a session to the client that has opened it."""
        found = await self._elsewhere()
        found += self._attaching.listed()["sessions"]
        folder = PurePath(session.workspace.cwd)
        kept = [row for row in found if _is_kept(row) and PurePath(row["cwd"]) == folder]
        if kept:
            said = work_notices.kept(kept, self._context.settings.agent_name)
            session.transcript.show_to(client, notices.notice(said))

    async def _elsewhere(self) -> list[Json]:
        """Return what the other bridges of this home have live, as far as they say it in time."""
        found: list[Json] = []

        async def ask(socket: str) -> None:
            found.extend(await live_sessions(socket))

        with anyio.move_on_after(self._patience):
            bridges = await anyio.to_thread.run_sync(
                live_bridges, self._context.settings.home, abandon_on_cancel=True
            )
            async with anyio.create_task_group() as tasks:
                for bridge in bridges:
                    ours = bridge.socket == str(self._context.socket)
                    if not ours and bridge.protocol == SOCKET_PROTOCOL:
                        tasks.start_soon(ask, bridge.socket)
        return found


def _is_kept(row: Json) -> bool:
    """Return True for a session in which something runs or waits, and which no client has."""
    works = row["state"] in work_notices.WORKING or "asks" in row or row.get("waiting")
    return row.get("clients") == 0 and bool(works)
