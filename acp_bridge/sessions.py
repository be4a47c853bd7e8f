"""The sessions of a bridge: made, loaded, listed, closed, deleted.

The journal has them all, live or not; `live` those that this bridge runs now. A session is
opened by one bridge at a time: the lock is taken before the journal is read (HAZARDS K3, P12).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import anyio

from acp_bridge import errors, params
from acp_bridge import signals as sig
from acp_bridge.agents import lease
from acp_bridge.agents.link import Link
from acp_bridge.journal import JournalError, SessionJournal, UnknownSession
from acp_bridge.listing import Listing
from acp_bridge.lobby import Lobby
from acp_bridge.log import event
from acp_bridge.session import loading
from acp_bridge.session.host import ANSWERED, Host
from acp_bridge.session.opening import Setup
from acp_bridge.session.session import Session
from acp_bridge.wire.jsonrpc import RpcError
from acp_bridge.wire.peer import Call

Json = dict[str, Any]
#: seconds for an agent to delete its own session; it may be busy or deaf.
_AGENT_PATIENCE = 1.0
#: seconds to undo the opening of a session.
_UNDO = 5.0


class Sessions:
    """All that is asked about sessions as a whole."""

    def __init__(self, host: Host, lobby: Lobby) -> None:
        self.live: dict[str, Session] = {}
        self._host = host
        self._lobby = lobby
        self.listing = Listing(host, lobby, self.links)
        self._opening: dict[str, anyio.Lock] = {}

    def links(self) -> list[Link]:
        """Every process that takes requests."""
        links = [self._lobby.waiting, *(session.link for session in self.live.values())]
        return [link for link in links if link is not None]

    def wants_auth(self) -> Link | None:
        """A session's process that waits for `authenticate`."""
        waiting = (session.link_wanting_auth for session in self.live.values())
        return min(filter(None, waiting), key=lambda link: link.authenticated, default=None)

    # --- new -----------------------------------------------------------------------------------

    async def new(self, call: Call, given: Json) -> object:
        """`session/new`: the agent's answer, under an id of ours."""
        setup = params.setup(given)
        link = await self._lobby.take()
        session: Session | None = None
        try:
            result = await self._agent_new(link, call, setup)
            session = await self._create(uuid4().hex, setup, link, link.agent_session_id)
        finally:
            if session is None:
                with anyio.CancelScope(shield=True):
                    await self._unused(link)
        shown = session.updates.settings(result)
        session.choices.note_result(shown)
        own = {"agentSessionId": link.agent_session_id}
        told = shown.get("_meta")
        meta = {**(told if isinstance(told, dict) else {}), "acp_bridge": own}
        self._host.client.answer(call.id, {**shown, "sessionId": session.id, "_meta": meta})
        link.adopt(session.intake)
        return ANSWERED

    async def _agent_new(self, link: Link, call: Call, setup: Setup) -> Json:
        while True:
            try:
                result = await link.ask_for(call, "session/new", setup.params())
            except RpcError as exc:
                if not await self._authenticated(link, exc):
                    raise
                continue
            agent_id = result.get("sessionId") if isinstance(result, dict) else None
            if not isinstance(agent_id, str):
                raise errors.agent_trouble("the agent gave no session id")
            link.agent_session_id = agent_id
            return dict(result)

    async def _authenticated(self, link: Link, refusal: RpcError) -> bool:
        """Repeat the client's `authenticate` to a later process, once."""
        asked = refusal.code == errors.auth_required().code and not link.authenticated
        if not asked or self._host.credentials is None:
            return False
        link.authenticated = True
        with suppress(RpcError):  # then the session is refused again
            await link.ask("authenticate", self._host.credentials)
        return True

    async def _unused(self, link: Link) -> None:
        if link.agent_session_id is None:
            await self._lobby.give_back(link)
        else:
            await link.kill()

    async def _create(
        self, session_id: str, setup: Setup, link: Link, agent_id: str | None
    ) -> Session:
        host = self._host
        lock = await self._lease(session_id)
        try:
            journal = await host.journal.create(
                session_id,
                cwd=setup.cwd,
                additional_directories=setup.additional_directories or (),
                agent=host.settings.agent_name,
                agent_session_id=agent_id,
            )
        except BaseException as exc:
            os.close(lock)
            if isinstance(exc, JournalError):
                raise errors.agent_trouble("the journal can't be written") from exc
            raise
        link.hold_lock(lock)
        event("session.new", session=session_id, agent=link.name)
        return self._enter(Session(host, journal, lock, setup, link))

    def _enter(self, session: Session) -> Session:
        self.live[session.id] = session
        return session

    async def _lease(self, session_id: str) -> int:
        path = self._host.journal.lock_path(session_id)
        try:
            await self._host.journal.prepare()
            return await lease.acquire(path, self._host.settings.lease_timeout)
        except lease.Busy:
            raise errors.refused(
                "the session is open in another acp-bridge; close it there first"
            ) from None
        except (JournalError, OSError) as exc:
            raise errors.internal(exc, "the journal can't be written") from exc

    # --- load ----------------------------------------------------------------------------------

    async def load(self, call: Call, given: Json, *, replay: bool) -> object:
        """`session/load`, `session/resume`: the answer follows the last replayed update."""
        setup, session_id = params.setup(given), params.session_id(given)
        async with self._alone(session_id):
            session = self.live.get(session_id)
            if session and session.closing:
                await self._drop(session)
                session = None
            if session:
                self._attach(session, setup)
            else:
                session = await self._open(call, session_id, setup)
                if session is None:
                    return await self._import(call, session_id, setup)
            await loading.load(session, self._host, call, replay=replay)
            session.feed(sig.Warm())
            return ANSWERED

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncIterator[None]:
        """One load, close or delete of a session at a time."""
        lock = self._opening.setdefault(session_id, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # else it has gone to the next who waited
                self._opening.pop(session_id, None)

    def _attach(self, session: Session, setup: Setup) -> None:
        """A live session: other roots or MCP servers are applied at idle."""
        if setup.cwd != session.setup.cwd:
            raise errors.invalid("the session is open with another one", "cwd")
        before, session.setup = session.setup, setup
        if (setup.roots, setup.mcp_servers) != (before.roots, before.mcp_servers):
            session.feed(sig.Renew())

    async def _open(self, call: Call, session_id: str, setup: Setup) -> Session | None:
        """A session of the journal; None if the journal has none of this id."""
        host = self._host
        if not host.journal.path(session_id).is_file():
            return None
        lock = await self._lease(session_id)
        journal: SessionJournal | None = None
        try:
            journal = await host.journal.open(session_id)
            await self._check(journal, setup)
            session = Session(host, journal, lock, setup, None)
            await loading.recover(session)
        except BaseException as exc:
            if journal:
                await journal.close()
            os.close(lock)
            if isinstance(exc, UnknownSession):
                raise errors.unknown_session() from exc
            if isinstance(exc, JournalError):
                raise errors.internal(exc, "the session's journal can't be read") from exc
            raise
        event("session.opened", session=session_id)
        return self._enter(session)

    async def _check(self, journal: SessionJournal, setup: Setup) -> None:
        ours = self._host.settings.agent_name
        if journal.info.agent != ours:
            raise errors.invalid(
                f"the session belongs to the agent {journal.info.agent!r}, this is {ours!r}",
                "sessionId",
            )
        if journal.info.cwd != setup.cwd:
            await self._host.journal.touch(journal.info.session_id, cwd=setup.cwd)

    async def _import(self, call: Call, session_id: str, setup: Setup) -> Json:
        """A session that only the agent knows: loaded through it, and kept from now on."""
        mapped = await self._host.journal.known_agent_ids(self._host.settings.agent_name)
        # One that has an id of ours is open under that one, or was deleted (P12).
        if session_id in mapped or not await self.listing.agent_lists(session_id):
            raise errors.unknown_session()
        link = await self._lobby.take()
        link.agent_session_id = session_id
        try:
            session = await self._create(session_id, setup, link, session_id)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await link.kill()
            raise
        link.adopt(session.intake)
        method = "session/load" if link.can("loadSession") else "session/resume"
        try:
            result = await link.ask_for(call, method, setup.params(session_id))
        except BaseException:
            with anyio.move_on_after(_UNDO, shield=True):
                await self._drop(session)
                await self._erase(session_id, known=False)
            raise
        session.choices.note_result(result if isinstance(result, dict) else {})
        return loading.answer(session)

    # --- the end -------------------------------------------------------------------------------

    async def close(self, call: Call, given: Json) -> Json:
        """`session/close`: its prompts are answered `cancelled` first, then it is gone."""
        session_id = params.session_id(given)
        if session := self.live.get(session_id):
            session.close()  # at once: a replay of it ends, and is answered first
        async with self._alone(session_id):
            session = self.live.get(session_id)
            if session is None:
                raise errors.unknown_session()
            await self._drop(session)
        return {}

    async def delete(self, call: Call, given: Json) -> Json:
        """`session/delete`: also at the agent, if it can; an unknown session is no error."""
        session_id = params.session_id(given)
        if session := self.live.get(session_id):
            session.close()
        async with self._alone(session_id):
            if session := self.live.get(session_id):
                await self._drop(session)
            known = await self._host.journal.known_agent_ids(self._host.settings.agent_name)
            agent_id = next((a for a, own in known.items() if own == session_id), session_id)
            await self._erase(session_id, known=True)
        if link := self.listing.able("sessionCapabilities", "delete"):
            with anyio.move_on_after(_AGENT_PATIENCE):
                try:
                    await link.ask("session/delete", {"sessionId": agent_id})
                except RpcError as exc:
                    event("agent.delete_failed", what=exc.message)
        return {}

    async def _erase(self, session_id: str, *, known: bool) -> None:
        lock = await self._lease(session_id)  # another bridge may have it open
        try:
            await self._host.journal.delete(session_id, known=known)
        finally:
            os.close(lock)

    async def _drop(self, session: Session) -> None:
        session.close()
        await session.closed.wait()
        self.live.pop(session.id, None)

    async def end(self, grace: float) -> None:
        """The client is gone: running turns are interrupted, waiting prompts held."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lobby.close, grace)
            for session in list(self.live.values()):
                session.feed(sig.ClientGone())
                tasks.start_soon(session.closed.wait)
