"""`session/list`: the journal's sessions, then those that only the agent knows.

The journal's pages come first, newest first, then the agent's own. A listing never starts an
agent, nor waits for one for long (invariant Q10).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Protocol

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents.identity import AgentIdentity
from acp_bridge.core.agents.link import Link
from acp_bridge.core.journal import BadCursor, IndexUnusable, Journal, SessionInfo
from acp_bridge.core.protocol import Json, as_object, with_own_meta, without_own_meta
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import waits
from acp_bridge.core.sessions import agent_listing, params
from acp_bridge.core.sessions.agent_listing import AgentPage, Rows
from acp_bridge.core.updates import notices

#: the most folders for which an agent is asked that lists the sessions of one folder only.
_FOLDERS = 10


class ListingPort(Protocol):
    """What a listing needs of the registry of sessions (`registry.Sessions`)."""

    def asleep(self) -> frozenset[str]:
        """Return the sessions whose process was ended because they were at rest."""

    def links(self) -> list[Link]:
        """Return the link of every agent process that takes requests."""

    async def ready(self) -> Link:
        """Return a link to a process without a session, started if need be; raises RpcError."""


class Listing:
    """Lists the sessions of one agent."""

    def __init__(
        self,
        port: ListingPort,
        journal: Journal,
        agent: Callable[[], AgentIdentity],
        folder: str | None = None,
    ) -> None:
        """`agent` returns the agent whose sessions are listed, known in full after `initialize`.

        `folder`: the working folder of agents; None: that of the bridge.
        """
        self._port = port
        self._folder = folder
        self._journal = journal
        self._agent = agent

    async def page(self, given: Json) -> Json:
        """Return a page of sessions: the journal's, newest first, then those only the agent knows.

        `given`: the parameters of `session/list`. Raises RpcError; if the journal's index can't be
        used, it says why, and what to do.
        """
        with _told():
            return await self._page(*params.listing(given))

    async def _page(self, cwd: str | None, cursor: str | None) -> Json:
        sessions: Rows = []
        by_agents_id: dict[str | None, Json] = {}
        if cursor is None or cursor.startswith("j:"):
            try:
                rows, after = await self._journal.list(
                    cwd=cwd, cursor=cursor and cursor[2:], agent=self._agent()
                )
            except BadCursor:
                raise errors.invalid("not a cursor of ours", "cursor") from None
            asleep = self._port.asleep()
            sessions = [_row(row, asleep=row.session_id in asleep) for row in rows]
            agents = (row.agent_session_id for row in rows)
            by_agents_id = dict(zip(agents, sessions, strict=True))
            if after is not None:
                return {"sessions": sessions, "nextCursor": f"j:{after}"}
            cursor = None
        own = await self._agents_own(cwd, cursor[2:] if cursor else None, by_agents_id)
        page: Json = {"sessions": sessions + own.rows}
        if own.cursor is not None:
            page["nextCursor"] = f"a:{own.cursor}"
        return with_own_meta(page, {"agentList": own.missing}) if own.missing else page

    async def is_ours(self, agent_session_id: str) -> bool:
        """Return True if a session of ours has, or had, this id at the agent. Raises RpcError."""
        with _told():
            return agent_session_id in await self._journal.known_agent_ids(self._agent())

    async def is_shared(self, agent_session_id: str, session_id: str) -> bool:
        """Return True if a session but `session_id` has this id at the agent. Raises RpcError."""
        with _told():
            ours = self._agent()
            return await self._journal.index.shares_agent_id(ours, agent_session_id, session_id)

    async def _agents_own(
        self, cwd: str | None, cursor: str | None, ours: Mapping[str | None, Json]
    ) -> AgentPage:
        """Return the agent's page without the sessions that are ours.

        `ours`: rows of such sessions by the agent's id; they get what only the agent tells of them.
        """
        if not (link := self._listing_link()):
            return AgentPage(missing=notices.LIST_ASLEEP if self._port.asleep() else None)
        found = await agent_listing.page(link, cwd, cursor)
        if found.by_folder and cursor is None:
            found = await agent_listing.of_folders(link, await self._folders(), found)
        for row in found.rows:
            if (listed := ours.get(row["sessionId"])) is not None:
                _add_beside(listed, without_own_meta(row))
        known = await self._journal.known_agent_ids(self._agent())
        kept = [row for row in found.rows if cwd is None or _same_folder(row.get("cwd"), cwd)]
        return replace(found, rows=[row for row in kept if row["sessionId"] not in known])

    async def _folders(self) -> list[str]:
        """Return folders in which the agent may have sessions, each once.

        The working folder of agents comes first, then those of the journal's newest sessions.
        """
        ours = await self._journal.index.folders(self._agent(), _FOLDERS)
        with suppress(OSError):  # the folder may be gone
            ours.insert(0, self._folder or os.getcwd())
        return list(dict.fromkeys(ours))

    def _listing_link(self) -> Link | None:
        return self.able("sessionCapabilities", "list")

    def able(self, *capability: str) -> Link | None:
        """Return a link whose agent has this capability, given by its path, or None."""
        return next((link for link in self._port.links() if link.can(*capability)), None)

    async def agent_lists(self, session_id: str) -> bool:
        """Return True unless the agent can't list sessions, or lists them without this one."""
        link = self._listing_link() or await self._port.ready()
        if not link.can("sessionCapabilities", "list"):
            return False
        found = [await agent_listing.is_listed(link, None, session_id)]
        with _told():
            folders = await self._folders()
        with anyio.move_on_after(waits.AGENT_PATIENCE):
            for folder in folders:
                found.append(await agent_listing.is_listed(link, folder, session_id))
        return any(found) or all(each is None for each in found)

    async def agent_may_have(self, session_id: str, cwd: str) -> bool:
        """Return True unless the agent surely has no such session, or could not load it.

        It is searched in the agent's list for `cwd`, then in its whole list. An agent that gives no
        list may have the session if it can load or resume sessions.
        """
        link = self._listing_link() or await self._port.ready()
        listed = False
        if link.can("sessionCapabilities", "list"):
            for asked in (cwd, None):
                found = await agent_listing.is_listed(link, asked, session_id)
                if found:
                    return True
                listed |= found is not None
        return not listed and (link.can("loadSession") or link.can("sessionCapabilities", "resume"))


@contextmanager
def _told() -> Iterator[None]:
    """Turn IndexUnusable, raised in the block, into an RpcError that says what to do."""
    try:
        yield
    except IndexUnusable as exc:
        raise errors.agent_trouble(str(exc)) from exc


def _add_beside(listed: Json, told: Json) -> None:
    """Add to a row of ours the members that the agent's row has beyond it."""
    meta = {**as_object(told.get("_meta")), **as_object(listed.get("_meta"))}
    listed |= {name: told[name] for name in told if name not in listed}
    if meta:
        listed["_meta"] = meta


def _same_folder(one: object, other: str) -> bool:
    return isinstance(one, str) and PurePath(one) == PurePath(other)


def _row(row: SessionInfo, *, asleep: bool) -> Json:
    listed: Json = {"sessionId": row.session_id, "cwd": row.cwd, "updatedAt": row.updated_at}
    if row.title:
        listed["title"] = row.title
    return with_own_meta(listed, {"asleep": True}) if asleep else listed
