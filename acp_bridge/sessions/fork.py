"""`session/fork`: a second session that begins with the first one's transcript and settings.

A new process forks the session, and has the fork open. Where it can't, or while something runs in
the session, the process that has the session forks it and lets go of the fork, which then gets a
process of its own as any session does that is loaded. What was shown is copied from one journal
into the other.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import anyio

from acp_bridge.agents.link import Link
from acp_bridge.clients.client import ClientRequest
from acp_bridge.journal import Journal, SessionJournal
from acp_bridge.machine.states import State
from acp_bridge.protocol import INFO_UPDATE, SESSION_CLOSE, STATE, Json, as_object
from acp_bridge.runtime import waits
from acp_bridge.runtime.log import event
from acp_bridge.session.opening import Workspace, new_id
from acp_bridge.session.process.memory import Memory
from acp_bridge.session.session import Session
from acp_bridge.session.transcript.transcript_out import CARDS
from acp_bridge.sessions.session_store import SessionStore
from acp_bridge.updates.children import Children, placed
from acp_bridge.updates.open_cards import OpenCards
from acp_bridge.wire.jsonrpc import RpcError, encode

#: the journal's keys that a fork gets beside the transcript; its title is its own.
_KEPT: Final = (
    "shown",
    "chosen",
    CARDS,
    *(f"state:{kind}" for kind in STATE if kind != INFO_UPDATE),
)


class Forks:
    """Makes forks of sessions that are live."""

    def __init__(self, store: SessionStore, journal: Journal) -> None:
        """`store` makes the forks; `journal` lists them."""
        self._store = store
        self._journal = journal
        #: the agent forks a session only in the process that has it.
        self.in_source = False

    async def ask_source(
        self, source: Session, workspace: Workspace, request: ClientRequest
    ) -> tuple[Session, Json]:
        """Return a fork, which has no process yet, and the agent's answer about it.

        Raises RpcError: the agent's own, or when the fork can't be kept.
        """
        result = as_object(await source.to_agent.ask(request))
        agent_id = new_id(result, besides=source.journal.info.agent_session_id)
        if source.link:
            await _let_go(source.link, agent_id)
        return await self.keep(source, uuid4().hex, workspace, agent_id), result

    async def keep(
        self, source: Session, session_id: str, workspace: Workspace, agent_id: str
    ) -> Session:
        """Return the fork that the agent has made, with what the session has shown until now.

        It has no process yet. Raises RpcError.
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
    """True if the agent has the session on its disk, and nothing runs or waits in it."""
    now = source.now
    at_rest = now.state in (State.COLD, State.IDLE) and not now.unanswered
    return at_rest and not source.to_agent.busy and source.memory.known.remembered


async def _let_go(link: Link, agent_session_id: str) -> None:
    """Let the process close the fork, which another one is to open (invariant P12)."""
    if link.can("sessionCapabilities", "close"):
        with anyio.move_on_after(waits.AGENT_PATIENCE):
            try:
                await link.ask(SESSION_CLOSE, {"sessionId": agent_session_id})
            except RpcError as exc:
                event("agent.close_refused", agent=link.name, what=exc.message)


async def copy(source: SessionJournal, target: SessionJournal) -> None:
    """Copy a session's transcript until now, its ids and settings. Raises JournalError.

    Tool cards and subagents that are open end in the copy: nobody goes on with them there.
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
