"""The sessions of a bridge: made, loaded, listed, closed, deleted.

The journal has all sessions, live or not; `live` has those that this bridge runs now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import PurePath
from uuid import uuid4

import anyio

from acp_bridge.core import errors
from acp_bridge.core.agents.connection import Connection
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients import handshake
from acp_bridge.core.clients.client import ANSWERED, Client, ClientRequest
from acp_bridge.core.clients.waiting_requests import WaitingRequests
from acp_bridge.core.history import History
from acp_bridge.core.journal import SessionExists
from acp_bridge.core.journal.place import Place
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import (
    CURSOR,
    ONLY_LIVE,
    SESSION_FORK,
    SESSION_LOAD,
    SESSION_NEW,
    Json,
    own_meta,
    with_own_meta,
)
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.keyed_locks import KeyedLocks
from acp_bridge.core.session.clients.shown import cursor_of
from acp_bridge.core.session.feature import AnswersClosed
from acp_bridge.core.session.kept_params import OTHER
from acp_bridge.core.session.opening import Opening, Workspace, in_time
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.session.transcript.client_view import ClientView
from acp_bridge.core.session.transcript.transcript_out import IMPORTING
from acp_bridge.core.sessions import params
from acp_bridge.core.sessions.attaching import Attaching
from acp_bridge.core.sessions.bounds import Bounds
from acp_bridge.core.sessions.elsewhere import MakeElsewhere
from acp_bridge.core.sessions.ending import Ending
from acp_bridge.core.sessions.fork import Forks, may_be_forked_elsewhere
from acp_bridge.core.sessions.listing import Listing
from acp_bridge.core.sessions.pool import Pool
from acp_bridge.core.sessions.session_store import SessionStore
from acp_bridge.core.wire.jsonrpc import RpcError


class Sessions:
    """Answers every request that is about sessions as a whole."""

    def __init__(self, context: SessionContext, pool: Pool, elsewhere: MakeElsewhere) -> None:
        """`pool` has the agent processes from which new and loaded sessions take theirs."""
        self.live: dict[str, Session] = {}
        self._context = context
        self._pool = pool
        self._store = SessionStore(context, pool)
        self._forks = Forks(self._store, context.journal)
        self._listing = Listing(
            self, context.journal, lambda: context.identity, context.settings.folder
        )
        #: locks by session id, so that the session's loads, forks, closes and deletes take turns.
        self._busy = KeyedLocks()
        self.attaching = Attaching(self.live, self._busy, kept=context.settings.keep > 0)
        self.bounds = Bounds(context, self.live, lambda: self.passages.sessions())
        self.passages = elsewhere(context, self.attaching, partial(self._load, replay=False))
        of_live = self.live, self._busy, self.attaching, self.passages
        self.ending = Ending(*of_live, self._store, context, self._listing, pool)

    def links(self) -> list[Link]:
        """Return the links of all agent processes: the pool's, and those of live sessions."""
        links = [self._pool.link, *(session.link for session in self.live.values())]
        return [link for link in links if link is not None]

    def asleep(self) -> frozenset[str]:
        """Return the sessions whose process was ended because they were at rest."""
        return frozenset(session.id for session in self.live.values() if session.now.asleep)

    async def ready(self) -> Link:
        """Return a link to a process without a session, started if need be; raises RpcError."""
        return await self._pool.ready()

    def room(self, spare: int = 0) -> AbstractContextManager[None]:
        """Keep open files free during the block for one more session and `spare` more processes.

        Raises RpcError if there are not enough. Sessions that have ended leave `live` first.
        """
        for session in list(self.live.values()):
            if session.closed.is_set():  # it has ended with its last client
                del self.live[session.id]
        starting = spare + sum(session.link is None for session in self.live.values())
        files, waits = self._context.open_files, self._pool.link is not None
        return files.claimed(len(self.live), starting, waits=waits)

    # --- new -----------------------------------------------------------------------------------

    async def new(self, request: ClientRequest, given: Json) -> object:
        """Answer `session/new` with the agent's answer, in which the session has an id of ours.

        A notice of unattended work in the folder follows the answer, which doesn't wait for it.
        """
        workspace = self._given(request.client, given)
        with self.room():
            session, link, result = await self._create(uuid4().hex, request, workspace)
        session.transcript.attach(request.client)
        shown = request.client.abilities.fit({**result, "sessionId": session.id})
        request.answer(_opened(shown, session, request, link.agent_session_id))
        link.adopt(session.from_agent)
        self.bounds.tell_refused(session, request)
        session.spawn(self.passages.tell_kept_work, session, request.client)
        self._store.begin_sweep()
        return ANSWERED

    def _given(self, client: Client, given: Json) -> Workspace:
        """Return the workspace that a request names, as far as the client may set it.

        Raises RpcError.
        """
        self._context.check_opening(client, given)
        return self.bounds.workspace(client, params.workspace(given))

    async def _create(
        self, session_id: str, request: ClientRequest, workspace: Workspace, *, known: bool = False
    ) -> tuple[Session, Link, Json]:
        """Open a new session at the agent; returns it, its process and the agent's answer.

        `known`: as in `SessionStore.create`. Raises RpcError.
        """

        async def create(link: Link) -> tuple[Session, Json]:
            opening = Opening(link, workspace, request)
            result = await self._in_time(link, SESSION_NEW, opening.new)
            session = await self._store.create(session_id, workspace, link, known=known)
            session.user_settings.note_result(result)
            return session, result

        await self._store.check_folder()  # before an agent says the same less clearly
        fresh = self._context.leaves_nothing(workspace)
        return await self._begin(session_id, request, create, fresh=fresh)

    async def _begin(
        self,
        session_id: str,
        request: ClientRequest,
        work: Callable[[Link], Awaitable[tuple[Session, Json]]],
        first: Connection | None = None,
        *,
        fresh: bool = False,
    ) -> tuple[Session, Link, Json]:
        """Let `work` make a session with a process of the pool; return both and the agent's answer.

        `first`: the process that is taken if it takes a further session. `fresh`: the session is
        new, has had no prompt, and leaves nothing behind in a process that it leaves.

        `session_id`: the session whose clients get the requests that the process makes before its
        answer names the session (invariant P8). If `work` makes no session, the process goes
        back to the pool, or is killed if it still owes the answer.
        """

        async def begin(link: Link) -> tuple[Session, Link, Json]:
            link.at_clients.session_id = session_id
            session: Session | None = None
            try:
                session, result = await work(link)
            finally:
                if session is None:
                    with anyio.CancelScope(shield=True):
                        await self._unused(link, request)
            self.live[session.id] = session
            return session, link, result

        return await self._pool.take_for(begin, first, fresh=fresh)

    async def _in_time(self, link: Link, method: str, work: Callable[[], Awaitable[Json]]) -> Json:
        return await in_time(link, method, self._context.settings.request_timeout, work)

    async def _unused(self, link: Link, request: ClientRequest) -> None:
        """Give a process that refused a session back to the pool; kill it if it owes the answer."""
        if link.agent_session_id is None and request not in link.on_behalf.values():
            await self._pool.give_back(link)
        else:
            if link.agent_session_id is not None:
                await link.leave()
            await link.kill()

    # --- list ----------------------------------------------------------------------------------

    async def agent_id(self, session_id: str) -> str | None:
        """Return the id that a session has at the agent; None if it has none. Raises RpcError."""
        return await self._store.agent_id(session_id)

    async def list(self, request: ClientRequest, given: Json) -> Json:
        """Return the answer to `session/list`, for a remote client within its bounds."""
        return await self.bounds.page(request.client, await self._listing.page(given))

    async def answer_closed(
        self, request: ClientRequest, given: Json, answer: AnswersClosed
    ) -> object:
        """Answer a request about a session that was not open, by a feature; raises RpcError.

        Returns None, without an answer, for a session that the journal lacks.
        """
        session_id = params.session_id(given)
        async with self._busy.hold(session_id):
            if session := self.live.get(session_id):
                session.features.take(request, given)
                return ANSWERED
            return await self._store.answer_closed(session_id, answer, given)

    async def live_within(self, request: ClientRequest, given: Json) -> Json:
        """Return the answer to `_acp_bridge/live` for a remote client, within its bounds.

        It has the live sessions of other bridges too, since a remote client can't ask those.
        """
        elsewhere = await self.passages.live()
        rows = self.attaching.listed()["sessions"]
        here = {row["sessionId"] for row in rows}
        rows += [row for row in elsewhere if row["sessionId"] not in here]
        return {"sessions": await self.bounds.kept(request.client, rows)}

    # --- load ----------------------------------------------------------------------------------

    async def load(self, request: ClientRequest, given: Json) -> object:
        """Answer `session/load`: open the session, replay its updates, then send the answer."""
        work = self._load(request, given, replay=True)
        return await self.passages.or_elsewhere(request, work)

    async def resume(self, request: ClientRequest, given: Json) -> object:
        """Answer `session/resume`: open the session without a replay of its updates."""
        work = self._load(request, given, replay=False)
        return await self.passages.or_elsewhere(request, work)

    async def _load(self, request: ClientRequest, given: Json, *, replay: bool) -> object:
        session_id = params.session_id(given)
        workspace = await self._workspace(request.client, given)
        async with self.attaching.turn_of(request.client, session_id):
            if await self.passages.load_again(request, session_id):
                return ANSWERED
            async with self._busy.hold(session_id):
                session = self.live.get(session_id)
                if session and session.closing:
                    await self.ending.drop(session)
                    session = None
                if session is None and own_meta(given).get(ONLY_LIVE):
                    raise errors.unknown_session()
                shared = session is not None and session.audience.has_others(request.client)
                if session is None:
                    with self.room():
                        reach = self.passages.reach(request)
                        session = await self._store.open(session_id, workspace, reach)
                        if session is None:
                            try:
                                return await self._make(request, session_id, workspace, replay)
                            except SessionExists:  # by another bridge, which is gone by now
                                session = await self._store.open(session_id, workspace, reach)
                        if session is None:
                            raise errors.unknown_session()
                        self.live[session_id] = session
                    session.features.begin("resume")
                elif not shared and request.client.sets_up:
                    _move(session, workspace)
                else:
                    session.kept_params.check(given)
            held = self.attaching.hold_of(request)
            history = History.FULL if replay else History.PENDING
            await session.replay.load(request, history, attached=shared, held=held)
            self.bounds.tell_refused(session, request)
            if request.client.sets_up:
                session.wake()
            return ANSWERED

    async def _workspace(self, client: Client, given: Json) -> Workspace:
        """Return the workspace for a load: the client's if it may set one, else the session's own.

        A remote client's is checked again: the load may first have gone to another bridge.
        """
        workspace = self._given(client, given)
        if client.rights:
            await self.bounds.check(client, given)
        if client.sets_up:
            return workspace
        folder = await self.bounds.folder_of(params.session_id(given))
        return Workspace(folder or workspace.cwd)

    async def _make(
        self, request: ClientRequest, session_id: str, workspace: Workspace, replay: bool
    ) -> object:
        """Answer the load of a session that the journal lacks, with a new session of this id.

        It is opened anew if it was removed without a prompt, else imported from the agent. Raises
        RpcError, and SessionExists if another bridge has made it meanwhile.
        """
        if not request.client.sets_up:
            raise errors.unknown_session()
        if (after := cursor_of(request)) and after != Place(session_id).cursor:
            raise errors.wrong_cursor("the session is not kept here as it was at this cursor")
        if await self._store.set_aside(session_id):
            return await self._anew(request, session_id, workspace)
        await self._store.check_unknown(session_id)
        return await self._import(request, session_id, workspace, replay=replay)

    async def _anew(self, request: ClientRequest, session_id: str, workspace: Workspace) -> object:
        """Answer the load of a session that was removed without a prompt: it is opened anew."""
        session, link, _ = await self._create(session_id, request, workspace, known=True)
        session.transcript.attach(request.client)
        link.adopt(session.from_agent)
        session.replay.answer(request, _cursor(session, request))
        return ANSWERED

    # --- fork ----------------------------------------------------------------------------------

    async def fork(self, request: ClientRequest, given: Json) -> object:
        """Answer `session/fork`: make a fork of a session, live or not, and show it to the client.

        Raises RpcError, also if the agent can't fork.
        """
        if not handshake.can_fork(self._context.capabilities):
            raise errors.unknown_method(SESSION_FORK)
        session_id = params.session_id(given)
        workspace = self._given(request.client, given)
        async with self._busy.hold(session_id):
            if session_id not in self.live and await self._store.set_aside(session_id):
                return await self.new(request, given)  # there is nothing in it to be copied
            with self.room():
                async with self._at_hand(session_id) as source:
                    try:
                        session, result = await self._fork(source, workspace, request)
                    except RpcError as exc:
                        if source.closing:
                            raise errors.unknown_session() from exc
                        raise
        await _attach(session, request)
        shown = {**result, **session.user_settings.shown, "sessionId": session.id}
        agent_id = session.journal.info.agent_session_id
        shown = request.client.abilities.fit(shown)
        request.answer(_opened(shown, session, request, agent_id))
        self.bounds.tell_refused(session, request)
        session.wake()
        return ANSWERED

    async def _fork(
        self, source: Session, workspace: Workspace, request: ClientRequest
    ) -> tuple[Session, Json]:
        """Fork `source`; return the fork and the agent's answer about it. Raises RpcError.

        A process of the pool is asked first, since it can keep the fork open. If it refuses, the
        session's own process is asked, and from then on that one is asked at once.
        """
        asked = made = refused = False
        workspace = replace(workspace, kept=source.workspace.kept)

        async def fork(link: Link) -> tuple[Session, Json]:
            nonlocal asked, made
            if not may_be_forked_elsewhere(source):  # a turn has begun meanwhile
                raise errors.refused("the session is at work")
            agent_id = str(source.journal.info.agent_session_id)
            ask, asked = partial(Opening(link, workspace, request).fork, agent_id), True
            result, made = await self._in_time(link, SESSION_FORK, ask), True
            session = await self._forks.keep(source, new, workspace, str(link.agent_session_id))
            session.offer(link)
            return session, result

        if not self._forks.in_source and may_be_forked_elsewhere(source):
            new = uuid4().hex
            try:
                beside = source.link.connection if source.link else None
                session, _, result = await self._begin(new, request, fork, beside)
            except RpcError:
                if made or source.closing:
                    raise
                refused = asked and may_be_forked_elsewhere(source)
        if not made:
            session, result = await self._forks.ask_source(source, workspace, request)
            self._forks.in_source |= refused
            self.live[session.id] = session
        session.user_settings.note_result(result)
        return session, result

    @asynccontextmanager
    async def _at_hand(self, session_id: str) -> AsyncIterator[Session]:
        """Give the live session, or open it from the journal for the block. Raises RpcError."""
        session = self.live.get(session_id)
        if session is not None and not session.closing:
            yield session
            return
        if session is not None or (opened := await self._store.open(session_id, None)) is None:
            raise errors.unknown_session()
        self.live[session_id] = opened
        try:
            yield opened
        finally:
            with anyio.move_on_after(waits.UNDO, shield=True):
                await self.ending.drop(opened)

    async def _import(
        self, request: ClientRequest, session_id: str, workspace: Workspace, *, replay: bool
    ) -> object:
        """Answer the load of a session that only the agent knows, and record it in the journal.

        Prompts that come before the agent has answered wait for the answer. Raises RpcError; the
        new session is erased then.
        """
        session, link = await self._begin_import(request, session_id, workspace)
        early = session.early = WaitingRequests()
        if replay:
            session.transcript.attach(request.client)
        link.adopt(session.from_agent)
        try:
            opening = Opening(link, workspace, request)
            result = await self._in_time(link, SESSION_LOAD, partial(opening.load, session_id))
        except BaseException as exc:
            closed_by_client = session.closing
            with anyio.move_on_after(waits.UNDO, shield=True):
                await self.ending.drop(session)
                await self._store.erase(session_id, known=False)
            early.go_on(errors.unknown_session())
            if closed_by_client and isinstance(exc, RpcError):
                raise errors.unknown_session() from exc
            raise
        session.user_settings.note_result(result)
        if not replay:  # what the agent replayed is recorded, and not shown (spec: session/resume)
            session.replay.replay_state(await _attach(session, request))
        session.journal.set(IMPORTING, False)
        session.replay.answer(request, _cursor(session, request))
        session.early = None
        early.go_on()
        return ANSWERED

    async def _begin_import(
        self, request: ClientRequest, session_id: str, workspace: Workspace
    ) -> tuple[Session, Link]:
        """Make a session for one that only the agent knows; return it and the process to load it.

        Raises RpcError, also if the agent surely lacks the session.
        """
        # One that has an id of ours is open under that one, or was deleted (invariant P12). That is
        # looked up twice: before the agent has started, its own name for itself may be unknown. A
        # list that can't be used says so the second time, if the agent can load at all.
        known, listing = False, self._listing
        with suppress(RpcError):
            known = await listing.is_ours(session_id)
        if (
            known
            or not await listing.agent_may_have(session_id, workspace.cwd)
            or await listing.is_ours(session_id)
        ):
            raise errors.unknown_session()
        link = await self._pool.take()
        link.agent_session_id = session_id
        try:
            reach = self.passages.reach(request)
            session = await self._store.create(session_id, workspace, link, reach)
        except BaseException:
            link.agent_session_id = None  # the agent was not asked for it
            with anyio.CancelScope(shield=True):
                await link.kill()
            raise
        self.live[session_id] = session
        session.journal.set(IMPORTING, True)
        return session, link

    # --- the end -------------------------------------------------------------------------------

    async def end(self, grace: float) -> None:
        """End all sessions: interrupt running turns, leave waiting prompts over, end every process.

        `grace`: the seconds that the process in the pool has to end by itself.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pool.close, grace)
            for session in list(self.live.values()):
                session.feed(ev.Shutdown())
                tasks.start_soon(session.closed.wait)


async def _attach(session: Session, request: ClientRequest) -> ClientView:
    """Attach the client of `request` to a session that was filled just now; return its view."""
    view = session.transcript.attach(request.client)
    if view.takes_cursors:
        await session.transcript.places.find()
    return view


def _cursor(session: Session, request: ClientRequest) -> str | None:
    """Return the cursor after all that is recorded; None if the client takes no cursors."""
    session.transcript.flush()
    return session.transcript.places.cursor if request.client.abilities.takes_cursors else None


def _opened(shown: Json, session: Session, request: ClientRequest, agent_id: str | None) -> Json:
    """Return the answer to a request that has made a session: `shown`, with `_meta` of ours.

    `agent_id`: the session's id at the agent.
    """
    own: Json = {"agentSessionId": agent_id}
    if cursor := _cursor(session, request):
        own[CURSOR] = cursor
    return with_own_meta(shown, own)


def _move(session: Session, workspace: Workspace) -> None:
    """Set a live session's roots and MCP servers; its process is replaced if they differ.

    Raises RpcError for another folder than the session's.
    """
    if PurePath(workspace.cwd) != PurePath(session.workspace.cwd):
        raise errors.invalid(OTHER, "cwd")
    before = session.workspace
    session.move(workspace)
    now = session.workspace
    if (now.roots, now.mcp_servers, now.kept) != (before.roots, before.mcp_servers, before.kept):
        session.feed(ev.ReplaceProcess())
