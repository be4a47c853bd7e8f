"""`session/fork`: a second session that begins with the first one's transcript and settings.

A new agent process forks the session, and has the fork open. Where it can't, or while something
runs in the session, the session's own process forks it and closes the fork, which then gets a
process of its own like any session that is loaded. The transcript is copied from one journal into
the other.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import anyio

from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal import Journal, SessionJournal
from acp_bridge.core.journal.turns import ASKING
from acp_bridge.core.machine.states import State
from acp_bridge.core.protocol import INFO_UPDATE, SESSION_CLOSE, STATE, Json, as_object
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.opening import Workspace, new_id
from acp_bridge.core.session.process.memory import Memory
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.transcript.transcript_out import CARDS
from acp_bridge.core.sessions.session_store import SessionStore
from acp_bridge.core.updates.children import Children, placed
from acp_bridge.core.updates.open_cards import OpenCards
from acp_bridge.core.wire.jsonrpc import RpcError, encode

#: the journal's keys whose values a fork gets beside the transcript; its title is its own.
_KEPT: Final = (
    "shown",
    "chosen",
    CARDS,
    ASKING,
    *(f"state:{kind}" for kind in STATE if kind != INFO_UPDATE),
)


class Forks:
    """Makes forks of sessions that are live."""

    def __init__(self, store: SessionStore, journal: Journal) -> None:
        """`store` makes the forks' sessions; `journal` notes their titles in the index."""
        self._store = store
        self._journal = journal
        #: the agent forks a session only in the process that has the session open.
        self.in_source = False

    async def ask_source(
        self, source: Session, workspace: Workspace, request: ClientRequest
    ) -> tuple[Session, Json]:
        """Have the process of `source` fork it; return the fork and the agent's answer about it.

        The fork has no process yet. Raises RpcError: the agent's own, or if the fork can't be kept.
        """
        result = as_object(await source.to_agent.ask(request))
        agent_id = new_id(result, besides=source.journal.info.agent_session_id)
        if source.link:
            await _let_go(source.link, agent_id)
        return await self.keep(source, uuid4().hex, workspace, agent_id), result

    async def keep(
        self, source: Session, session_id: str, workspace: Workspace, agent_id: str
    ) -> Session:
        """Make the session for a fork that the agent has made, with the transcript of `source`.

        `session_id` is the fork's, `agent_id` its id at the agent. The fork has no process yet.
        Raises RpcError.
        """

        async def fill(journal: SessionJournal) -> None:
            source.transcript.flush()
            source.journal.catch_up()  # ids and prompts are read from the file
            await copy(source.journal, journal)
            if source.memory.known.remembered:
                Memory(journal).inherit()
            if title := source.journal.info.title:
                await self._journal.touch(journal.info.session_id, title=f"{title} (fork)")
            journal.catch_up()  # a fork that can't be kept whole is none

        prompted = source.journal.info.prompted
        return await self._store.fill(session_id, workspace, agent_id, fill, prompted=prompted)


def may_be_forked_elsewhere(source: Session) -> bool:
    """Return True if another process can fork `source`: it is on the agent's disk, and at rest.

    It is at rest if no prompt runs or waits, and no request to the agent is open.
    """
    now = source.now
    at_rest = now.state in (State.COLD, State.IDLE) and not now.unanswered
    return at_rest and not source.to_agent.busy and source.memory.known.remembered


async def _let_go(link: Link, agent_session_id: str) -> None:
    """Have the process close the fork, if it can; another process is to open it (invariant P12)."""
    if link.can("sessionCapabilities", "close"):
        with anyio.move_on_after(waits.AGENT_PATIENCE):
            try:
                await link.ask(SESSION_CLOSE, {"sessionId": agent_session_id})
            except RpcError as exc:
                event("agent.close_refused", agent=link.name, what=exc.message)


async def copy(source: SessionJournal, target: SessionJournal) -> None:
    """Copy a session's transcript until now, its used ids and its settings. Raises JournalError.

    Open tool cards and subagents are ended in the copy, since no process goes on with them there.
    """
    cards = OpenCards()
    async for page in source.replay():
        target.record(0, b"".join(encode(params) for params in page))
        for params in page:
            cards.note(params.get("update"))
    children = Children(source.get)
    ends = [*(placed(update) for update in cards.closing()), *children.end()]
    if closing := b"".join(encode(params) for params in ends):
        target.record(0, closing)
    for key, value in children.take_changed(whole=True).items():
        target.set(key, value)
    target.add_ids(source.used_ids())
    for key in _KEPT:
        if (value := source.get(key)) is not None:
            target.set(key, value)
