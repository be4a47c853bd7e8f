"""The life of the process: its clients, the table of methods, and the way to the right session.

Nothing here waits where messages are read: a handler puts a message where it belongs, in the
order of reading, or lets a task of its own answer it (invariants Q10, C4).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from acp_bridge import errors, protocol, signals, waits
from acp_bridge.agents.command import AgentCommand
from acp_bridge.agents.link import Link
from acp_bridge.agents.parent import AgentParent, can_fork
from acp_bridge.agents.standing import StandingRequests
from acp_bridge.clients import handshake
from acp_bridge.clients.abilities import ClientAbilities
from acp_bridge.clients.client import Client, ClientRequest, Incoming, Outgoing, Stage, Work
from acp_bridge.journal import Journal
from acp_bridge.log import event
from acp_bridge.machine import events as ev
from acp_bridge.protocol import Json
from acp_bridge.session import pauses
from acp_bridge.session.session import Session
from acp_bridge.session.session_context import SessionContext
from acp_bridge.sessions import params as check
from acp_bridge.sessions.registry import Sessions
from acp_bridge.sessions.sessionless import Sessionless
from acp_bridge.sessions.spare import Spare, SpareTimes
from acp_bridge.sessions.waiting_process import WaitingProcess
from acp_bridge.settings import Settings
from acp_bridge.wire.jsonrpc import UNSET, is_id
from acp_bridge.wire.stdio import Reader, Writer

#: requests that are taken where they are read; `Bridge.slow` has those that are answered later.
OWN = frozenset({protocol.INITIALIZE, protocol.SESSION_PROMPT})
#: requests that read or make a session; they can't go on while the sessions end.
OPENING = frozenset(
    {
        protocol.SESSION_NEW,
        protocol.SESSION_LOAD,
        protocol.SESSION_RESUME,
        protocol.SESSION_FORK,
    }
)


class Bridge:
    """The clients, their sessions, and the agents behind them. `serve` is its whole life."""

    def __init__(self, context: SessionContext, on_end: Callable[[], None] | None = None) -> None:
        """`context.tasks` runs everything; nothing is started before `serve`.

        `on_end` is called when the end begins.
        """
        self._context = context
        self._on_end = on_end
        self._settings = context.settings
        self._tasks = context.tasks
        self._clients: list[Client] = []
        self._ended = anyio.Event()
        bounds = context.settings.start_timeout, context.settings.client_limit
        self._waiting = WaitingProcess(context, self._first_client, *bounds)
        context.take_ready = self._waiting.take_ready
        context.take_warming = self._waiting.take_warming
        self._sessions = Sessions(context, self._waiting)
        changed = self._keep_spare().note_change if context.settings.spare else _nobody
        self._sessionless = Sessionless(context, self._waiting, changed)
        #: requests that are answered from a task of their own.
        self.slow: dict[str, Work] = {
            protocol.AUTHENTICATE: self._sessionless.authenticate,
            protocol.LOGOUT: self._sessionless.logout,
            protocol.SESSION_NEW: self._sessions.new,
            protocol.SESSION_LOAD: self._sessions.load,
            protocol.SESSION_RESUME: self._sessions.resume,
            protocol.SESSION_FORK: self._sessions.fork,
            protocol.SESSION_LIST: self._sessions.list,
            protocol.SESSION_CLOSE: self._sessions.close,
            protocol.SESSION_DELETE: self._sessions.delete,
        }

    def _keep_spare(self) -> Spare:
        """Let a process be ready for the next session."""
        chosen = self._settings
        times = SpareTimes(chosen.spare, chosen.spare_pause, chosen.close_grace)
        return Spare(self._waiting, self._tasks, partial(self._sessions.room, 1), times)

    # --- life ----------------------------------------------------------------------------------

    async def serve(self, incoming: Incoming, outgoing: Outgoing) -> None:
        """Serve the client on these streams until it is gone or a signal asks to end.

        The clean-up is bounded (invariant P2).
        """
        client = Client(self, incoming, outgoing)
        self._clients.append(client)
        with signals.Received() as received:
            self._tasks.start_soon(self._watch_signals, received)
            self._tasks.start_soon(self._serve_client, client)
            try:
                await self._ended.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end()

    async def _serve_client(self, client: Client) -> None:
        await client.serve()
        self._ended.set()

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
                for client in self._clients:
                    await client.give_up(OPENING)
            await self._sessions.end(self._settings.close_grace)
        for client in self._clients:
            await client.end(waits.FLUSH)
        await self._context.journal.close()
        event("bridge.ended")

    def _first_client(self) -> Client | None:
        return self._clients[0] if self._clients else None

    # --- what the clients send -----------------------------------------------------------------

    def on_client_request(self, request: ClientRequest) -> None:
        """Put a request where it belongs; raises RpcError for what can be refused at once."""
        params, method, client = request.params or {}, request.method, request.client
        if not isinstance(params, dict):
            raise errors.invalid("must be an object", "params")
        if method == protocol.INITIALIZE:
            client.run(self._tasks, request, self._initialize, params)
        elif client.stage is not Stage.READY:
            raise errors.refused("not initialized: send initialize first")
        elif slow := self.slow.get(method):
            client.run(self._tasks, request, slow, params)
        elif method == protocol.SESSION_PROMPT:
            session = self._session(params)
            check.prompt(params)
            session.on_prompt(request, params)
        elif method == protocol.ASK:
            client.run(self._tasks, request, self._session(params).ask.answer, params)
        elif method == protocol.TITLE:
            self._session(params).title.take(request)
        elif method in pauses.METHODS:
            self._session(params).pauses.take(request)
        elif "sessionId" in params:
            self._session(params).to_agent.pass_on(request)
        elif method.startswith("session/"):
            raise errors.invalid("is missing", "sessionId")
        else:
            client.run(self._tasks, request, self._sessionless.pass_on, params)

    def on_client_notification(self, client: Client, method: str, params: Any) -> None:
        """Put a notification where it belongs; what is for nobody is dropped."""
        named = params if isinstance(params, dict) else {}
        if method == protocol.CANCEL_REQUEST:
            self._cancel_request(client, named.get("requestId", UNSET))
            return
        if client.stage is not Stage.READY:
            return
        session = self._live(named.get("sessionId"))
        if session:
            session.transcript.wake(client)
        if method == protocol.SESSION_CANCEL:
            if session:
                session.ask.stop()
                session.feed(ev.Cancel())
        elif session:
            session.pass_notification(method, named)
        elif "sessionId" not in named:
            for link in self._context.ready_links:
                link.peer.notify(method, params)

    def _session(self, params: Json) -> Session:
        session = self._live(check.session_id(params))
        if session is None:
            raise errors.unknown_session()
        return session

    def _live(self, session_id: object) -> Session | None:
        return self._sessions.live.get(session_id) if isinstance(session_id, str) else None

    def _cancel_request(self, client: Client, request_id: object) -> None:
        if not is_id(request_id):
            return
        if not client.cancel_request(request_id):
            for session in list(self._sessions.live.values()):
                if session.cancel_request(client, request_id):
                    return

    # --- the agent as such ---------------------------------------------------------------------

    async def _initialize(self, request: ClientRequest, params: Json) -> Json:
        client = request.client
        if client.stage is not Stage.NEW:
            raise errors.refused("already initialized")
        check.version(params)
        client.stage = Stage.INITIALIZING
        try:
            client.abilities = ClientAbilities(params.get("clientCapabilities"))
            told = handshake.for_agent(params)
            self._context.command = replace(self._context.command, initialize=told)
            if self._settings.builtin:
                agent = handshake.BUILTIN
                self._tasks.start_soon(self._waiting.warm)
            else:
                agent = (await self._waiting.ready()).initialized
        except BaseException:
            client.stage = Stage.NEW
            raise
        self._context.capabilities = agent.get("agentCapabilities")
        self._context.agent_info = handshake.name_of(agent)
        client.stage = Stage.READY
        settings = self._settings
        own = {"delivery": str(settings.delivery), "onCancel": str(settings.on_cancel)}
        return handshake.for_client(agent, {"agent": settings.agent_name, **own})


def _nobody(told: Link) -> None:
    """Tell nobody that a process was told something."""


async def serve(
    settings: Settings, stdin: int, stdout: int, on_end: Callable[[], None] | None = None
) -> None:
    """Run a bridge for the client on these descriptors until it is gone; they are owned here.

    `on_end` is called when the end begins, which takes `waits.ENDED` at most but for agents that
    can't be killed: those are waited for.
    """
    event("bridge.started", agent=settings.agent_name, home=settings.home.name)
    with signals.Received():  # also while the tasks end, when nobody reads them any more
        async with anyio.create_task_group() as tasks:
            # A process that does not answer one of these is to be started all the same.
            standing = StandingRequests(min(settings.request_timeout, settings.start_timeout / 4))
            parent = AgentParent(settings.parent) if settings.parent and can_fork() else None
            if parent:
                tasks.start_soon(parent.run)
            files = settings.agent_files
            command = AgentCommand(settings.command, {}, standing, files, parent)
            context = SessionContext(settings, Journal(settings.home), tasks, command)
            await Bridge(context, on_end).serve(Reader(stdin), Writer(stdout))
            tasks.cancel_scope.cancel()
