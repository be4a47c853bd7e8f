"""`session/list`: what the journal has, merged with what only the agent knows.

The journal's pages come first, newest first, then the agent's own. A listing never starts an
agent, nor waits for one for long (invariant Q10).
"""

from __future__ import annotations

from typing import Any, Protocol

import anyio

from acp_bridge import errors, waits
from acp_bridge.agents.link import Link
from acp_bridge.journal import BadCursor, Journal, SessionRow
from acp_bridge.log import event
from acp_bridge.protocol import SESSION_LIST, Json
from acp_bridge.sessions import params
from acp_bridge.wire.jsonrpc import RpcError

Rows = list[Json]
#: pages of the agent's listing that are searched for a session that only it knows.
_SEARCHED_PAGES = 20


class ListingPort(Protocol):
    """What a listing needs of the registry."""

    def links(self) -> list[Link]:
        """Return every process that takes requests."""

    async def ready(self) -> Link:
        """Return a process without a session, started if there is none; raises RpcError."""


class Listing:
    """Lists the sessions of one agent."""

    def __init__(self, port: ListingPort, journal: Journal, agent: str) -> None:
        """`agent`: the name under which the agent's sessions are kept."""
        self._port = port
        self._journal = journal
        self._agent = agent

    async def page(self, given: Json) -> Json:
        """Return a page: the journal's, newest first, then those that only the agent knows."""
        cwd, cursor = params.listing(given)
        sessions: Rows = []
        if cursor is None or cursor.startswith("j:"):
            try:
                rows, after = await self._journal.list(
                    cwd=cwd, cursor=cursor and cursor[2:], agent=self._agent
                )
            except BadCursor:
                raise errors.invalid("not a cursor of ours", "cursor") from None
            sessions = [_row(row) for row in rows]
            if after is not None:
                return {"sessions": sessions, "nextCursor": f"j:{after}"}
            cursor = None
        own, after = await self._agents_own(cwd, cursor and cursor[2:])
        page: Json = {"sessions": sessions + own}
        return {**page, "nextCursor": f"a:{after}"} if after is not None else page

    async def _agents_own(self, cwd: str | None, cursor: Any) -> tuple[Rows, Any]:
        if not (link := self._listing_link()):
            return [], None
        rows, after = await self._agent_page(link, cwd, cursor) or ([], None)
        known = await self._journal.known_agent_ids(self._agent)
        kept = [row for row in rows if cwd is None or row.get("cwd") == cwd]
        return [row for row in kept if row["sessionId"] not in known], after

    async def _agent_page(
        self, link: Link, cwd: str | None, cursor: Any
    ) -> tuple[Rows, Any] | None:
        """Return a page of what the agent lists, None if it does not list."""
        asked = {k: v for k, v in (("cwd", cwd), ("cursor", cursor)) if v is not None}
        result: Any = None
        with anyio.move_on_after(waits.AGENT_PATIENCE):
            try:
                result = await link.ask(SESSION_LIST, asked)
            except RpcError as exc:
                event("agent.list_failed", what=exc.message)
        rows = result.get("sessions") if isinstance(result, dict) else None
        if not isinstance(rows, list):
            return None
        known = [r for r in rows if isinstance(r, dict) and isinstance(r.get("sessionId"), str)]
        return known, result.get("nextCursor")

    def _listing_link(self) -> Link | None:
        return self.able("sessionCapabilities", "list")

    def able(self, *capability: str) -> Link | None:
        """Return a process whose agent has this capability, or None."""
        return next((link for link in self._port.links() if link.can(*capability)), None)

    async def agent_may_have(self, session_id: str, cwd: str) -> bool:
        """Return False when the agent has no such session, or could not give it to anybody.

        Some agents list the sessions of one folder only, others can load and not list: those are
        asked for the session itself.
        """
        link = self._listing_link() or await self._port.ready()
        listed = False
        if link.can("sessionCapabilities", "list"):
            for asked in (cwd, None):
                found = await self._is_listed(link, asked, session_id)
                if found:
                    return True
                listed |= found is not None
        return not listed and (link.can("loadSession") or link.can("sessionCapabilities", "resume"))

    async def _is_listed(self, link: Link, cwd: str | None, session_id: str) -> bool | None:
        """Search the agent's listing; returns None if the agent does not list."""
        cursor: Any = None
        for _ in range(_SEARCHED_PAGES):
            page = await self._agent_page(link, cwd, cursor)
            if page is None:
                return None
            rows, cursor = page
            if any(row["sessionId"] == session_id for row in rows):
                return True
            if cursor is None:
                break
        return False


def _row(row: SessionRow) -> Json:
    listed = {"sessionId": row.session_id, "cwd": row.cwd, "updatedAt": row.updated_at}
    return {**listed, "title": row.title} if row.title else listed
