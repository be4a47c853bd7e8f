"""Tells a client that opens a session about unattended work in the same folder.

The search begins after the answer to `session/new`, so that no client waits for it, and is bounded.
This bridge is searched, and every other bridge that the lock file of a session of the folder names;
a bridge that is silent is left out.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path, PurePath

import anyio

from acp_bridge.core.agents.holder import read_holder
from acp_bridge.core.clients.client import Client
from acp_bridge.core.journal import JournalError
from acp_bridge.core.protocol import SOCKET_PROTOCOL, Json
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions.attaching import Attaching
from acp_bridge.core.updates import notices
from acp_bridge.sharing.bridge_client.by_socket import live_at


class KeptWork:
    """Finds unattended work in the folders of sessions that are opened."""

    def __init__(
        self, context: SessionContext, attaching: Attaching, patience: float = waits.KEPT_WORK
    ) -> None:
        """`patience`: the seconds in which all other bridges must be found, and must answer."""
        self._context = context
        self._attaching = attaching
        self._patience = patience

    async def tell(self, session: Session, client: Client) -> None:
        """Show `client`, which opened `session`, a notice of any unattended work in its folder."""
        folder = session.workspace.cwd
        found = await self._elsewhere(folder)
        found += self._attaching.listed()["sessions"]
        here = [row for row in found if PurePath(row["cwd"]) == PurePath(folder)]
        kept = [row for row in here if _is_kept(row)]
        if kept:
            said = notices.kept_work(kept, self._context.settings.agent_name)
            session.transcript.show_to(client, notices.notice(said))

    async def _elsewhere(self, folder: str) -> list[Json]:
        """Return the rows of live sessions of other bridges that have held a session of the folder.

        A bridge that does not answer in time is left out.
        """
        found: dict[str, list[Json] | None] = {}
        with anyio.move_on_after(self._patience):
            with suppress(JournalError, NoThread):
                rows, _ = await self._context.journal.list(cwd=folder)
                locks = [self._context.journal.lock_path(row.session_id) for row in rows]
                sockets = await in_thread(_sockets, locks, abandon_on_cancel=True)
                await live_at(sockets - {str(self._context.socket)}, found)
        return [row for rows in found.values() for row in rows or () if _is_whole(row)]


def _sockets(locks: list[Path]) -> set[str]:
    """Return the paths of the sockets of the bridges that these lock files name."""
    holders = [holder for lock in locks if (holder := read_holder(lock))]
    return {holder.socket for holder in holders if holder.protocol == SOCKET_PROTOCOL}


def _is_whole(row: Json) -> bool:
    """Return True for a row of `_acp_bridge/live` that has a session's folder, agent and state."""
    return all(isinstance(row.get(key), str) for key in ("cwd", "agent", "state"))


def _is_kept(row: Json) -> bool:
    """Return True for a session that no client has open, and in which work runs or waits."""
    works = row["state"] in notices.WORKING or "asks" in row or row.get("waiting")
    works = works or row.get("background")
    return row.get("clients") == 0 and bool(works)
