"""The client's side: the method table, `initialize`, and the way to the right session.

Nothing here waits where messages are read: a handler puts a message where it belongs, in the
order of reading, or starts a task of its own for it (HAZARDS Q10, C4).
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from acp_bridge import errors, handshake
from acp_bridge import params as check
from acp_bridge import signals as sig
from acp_bridge.agents.link import AgentCommand
from acp_bridge.journal import Journal
from acp_bridge.lobby import Lobby
from acp_bridge.log import event
from acp_bridge.relay import ClientAbilities
from acp_bridge.session.host import ANSWERED
from acp_bridge.session.session import Session
from acp_bridge.sessions import Sessions
from acp_bridge.settings import Settings
from acp_bridge.wire.jsonrpc import Malformed, RpcError
from acp_bridge.wire.peer import Call, Peer
from acp_bridge.wire.stdio import Reader, Writer

Json = dict[str, Any]
#: requests that the bridge takes itself, beside those in `Bridge.slow`.
OWN = frozenset({"initialize", "session/prompt"})
#: a fork would be a second session in one process; it is not advertised.
REFUSED = frozenset({"session/fork"})
#: seconds for everything to end after the client is gone or a signal came (HAZARDS P2).
_END = 2.5
_FLUSH = 0.3
#: bytes of answers that wait for a client that asks and never reads; then it isn't read either.
#: Far above what makes the agents wait, so that a cancel still comes through.
_FLOOD = 64 * 1024 * 1024


class Bridge:
    """One client, its sessions, and the agents behind them. `serve` is its whole life."""

    def __init__(self, settings: Settings, stdin: int, stdout: int) -> None:
        """`stdin`, `stdout`: descriptors that speak ACP; owned from now on."""
        self.settings = settings
        self.command = AgentCommand(settings.command, None, {})
        self.abilities = ClientAbilities(None)
        self.credentials: Json | None = None
        self.tells_accepted = False
        self.journal = Journal(settings.home)
        self.tasks: TaskGroup
        self.writer = Writer(stdout, on_broken=self._end_soon)
        self.client = Peer(
            self, self.writer.write, answer_malformed=True, internal_error=errors.internal
        )
        self.lobby: Lobby
        self.sessions: Sessions
        self._reader = Reader(stdin)
        self._state = "new"
        self._requests: dict[object, anyio.CancelScope] = {}
        self._ended = anyio.Event()
        #: requests that are answered from a task of their own.
        self.slow: dict[str, Callable[[Call, Json], Awaitable[Any]]] = {
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": lambda call, params: self.sessions.new(call, params),
            "session/load": lambda call, params: self.sessions.load(call, params, replay=True),
            "session/resume": lambda call, params: self.sessions.load(call, params, replay=False),
            "session/list": lambda call, params: self.sessions.listing.page(call, params),
            "session/close": lambda call, params: self.sessions.close(call, params),
            "session/delete": lambda call, params: self.sessions.delete(call, params),
        }

    # --- life ----------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve the client until it is gone or a signal asks to end; bounded clean-up."""
        async with anyio.create_task_group() as self.tasks:
            self.tasks.start_soon(self.writer.run)
            self.tasks.start_soon(self._watch_signals)
            self.tasks.start_soon(self._read)
            try:
                await self._ended.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end()
                self.tasks.cancel_scope.cancel()

    async def _read(self) -> None:
        try:
            while data := await self._reader.read():
                self.client.feed(data)
                await self.writer.drain_below(_FLOOD)
            self.client.eof()
        except OSError as exc:
            event("client.unreadable", what=exc.strerror)
        event("client.gone")
        self._end_soon()

    async def _watch_signals(self) -> None:
        wanted = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        with anyio.open_signal_receiver(*wanted) as received:
            async for number in received:
                event("signal", number=signal.Signals(number).name)
                self._end_soon()

    def _end_soon(self) -> None:
        self._ended.set()

    async def _end(self) -> None:
        if self._state == "ready":
            with anyio.move_on_after(_END):
                await self.sessions.end(self.settings.close_grace)
        await self.writer.flush(_FLUSH)
        self._reader.close()
        self.writer.close()
        await self.journal.close()
        event("bridge.ended")

    # --- what the client sends -----------------------------------------------------------------

    def on_request(self, call: Call) -> None:
        """Called in the order of reading; raises RpcError for what can be refused at once."""
        params = call.params if call.params else {}
        if not isinstance(params, dict):
            raise errors.invalid("must be an object", "params")
        if call.method == "initialize":
            self._run(call, self._initialize, params)
        elif self._state != "ready":
            raise errors.refused("not initialized: send initialize first")
        elif slow := self.slow.get(call.method):
            self._run(call, slow, params)
        elif call.method == "session/prompt":
            self._prompt(call, params)
        elif call.method in REFUSED:
            raise errors.unknown_method(call.method)
        elif "sessionId" in params:
            self._session(params).errands.pass_on(call)
        elif call.method.startswith("session/"):
            raise errors.invalid("is missing", "sessionId")
        else:
            self._run(call, self._pass_on, params)

    def on_notification(self, method: str, params: Any) -> None:
        named = params if isinstance(params, dict) else {}
        if method == "$/cancel_request":
            self._cancel_request(named.get("requestId"))
            return
        if self._state != "ready":
            return
        session = self.sessions.live.get(_text(named.get("sessionId")))
        if method == "session/cancel":
            if session:
                session.feed(sig.Cancel())
        elif session:
            session.errands.pass_notification(method, named)
        elif "sessionId" not in named:
            for link in self.sessions.links():
                link.peer.notify(method, params)

    def on_malformed(self, line: Malformed) -> None:
        event("client.malformed", what=line.error.message)

    def on_batch_end(self) -> None:
        """Messages of the client need no batch."""

    def _session(self, params: Json) -> Session:
        session = self.sessions.live.get(_text(params.get("sessionId")))
        if not isinstance(params.get("sessionId"), str):
            raise errors.invalid("must be a string", "sessionId")
        if session is None:
            raise errors.unknown_session()
        return session

    def _prompt(self, call: Call, params: Json) -> None:
        session = self._session(params)
        check.prompt(params)
        session.on_prompt(call, params)

    def _cancel_request(self, request_id: object) -> None:
        if not isinstance(request_id, int | str | float) or isinstance(request_id, bool):
            return  # no request has such an id
        if scope := self._requests.get(request_id):
            scope.cancel()
            return
        if self._state != "ready":
            return
        for session in list(self.sessions.live.values()):
            if session.on_cancel_request(request_id):
                return

    def _run(self, call: Call, work: Callable[[Call, Json], Awaitable[Any]], params: Json) -> None:
        """Answer a request from a task of its own; the client may cancel it."""
        scope = self._requests[call.id] = anyio.CancelScope()

        async def answer() -> None:
            try:
                with scope:
                    try:
                        result = await work(call, params)
                    except RpcError as exc:
                        self.client.fail(call.id, exc)
                    except Exception as exc:
                        self.client.fail(call.id, errors.internal(exc))
                    else:
                        if result is not ANSWERED:
                            self.client.answer(call.id, result)
                if scope.cancelled_caught:
                    self.client.fail(call.id, errors.cancelled())
            finally:
                self._requests.pop(call.id, None)

        self.tasks.start_soon(answer)

    # --- the agent as such ---------------------------------------------------------------------

    async def _initialize(self, call: Call, params: Json) -> Json:
        if self._state != "new":
            raise errors.refused("already initialized")
        check.version(params)
        self._state = "initializing"
        try:
            self.abilities = ClientAbilities(params.get("clientCapabilities"))
            self.tells_accepted = self.abilities.has("_meta", "acp_bridge", "accepted")
            told = handshake.for_agent(params)
            self.command = AgentCommand(self.settings.command, None, told)
            self.lobby = Lobby(self, self.settings.start_timeout)
            self.sessions = Sessions(self, self.lobby)
            if self.settings.builtin:
                agent = handshake.BUILTIN
                self.tasks.start_soon(self.lobby.warm)
            else:
                agent = (await self.lobby.wait_for()).initialized
        except BaseException:
            self._state = "new"
            raise
        self._state = "ready"
        own = {"delivery": str(self.settings.delivery), "onCancel": str(self.settings.on_cancel)}
        return handshake.for_client(agent, self.abilities, own)

    async def _authenticate(self, call: Call, params: Json) -> Any:
        """To the process that waits for it; kept for later ones if it carries more than an id."""
        link = self.sessions.wants_auth() or await self.lobby.wait_for()
        result = await link.ask_for(call, "authenticate", params)
        link.authenticated = True
        self.credentials = params if set(params) - {"methodId"} else None
        return result

    async def _logout(self, call: Call, params: Json) -> Any:
        self.credentials = None
        links = self.sessions.links() or [await self.lobby.wait_for()]
        for other in links[1:]:
            other.peer.request("logout", params, lambda answer: None)
        return await links[0].ask_for(call, "logout", params)

    async def _pass_on(self, call: Call, params: Json) -> Any:
        """A method that we don't know and that names no session: the agent may know it."""
        links = self.sessions.links() or [await self.lobby.wait_for()]
        return await links[0].ask_for(call, call.method, call.params)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


async def serve(settings: Settings, stdin: int, stdout: int) -> None:
    """Run a bridge on these descriptors until its client is gone."""
    event("bridge.started", agent=settings.agent_name, home=Path(settings.home).name)
    await Bridge(settings, stdin, stdout).serve()
