"""`session/fork`: a second session that begins with the first one's transcript and settings.

The agent that has the session forks it, and lets go of the fork; what was shown is copied from one
journal into the other; the fork gets a process of its own, as any session does that is loaded.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import anyio

from acp_bridge import errors
from acp_bridge.agents.link import Link
from acp_bridge.clients.client import ClientRequest
from acp_bridge.journal import Journal, SessionJournal
from acp_bridge.protocol import INFO_UPDATE, SESSION_CLOSE, STATE, Json
from acp_bridge.runtime import waits
from acp_bridge.runtime.log import event
from acp_bridge.session.opening import Workspace
from acp_bridge.session.process.memory import Memory
from acp_bridge.session.session import Session
from acp_bridge.session.transcript.transcript_out import CARDS
from acp_bridge.sessions.session_store import SessionStore
from acp_bridge.updates.open_cards import OpenCards
from acp_bridge.wire.json_values import as_object
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

    async def make(
        self, source: Session, workspace: Workspace, request: ClientRequest
    ) -> tuple[Session, Json]:
        """Return a fork, which has no process yet, and the agent's answer about it.

        Raises RpcError: the agent's own, or when the fork can't be kept, or when the session is
        closed meanwhile.
        """
        try:
            return await self._make(source, workspace, request)
        except RpcError as exc:
            if source.closing:
                raise errors.unknown_session() from exc
            raise

    async def _make(
        self, source: Session, workspace: Workspace, request: ClientRequest
    ) -> tuple[Session, Json]:
        result = as_object(await source.to_agent.ask(request))
        agent_id = result.get("sessionId")
        if not isinstance(agent_id, str) or agent_id == source.journal.info.agent_session_id:
            raise errors.agent_trouble("the agent gave no session id")
        if source.link:
            await _let_go(source.link, agent_id)

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
        fork = await self._store.fill(uuid4().hex, workspace, agent_id, fill, prompted=prompted)
        return fork, result


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

    Tool cards that are open end in the copy: nobody goes on with them there.
    """
    cards = OpenCards()
    async for page in source.replay():
        target.record(0, b"".join(encode(params) for params in page))
        for params in page:
            cards.note(params.get("update"))
    if closing := b"".join(encode({"update": update}) for update in cards.closing()):
        target.record(0, closing)
    target.add_ids(source.used_ids())
    for key in _KEPT:
        if (value := source.get(key)) is not None:
            target.set(key, value)
