"""The part of `session/delete` that concerns the agent."""

from __future__ import annotations

from functools import partial

import anyio

from acp_bridge import waits
from acp_bridge.agents.link import Link
from acp_bridge.log import event
from acp_bridge.protocol import SESSION_DELETE, ErrorCode, has
from acp_bridge.sessions.listing import Listing
from acp_bridge.sessions.pool import Pool
from acp_bridge.wire.jsonrpc import RpcError


class Deletion:
    """Deletes one session at the agent."""

    def __init__(self, session_id: str, capabilities: object, listing: Listing, pool: Pool) -> None:
        """`capabilities`: the agent's."""
        self._able = has(capabilities, "sessionCapabilities", "delete")
        self._listing = listing
        self._pool = pool
        self._session_id = session_id
        self._done = False

    def prepare(self, link: Link | None) -> None:
        """Let the session's own process delete it when that has closed it, before it ends.

        That takes no start of another process. What fails there is tried in one that has none.
        """
        if link:
            link.requests.last = partial(self._by_its_own, link)

    async def _by_its_own(self, link: Link) -> None:
        agent_id = link.agent_session_id
        if not self._able or agent_id is None:
            return
        try:
            if not await self._listing.is_shared(agent_id, self._session_id):
                await link.ask(SESSION_DELETE, {"sessionId": agent_id})
                self._done = True
        except RpcError as exc:
            event("agent.not_deleted", session=self._session_id, what=exc.message)

    async def by_any(self, agent_id: str) -> str | None:
        """Delete the session in a process that has none; returns why it may be there.

        An agent may number its sessions from 0 in each process: if another session of ours has the
        same number, nobody can say which one the agent would delete. Raises RpcError.
        """
        if self._done:
            return None
        if not self._able:
            if agent_id == self._session_id and not await self._listing.agent_lists(agent_id):
                return None  # it was nobody's
            return "the agent can't delete sessions"
        if await self._listing.is_shared(agent_id, self._session_id):
            return "another session has the same id at the agent"
        try:
            with anyio.fail_after(waits.DELETE):
                link = await self._pool.ready()
            with anyio.fail_after(waits.AGENT_PATIENCE):
                await link.ask(SESSION_DELETE, {"sessionId": agent_id})
        except TimeoutError:
            return "the agent did not delete it in time"
        except RpcError as exc:
            gone = exc.code == ErrorCode.RESOURCE_NOT_FOUND
            return None if gone else f"the agent did not delete it: {exc.message}"
        return None
