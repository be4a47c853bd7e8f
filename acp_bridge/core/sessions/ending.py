"""How a session ends: closed by its last client, closed for all, or deleted."""

from __future__ import annotations

from functools import partial

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import ANSWERED, Client, ClientRequest
from acp_bridge.core.protocol import SESSION_DELETE, ErrorCode, Json, has, with_own_meta
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.keyed_locks import KeyedLocks
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions import params
from acp_bridge.core.sessions.attaching import Attaching
from acp_bridge.core.sessions.elsewhere import Elsewhere
from acp_bridge.core.sessions.listing import Listing
from acp_bridge.core.sessions.pool import Pool
from acp_bridge.core.sessions.session_store import SessionStore
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import RpcError


class Deletion:
    """Deletes one session at the agent."""

    def __init__(self, session_id: str, capabilities: object, listing: Listing, pool: Pool) -> None:
        """`capabilities`: the agent's `agentCapabilities`."""
        self._able = has(capabilities, "sessionCapabilities", "delete")
        self._listing = listing
        self._pool = pool
        self._session_id = session_id
        self._done = False

    def prepare(self, link: Link | None) -> None:
        """Have the session's own process, `link`, delete the session before the process ends.

        So no other process need be started. If that fails, `by_any` tries again.
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
        """Delete the session, if that is still to be done, in an agent process without a session.

        Returns why the agent may keep it, None if it is deleted. `agent_id`: its id at the agent.

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


class Ending:
    """Answers the requests that end sessions."""

    def __init__(
        self,
        live: dict[str, Session],
        busy: KeyedLocks,
        attaching: Attaching,
        passages: Elsewhere,
        store: SessionStore,
        context: SessionContext,
        listing: Listing,
        pool: Pool,
    ) -> None:
        """`busy`: locks by session id, so that its loads, forks, closes and deletes take turns."""
        self._live = live
        self._busy = busy
        self._attaching = attaching
        self._passages = passages
        self._store = store
        self._context = context
        self._listing = listing
        self._pool = pool
        #: the sessions that end because nobody has them open.
        self._left: set[Session] = set()

    async def close(self, request: ClientRequest, given: Json) -> object:
        """Answer `session/close` after the session's prompts, which are answered `cancelled`.

        If the session goes on without this client, only the client leaves it.
        """
        if await self._attaching.leave(request, params.session_id(given)):
            return {}
        return await self._close(request, given, keeps_prompts=False)

    async def close_for_all(self, request: ClientRequest, given: Json) -> object:
        """Answer `_acp_bridge/close`: end a session for all clients; its queue is left over."""
        return await self._close(request, given, keeps_prompts=True)

    async def _close(self, request: ClientRequest, given: Json, *, keeps_prompts: bool) -> object:
        session_id, client = params.session_id(given), request.client
        if found := self._live.get(session_id):
            # at once: a load of it ends, and is answered first
            found.close(client, keeps_prompts=keeps_prompts)
        async with (
            self._attaching.turn_of(client, session_id),
            self._busy.hold(session_id),
        ):
            session = self._live.get(session_id)
            if session is None:
                if self._passages.take(request, given):
                    return ANSWERED  # a load of it that was read before has found it elsewhere
                if found is None:
                    raise errors.unknown_session()
                return {}
            goes_on = not keeps_prompts and self._attaching.goes_on_without(client, session)
            if goes_on:  # others have loaded it behind a load by this client
                session.audience.leave(client, closes=True)
            else:
                await self.drop(session, client, keeps_prompts=keeps_prompts)
        return {}

    async def delete(self, request: ClientRequest, given: Json) -> object:
        """Answer `session/delete`: delete a session, at the agent too, if it can delete sessions.

        An unknown session is no error. If the agent may keep the session, it is not listed any
        more, and the answer says so.
        """
        return await self._passages.or_elsewhere(request, self._delete(request, given))

    async def _delete(self, request: ClientRequest, given: Json) -> Json:
        session_id = params.session_id(given)
        asked = self._context.capabilities, self._listing, self._pool
        deletion = Deletion(session_id, *asked)
        if session := self._live.get(session_id):
            deletion.prepare(session.link)
            session.close(request.client, said=notices.DELETED_BY_OTHER)
        async with (
            self._attaching.turn_of(request.client, session_id),
            self._busy.hold(session_id),
        ):
            if session := self._live.get(session_id):
                await self.drop(session, request.client, said=notices.DELETED_BY_OTHER)
            agent_id = await self._store.agent_id(session_id)
            reach = self._passages.reach(request)
            await self._store.erase(session_id, known=True, reach=reach)
        if agent_id is None:
            return {}
        if not (kept := await deletion.by_any(agent_id)):
            return {}
        event("agent.not_deleted", session=session_id, what=kept)
        return with_own_meta({}, {"agentKeeps": f"{kept}; what it keeps itself is hidden here"})

    def begin_unattended(self, session: Session) -> None:
        """Begin to close a session that nobody has open; its waiting prompts are left over.

        The session goes on if a client has opened it by then.
        """
        self._left.add(session)
        session.spawn(self._end_unattended, session)

    async def _end_unattended(self, session: Session) -> None:
        try:
            async with self._busy.hold(session.id):
                if session.closing or session.attended:
                    return
                event("session.unattended", session=session.id)
                if session.busy:
                    said = notices.left_alone(self._context.settings.keep)
                    session.transcript.show(notices.notice(said))
                await self.drop(session, keeps_prompts=True)
        finally:
            self._left.discard(session)

    @property
    def may_be_left(self) -> list[Session]:
        """The live sessions that are neither being closed nor about to be, as unattended."""
        live = self._live.values()
        return [each for each in live if not each.closing and each not in self._left]

    async def drop(
        self,
        session: Session,
        by: Client | None = None,
        *,
        keeps_prompts: bool = False,
        said: str = notices.CLOSED_BY_OTHER,
    ) -> None:
        """Close a session with `Session.close`, wait for its end, and take it out of the live ones.

        `by`, `keeps_prompts` and `said` are as there.
        """
        session.close(by, keeps_prompts=keeps_prompts, said=said)
        await session.closed.wait()
        self._live.pop(session.id, None)
