"""`session/list`: what the journal has, merged with what only the agent knows.

The journal's pages come first, newest first, then the agent's own. A listing never starts an
agent, nor waits for one for long (HAZARDS Q10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from acp_bridge import errors, params
from acp_bridge.agents.link import Link
from acp_bridge.journal import BadCursor, SessionRow
from acp_bridge.lobby import Lobby
from acp_bridge.log import event
from acp_bridge.session.host import Host
from acp_bridge.wire.jsonrpc import RpcError
from acp_bridge.wire.peer import Call

Json = dict[str, Any]
Rows = list[Json]
#: seconds for an agent to list its own sessions; it may be busy or deaf.
_AGENT_PATIENCE = 1.0
#: pages of the agent's listing that are searched for a session that only it knows.
_SEARCHED_PAGES = 20


class Listing:
    """`links` gives every process that takes requests."""

    def __init__(self, host: Host, lobby: Lobby, links: Callable[[], list[Link]]) -> None:
        self._host = host
        self._lobby = lobby
        self._links = links

    async def page(self, call: Call, given: Json) -> Json:
        """`session/list`: the journal's, newest first, then those that only the agent knows."""
        cwd, cursor = params.listing(given)
        sessions: Rows = []
        if cursor is None or cursor.startswith("j:"):
            try:
                rows, after = await self._host.journal.list(
                    cwd=cwd, cursor=cursor and cursor[2:], agent=self._host.settings.agent_name
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
        rows, after = await self._agent_page(link, cwd, cursor)
        known = await self._host.journal.known_agent_ids(self._host.settings.agent_name)
        return [row for row in rows if row.get("sessionId") not in known], after

    async def _agent_page(self, link: Link, cwd: str | None, cursor: Any) -> tuple[Rows, Any]:
        asked = {k: v for k, v in (("cwd", cwd), ("cursor", cursor)) if v is not None}
        result: Any = None
        with anyio.move_on_after(_AGENT_PATIENCE):
            try:
                result = await link.ask("session/list", asked)
            except RpcError as exc:
                event("agent.list_failed", what=exc.message)
        rows = result.get("sessions") if isinstance(result, dict) else None
        if not isinstance(rows, list):
            return [], None
        known = [r for r in rows if isinstance(r, dict) and isinstance(r.get("sessionId"), str)]
        kept = [r for r in known if cwd is None or r.get("cwd") == cwd]
        return kept, result.get("nextCursor")

    def _listing_link(self) -> Link | None:
        return self.able("sessionCapabilities", "list")

    def able(self, *capability: str) -> Link | None:
        """A process whose agent has this capability."""
        return next((link for link in self._links() if link.can(*capability)), None)

    async def agent_lists(self, session_id: str) -> bool:
        """Whether the agent says that it has this session."""
        link = self._listing_link() or await self._lobby.wait_for()
        if not link.can("sessionCapabilities", "list"):
            return False
        cursor: Any = None
        for _ in range(_SEARCHED_PAGES):
            rows, cursor = await self._agent_page(link, None, cursor)
            if any(row.get("sessionId") == session_id for row in rows):
                return True
            if cursor is None:
                break
        return False


def _row(row: SessionRow) -> Json:
    listed = {"sessionId": row.session_id, "cwd": row.cwd, "updatedAt": row.updated_at}
    return {**listed, "title": row.title} if row.title else listed
