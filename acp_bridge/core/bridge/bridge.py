"""The life of the process: its clients, the table of methods, and the way to the right session.

One client starts the bridge, on stdin: its end is the bridge's. Others join on sockets and leave
again; their end ends nothing that another has (invariant V5).

Nothing here waits where messages are read: a handler puts a message where it belongs, in the
order of reading, or lets a task of its own answer it (invariants Q10, C4).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio

from acp_bridge.core import errors, protocol
from acp_bridge.core.bridge.unattended import Unattended
from acp_bridge.core.clients import rights
from acp_bridge.core.clients.client import Client, ClientRequest, Stage, Work
from acp_bridge.core.clients.rights import Right, Rights
from acp_bridge.core.clients.socket_share import SocketShare
from acp_bridge.core.protocol import Json, as_object, parted
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.keep import Waiter
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.feature import AnswersClosed
from acp_bridge.core.session.prompts import pauses
from acp_bridge.core.session.requests.options import VALUE_KEYS
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions import params as check
from acp_bridge.core.sessions.elsewhere import Elsewhere, MakeElsewhere
from acp_bridge.core.sessions.introduction import Introduction
from acp_bridge.core.sessions.pool import Pool, WarmTimes
from acp_bridge.core.sessions.registry import Sessions
from acp_bridge.core.sessions.sessionless import Sessionless
from acp_bridge.core.wire.jsonrpc import CANCELS, UNSET, is_id, withdrawn
from acp_bridge.core.wire.streams import Incoming, Outgoing

#: requests of the protocol that are carried out at once, beside the slow ones.
_AT_ONCE: Final = frozenset(
    {protocol.INITIALIZE, protocol.SESSION_PROMPT, protocol.STEERING, *VALUE_KEYS}
)
#: requests about prompts or background work of a session that bring no words for the agent.
_WITHOUT_WORDS = (
    *(protocol.QUEUE_LIST, protocol.QUEUE_MOVE, protocol.QUEUE_DROP, protocol.CANCEL_ITEM),
)
#: requests that are cancelled when their client's connection ends; others go on.
GIVEN_UP = protocol.OPENING | {protocol.INITIALIZE, protocol.ASK, protocol.SESSION_LIST}

#: why the earlier connection of a client ends.
_CAME_BACK: Final = "the client has come back on another connection"


class Bridge:
    """The clients, their sessions, and the agents behind them. `serve` is its whole life."""

    def __init__(
        self,
        context: SessionContext,
        on_end: Callable[[], None] | None = None,
        waiter: Waiter | None = None,
        elsewhere: MakeElsewhere = Elsewhere,
        on_clients: Callable[[], None] = lambda: None,
    ) -> None:
        """`context.tasks` runs everything; nothing is started before `serve`.

        `on_end` is called when the end begins. `waiter` is the process that the client has
        started, in a bridge that is kept when the client ends. `elsewhere` reaches the bridges
        that hold other sessions. `on_clients` is called when a client has come or gone.
        """
        self._waiter = waiter
        self._context = context
        self._on_end = on_end
        self._settings = context.settings
        self._tasks = context.tasks
        self._clients: list[Client] = []
        self.share = SocketShare()
        self._ended = anyio.Event()
        self._on_clients = on_clients
        bounds = context.settings.start_timeout, context.settings.client_limit
        self._pool = Pool(context, self._host, *bounds)
        self._sessions = Sessions(context, self._pool, elsewhere)
        if context.settings.spare:
            self._keep_warm()
        self._sessionless = Sessionless(context, self._pool, self._sessions.agent_id)
        self._introduction = Introduction(context, self._pool, self._let_go_earlier)
        #: by method, what answers a request about a session that is not open.
        self._closed = {k: v for each in context.plugins for k, v in each.closed.items()}
        #: by method, what answers a request that takes time, from a task of its own.
        self.slow = self._slow_ones()

    def _slow_ones(self) -> dict[str, Work]:
        return {
            protocol.AUTHENTICATE: self._sessionless.authenticate,
            protocol.LOGOUT: self._sessionless.logout,
            protocol.SESSION_NEW: self._sessions.new,
            protocol.SESSION_LOAD: self._sessions.load,
            protocol.SESSION_RESUME: self._sessions.resume,
            protocol.SESSION_FORK: self._sessions.fork,
            protocol.SESSION_LIST: self._sessions.list,
            protocol.SESSION_CLOSE: self._sessions.ending.close,
            protocol.SESSION_DELETE: self._sessions.ending.delete,
            # the bridge's own
            protocol.ATTACH: self._sessions.attaching.attach,
            protocol.CLOSE_FOR_ALL: self._sessions.ending.close_for_all,
            protocol.CANCEL_ITEM: self._cancel_item,
        }

    def _keep_warm(self) -> None:
        """Keep a process ready for the next session, as `--spare` says."""
        chosen = self._settings
        times = WarmTimes(chosen.spare, chosen.spare_pause, chosen.close_grace)
        self._pool.keep_warm(times, partial(self._sessions.room, 1))

    # --- life ----------------------------------------------------------------------------------

    async def serve(self, incoming: Incoming, outgoing: Outgoing, received: int) -> None:
        """Serve the client on these streams until it is gone or a signal asks to end.

        `received` is where signals are read (`signals.Received`). The clean-up is bounded
        (invariant P2).
        """
        client = self._client(incoming, outgoing)
        self._clients.append(client)
        self._tasks.start_soon(self._serve_client, client)
        await self._until_its_end(received)

    async def serve_remote(self, received: int) -> None:
        """Serve the clients that join until a signal asks to end: there is none on stdin.

        Each session that nobody has open ends by itself, when its time is over.
        """
        self._tasks.start_soon(self._introduction.alone)
        self._tasks.start_soon(self._end_what_is_left)
        await self._until_its_end(received)

    async def _end_what_is_left(self) -> None:
        ending = self._sessions.ending
        sessions = Unattended(self._settings.keep, lambda: ending.may_be_left)
        self._context.note_work = sessions.look_again
        while True:
            ending.begin_unattended(await sessions.over())

    async def _until_its_end(self, received: int) -> None:
        self._tasks.start_soon(self._watch_signals, received)
        try:
            await self._ended.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()

    async def _serve_client(self, client: Client) -> None:
        """Serve the client that started the bridge; `Unattended` decides what follows its end."""
        async with anyio.create_task_group() as tasks:
            if self._waiter:
                tasks.start_soon(self._watch_waiter, self._waiter, client)
            await client.serve()
            tasks.cancel_scope.cancel()
        if self._settings.keep:
            await self._part_from(client)
            if self._waiter:
                self._waiter.let_go(0)
            event("bridge.kept", seconds=self._settings.keep)
            bridge = Unattended(self._settings.keep, lambda: [self._sessions.attaching])
            self._context.note_work = bridge.look_again
            await bridge.over()
        self._ended.set()

    async def _watch_waiter(self, waiter: Waiter, client: Client) -> None:
        """Treat the end of the waiter, the process that the client knows, as the client's end."""
        await anyio.wait_readable(waiter)
        client.cut()

    async def introduced(self) -> None:
        """Return when the first client has its answer to `initialize`."""
        await self._introduction.made.wait()

    async def join(self, incoming: Incoming, outgoing: Outgoing) -> None:
        """Serve one more client on these streams until it is gone; nothing else ends with it.

        Owns the streams. Raises nothing but a cancellation (invariant V5).
        """
        await self._serve_joined(self._client(incoming, outgoing, self.share))

    async def join_remote(self, incoming: Incoming, outgoing: Outgoing, login: Rights) -> None:
        """Do as `join` does for a client that has come from elsewhere, with its rights."""
        await self._serve_joined(self._client(incoming, outgoing, self.share, login))

    def _client(
        self,
        incoming: Incoming,
        outgoing: Outgoing,
        share: SocketShare | None = None,
        login: Rights | None = None,
    ) -> Client:
        ends = self._context.command.ends
        if ends.trace:
            incoming, outgoing = ends.trace.of_client(incoming, outgoing)
        return Client(self, incoming, outgoing, share, login, ends)

    async def _serve_joined(self, client: Client) -> None:
        self._clients.append(client)
        self._on_clients()
        try:
            if not self._ended.is_set():
                await client.serve(waits.GREETING)
        except Exception as exc:
            errors.internal(exc, "a client's connection failed")
        finally:
            with anyio.CancelScope(shield=True):
                await self._part_from(client)

    async def _part_from(self, client: Client) -> None:
        """Take a client that is gone out of every session; its prompts go on."""
        self._take_out(client)
        await client.end(waits.LET_GO if client.let_go_of else waits.FLUSH)
        self._clients.remove(client)
        self._on_clients()
        if note_work := self._context.note_work:
            note_work()

    def _take_out(self, client: Client) -> None:
        errors.contained(client.leave, GIVEN_UP, what="a client's requests could not be ended")
        self._sessions.attaching.forget(client)
        self._sessions.passages.forget(client)

    def _let_go_earlier(self, client: Client) -> None:
        """End the earlier connection of a client that has come back under its name.

        Prompts that it sent over the earlier one are still its own, and questions wait for it.
        """
        for each in list(self._clients):
            if each is client or each.identity != client.identity:
                continue
            if each.stage is Stage.READY and not each.gone:
                self._take_out(each)
                each.let_go(_CAME_BACK)

    async def _watch_signals(self, received: int) -> None:
        while not self._ended.is_set():
            await anyio.wait_readable(received)
            for number in os.read(received, 1):
                event("signal", number=signal.Signals(number).name)
                self._ended.set()

    async def _end(self) -> None:
        if self._on_end:
            self._on_end()
        with anyio.move_on_after(waits.END):
            with anyio.move_on_after(waits.AGENT_PATIENCE):
                for client in list(self._clients):
                    await client.give_up(protocol.OPENING)
                await self._sessions.passages.end()
            await self._sessions.end(self._settings.close_grace)
            # Who looks at a session that another one deletes leaves it, and perhaps the bridge.
            for client in list(self._clients):
                await client.finish(frozenset({protocol.SESSION_DELETE}))
        async with anyio.create_task_group() as tasks:
            for client in self._clients:
                tasks.start_soon(client.end, waits.FLUSH)
        await self._context.journal.close()
        event("bridge.ended")

    def _host(self) -> Client | None:
        """Return the client on stdin, whose abilities agents are told of; None if it is gone."""
        return next((client for client in self._clients if not client.on_socket), None)

    # --- what the clients send -----------------------------------------------------------------

    def on_client_request(self, request: ClientRequest) -> None:
        """Hand a request to the part of the bridge that answers it.

        Raises RpcError for a request that can be refused at once.
        """
        params, method, client = request.params or {}, request.method, request.client
        if not isinstance(params, dict):
            raise errors.invalid("must be an object", "params")
        # Some writers put an id into everything: a Stop counts all the same.
        if _as_stop(method, params) in CANCELS:
            self.on_client_notification(client, method, params)
            request.answer(None)
            return
        if client.stage is not Stage.READY or method == protocol.INITIALIZE:
            self._introduction.take(request, params)
            return
        self._check(request, params)
        elsewhere = self._sessions.passages
        if elsewhere.in_use and elsewhere.take(request, params):
            return
        # what takes time; what is about one session; what is for the agent
        if slow := self._slow_for(request, params):
            client.run(self._tasks, request, slow, params)
        elif method in (protocol.SESSION_PROMPT, protocol.STEERING):
            session = self._prompted(request, params)
            take = session.on_prompt if method == protocol.SESSION_PROMPT else session.on_steering
            take(request, params)
        elif method == protocol.LIVE:
            request.answer(self._sessions.attaching.listed())
        elif method == protocol.CANCEL_TURN:
            request.answer(self._session(params).audience.cancel_turn(params))
        elif method in protocol.ARCHIVES:
            raise errors.unknown_method(method)
        elif (answer := self._closed.get(method)) and not self._live(check.session_id(params)):
            client.run(self._tasks, request, partial(self._answer_closed, answer), params)
        elif "sessionId" in params and not self._is_agents_own(request, params):
            self._take_for_session(request, params)
        elif self._knows(method):
            raise errors.invalid("is missing", "sessionId")
        else:
            client.run(self._tasks, request, self._sessionless.pass_on, params)

    def _take_for_session(self, request: ClientRequest, params: Json) -> None:
        """Hand a request about a session to a feature, or to the agent. Raises RpcError."""
        method = request.method
        of_queue = method in (protocol.QUEUE_LIST, *protocol.QUEUE_CHANGES)
        session = self._prompted(request, params) if of_queue else self._session(params)
        if answer := session.features.answers.get(method):
            request.client.run(self._tasks, request, answer, params)
        elif method in pauses.METHODS:
            session.pauses.take(request)
        elif method in session.features.takes or method.startswith(protocol.OWN_PREFIX):
            session.features.take(request, params)
        else:
            session.to_agent.pass_on(request)

    def _is_agents_own(self, request: ClientRequest, params: Json) -> bool:
        """Return True for a method of the agent's own about a session that is not open."""
        unknown = not self._knows(request.method)
        return unknown and not request.client.rights and not self._live(params["sessionId"])

    def _knows(self, method: str) -> bool:
        """Return True for a method about a session that the bridge knows."""
        own = method.startswith(protocol.OWN_PREFIX)
        return own or method in self.slow or method in _AT_ONCE

    def _slow_for(self, request: ClientRequest, params: Json) -> Work | None:
        """Return what answers a request from a task of its own; None if it takes no time."""
        slow, client = self.slow.get(request.method), request.client
        if slow is None and client.rights:
            if request.method == protocol.LIVE:
                slow = self._sessions.live_within
            elif self._is_not_open(client, params):
                slow = self._not_open
        if slow is None:
            return None
        self._sessions.passages.take_load(request, params)
        if client.rights:
            slow = self._sessions.bounds.checked(slow)
        return self._sessions.attaching.held_back(request, params, slow)

    def _prompted(self, request: ClientRequest, params: Json) -> Session:
        """Return the session of a request about its prompts or background work. Raises RpcError.

        Checks that the client has the session open, and the form of the words for the agent.
        """
        session = self._session(params)
        if request.method not in _WITHOUT_WORDS:
            check.prompt(params)
        if request.method == protocol.SESSION_PROMPT:
            check.prompt_key(params)
        session.audience.check_prompt(request.client)
        return session

    def _is_not_open(self, client: Client, params: Json) -> bool:
        """Return True for parameters that name a session which the client does not have open."""
        if not isinstance(session_id := params.get("sessionId"), str):
            return False
        session = self._live(session_id)
        return session is None or session.transcript.view_of(client) is None

    async def _not_open(self, request: ClientRequest, params: Json) -> Any:
        """Return the answer to a remote client's request about a session that it has not opened.

        The session was seen to lie in the client's folders. Raises RpcError.
        """
        session = self._session(params)
        match request.method:
            case protocol.CANCEL_TURN:
                return session.audience.cancel_turn(params)
            case protocol.ASK if answer := session.features.answers.get(protocol.ASK):
                return await answer(request, params)
        raise errors.refused("this client does not have the session open: attach to it first")

    async def _answer_closed(
        self, answer: AnswersClosed, request: ClientRequest, params: Json
    ) -> object:
        """Return the answer to a feature's request about a session that is not open.

        The agent answers for one that it alone has. Raises RpcError.
        """
        found = await self._sessions.answer_closed(request, params, answer)
        return await self._sessionless.pass_on(request, params) if found is None else found

    async def _cancel_item(self, request: ClientRequest, params: Json) -> Json:
        """Have the agent end a piece of its background work (`CANCEL_ITEM`); raises RpcError."""
        return await self._prompted(request, params).background.cancel(request, params)

    def on_client_notification(self, client: Client, method: str, params: Any) -> None:
        """Hand a notification to its handler; one without a handler is dropped."""
        named = as_object(params)
        method = _as_stop(method, named)
        if method in CANCELS and self._waiter and not client.on_socket and self._waiter.ended:
            return  # nobody's Stop: some clients cancel when their agent, the waiter, has ended
        if method in protocol.CANCEL_REQUESTS:
            self._cancel_request(client, withdrawn(named))
            return
        is_named = isinstance(named.get("sessionId") or None, str)
        if method == protocol.SESSION_CANCEL and not is_named:
            named = {**named, "sessionId": self._meant(client)}
        bound = protocol.prompt_key(named)
        if client.stage is Stage.INITIALIZING and method == protocol.SESSION_CANCEL:
            client.early.cancel_oldest(client, named.get("sessionId"), bound)
        if client.stage is not Stage.READY or not self._may_notify(client, method):
            return
        elsewhere, session_id = self._sessions.passages, named.get("sessionId")
        above = self._session_above(client, session_id)
        if elsewhere.in_use and elsewhere.notify(client, method, named, above or session_id):
            return
        if above:
            if method == protocol.SESSION_CANCEL and (session := self._live(above)):
                session.cancel_child(client, str(session_id))
            return
        session = self._live(session_id)
        if client.rights and self._is_not_open(client, named):
            return
        if session:
            session.transcript.end_quiet(client)
        if method == protocol.SESSION_CANCEL:
            if session and session.early:
                session.early.cancel_oldest(client, session.id, bound)
            elif session:
                session.audience.cancel(client, bound)
        elif session:
            session.pass_notification(method, named)
        elif "sessionId" not in named and not client.on_socket:
            for link in self._context.ready_links:
                link.peer.notify(method, params)

    def _session(self, params: Json) -> Session:
        session = self._live(check.session_id(params))
        if session is None:
            raise errors.unknown_session()
        return session

    def _live(self, session_id: object) -> Session | None:
        return self._sessions.live.get(session_id) if isinstance(session_id, str) else None

    def _check(self, request: ClientRequest, params: Json) -> None:
        """Raise RpcError for a request that this client may not make, or about a subagent.

        Also for one with a session's id or a folder that can't be written as UTF-8.
        """
        rights.check(request.client.roles, request.method, request.params)
        check.names(params)
        if self._session_above(request.client, params.get("sessionId")):
            raise errors.refused("a subagent takes no requests: send them to the session above it")

    def _session_above(self, client: Client, session_id: object) -> str:
        """Return the id of the session that has a subagent with this id; empty if none has."""
        above, key = parted(session_id)
        if not above:
            return ""
        session = self._live(above)
        if session is None:
            return above if (client, above) in self._sessions.passages.sessions() else ""
        return above if session.has_child(key) else ""

    def _cancel_request(self, client: Client, request_id: object) -> None:
        if not is_id(request_id):
            return
        request_id = client.peer.meant(request_id)
        # The bridge that has a request answers it: until then it may show what was asked for.
        if self._sessions.passages.cancel_request(client, request_id):
            return
        if not client.cancel_request(request_id):
            for session in list(self._sessions.live.values()):
                if session.cancel_request(client, request_id):
                    return

    def _meant(self, client: Client) -> str | None:
        """Return the id of the session that a client's Stop without an id means, None if unclear.

        It is the client's only session, else the only one with a prompt of the client's, else the
        only one that is at work.
        """
        elsewhere = {of for who, of in self._sessions.passages.sessions() if who is client}
        here = [each for each in self._sessions.live.values() if each.audience.has(client)]
        own = [each for each in here if each.audience.own(client)]
        working = [each for each in here if each.busy]
        for found in (here, own, working):
            if len(meant := {each.id for each in found} | elsewhere) == 1:
                return meant.pop()
        if client.stage is Stage.READY:
            event("client.noise", what="a Stop that names no session")
        return None

    def _may_notify(self, client: Client, method: str) -> bool:
        """Return True if the client may send this notification; others are dropped.

        A request without an id is never passed on: a prompt would go past the queue.
        """
        if method in self.slow or method in _AT_ONCE:
            event("client.noise", what=f"{method} without an id")
            return False
        if method == protocol.SESSION_CANCEL:
            return client.may(Right.STOP)
        return client.may(Right.ACT) and not method.startswith(protocol.OWN_PREFIX)


def _as_stop(method: str, params: Json) -> str:
    """Return `session/cancel` for what means the same, else the method as it is.

    That is another spelling of it, or a cancel that names a session and no request.
    """
    if method in protocol.CANCEL_REQUESTS:
        of_session = withdrawn(params) is UNSET and "sessionId" in params
        return protocol.SESSION_CANCEL if of_session else method
    letters = "".join(filter(str.isalpha, method)).lower()
    return protocol.SESSION_CANCEL if letters == "sessioncancel" else method
