"""`session/list`: what the journal has, merged with what only the agent knows.

The journal's pages come first, newest first, then the agent's own. A listing never starts an
agent, nor waits for one for long (invariant Q10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Protocol

import anyio

from acp_bridge import errors, waits
from acp_bridge.agents.identity import AgentIdentity
from acp_bridge.agents.link import Link
from acp_bridge.journal import BadCursor, IndexUnusable, Journal, SessionInfo
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

    def __init__(
        self, port: ListingPort, journal: Journal, agent: Callable[[], AgentIdentity]
    ) -> None:
        """`agent`: whose sessions are listed; known in full after `initialize`."""
        self._port = port
        self._journal = journal
        self._agent = agent

    async def page(self, given: Json) -> Json:
        """Return a page: the journal's, newest first, then those that only the agent knows.

        Raises RpcError, also when the list can't be used: it says why, and what to do.
        """
        with _told():
            return await self._page(*params.listing(given))

    async def _page(self, cwd: str | None, cursor: str | None) -> Json:
        sessions: Rows = []
        if cursor is None or cursor.startswith("j:"):
            try:
                rows, after = await self._journal.list(
                    cwd=cwd, cursor=cursor and cursor[2:], agent=self._agent()
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

    async def is_ours(self, agent_session_id: str) -> bool:
        """Return True for an id at the agent that a session of ours has or had. Raises RpcError."""
        with _told():
            return agent_session_id in await self._journal.known_agent_ids(self._agent())

    async def is_shared(self, agent_session_id: str, session_id: str) -> bool:
        """Return True when another session of ours has this id at the agent. Raises RpcError."""
        with _told():
            ours = self._agent()
            return await self._journal.index.shares_agent_id(ours, agent_session_id, session_id)

    async def agent_id(self, session_id: str) -> str | None:
        """Return the id at this agent of a session, listed or not; None if it has none there.

        An id that is none of ours is the agent's. Raises RpcError.
        """
        with _told():
            row = await self._journal.index.session(session_id)
        if row is None:
            return session_id
        return row.agent_session_id if self._agent().owns(row.agent, row.agent_info) else None

    async def _agents_own(self, cwd: str | None, cursor: Any) -> tuple[Rows, Any]:
        if not (link := self._listing_link()):
            return [], None
        rows, after = await self._agent_page(link, cwd, cursor) or ([], None)
        known = await self._journal.known_agent_ids(self._agent())
        kept = [row for row in rows if cwd is None or _same_folder(row.get("cwd"), cwd)]
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

    async def agent_lists(self, session_id: str) -> bool:
        """Return True when the agent says, without a folder, that it has this session."""
        link = self._listing_link() or await self._port.ready()
        if not link.can("sessionCapabilities", "list"):
            return False
        return bool(await self._is_listed(link, None, session_id))

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


@contextmanager
def _told() -> Iterator[None]:
    """Tell the client what is wrong with the list, and what to do."""
    try:
        yield
    except IndexUnusable as exc:
        raise errors.agent_trouble(str(exc)) from exc


def _same_folder(one: object, other: str) -> bool:
    return isinstance(one, str) and PurePath(one) == PurePath(other)


def _row(row: SessionInfo) -> Json:
    listed = {"sessionId": row.session_id, "cwd": row.cwd, "updatedAt": row.updated_at}
    return {**listed, "title": row.title} if row.title else listed
