"""One client's end of the wire: its peer, its abilities, and its requests in flight.

- A request is known by the client and its id there, never by the id alone.
- Nothing here waits where messages are read: what takes time runs in a task of its own, which the
  client may cancel (invariants Q10, C4).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from acp_bridge.core import errors, protocol
from acp_bridge.core.clients import rights
from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.clients.rights import Right, Rights, Role
from acp_bridge.core.clients.socket_share import SocketShare
from acp_bridge.core.clients.waiting_requests import WaitingRequests
from acp_bridge.core.ends import Ends
from acp_bridge.core.protocol import LOGIN, Json, own_meta
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.wire.held import Held, Laned
from acp_bridge.core.wire.jsonrpc import Answer, Err, Malformed, Message, Ok, RequestId, RpcError
from acp_bridge.core.wire.peer import Call, Peer
from acp_bridge.core.wire.streams import Allowance, Incoming, Outgoing, next_bytes

#: bytes of answers that wait for a client that asks and never reads; then it isn't read either.
#: The limit is far above what makes the agents wait, so that a cancel still comes through.
_FLOOD = 64 * 1024 * 1024
#: the same for a client on a socket, whose cancel is the concern of nobody else.
_SOCKET_FLOOD = 8 * 1024 * 1024
#: the same for a remote client, which may be many connections of somebody who has found a token,
#: and the messages that are read beyond that: a Stop must come through over a slow line.
_REMOTE_FLOOD: Final = 1 << 16
#: how many lines of a client that are no messages are logged: more would fill the disk.
_TOLD_OF: Final = 20
#: characters of a login's name.
_NAME: Final = 128
#: returned by work that has answered its request itself.
ANSWERED: Final = object()


class Stage(Enum):
    """How far a client is with `initialize`."""

    NEW = auto()
    INITIALIZING = auto()
    READY = auto()


class ClientRequest(Struct, frozen=True, eq=False):
    """A request of one client. It is answered once; a second answer is dropped by the peer."""

    client: Client
    call: Call

    @property
    def method(self) -> str:
        """The method that is asked for."""
        return self.call.method

    @property
    def params(self) -> Any:
        """The raw parameters: any JSON value, or UNSET."""
        return self.call.params

    def is_of(self, client: Client, request_id: object) -> bool:
        """Return True when the request is this client's, under this id."""
        return self.client is client and self.call.id == request_id

    def hand_over(self) -> None:
        """Give the request to the client's handler; raises the handler's errors."""
        self.client.handler.on_client_request(self)

    def answer(self, result: Any) -> None:
        """Answer the request with a result."""
        self.client.peer.answer(self.call.id, result)

    def fail(self, error: RpcError) -> None:
        """Answer the request with an error."""
        told = errors.at_this_machine(error) if self.client.rights else error
        self.client.peer.fail(self.call.id, told)

    def respond(self, answer: Answer) -> None:
        """Answer the request with a result or an error."""
        match answer:
            case Ok(result):
                prompted = self.method == protocol.SESSION_PROMPT
                self.answer(self.client.abilities.fit_end(result) if prompted else result)
            case Err(error):
                self.fail(error)


Work: TypeAlias = Callable[[ClientRequest, Json], Awaitable[Any]]
_NO_ENDS: Final = Ends()


class ClientHandler(Protocol):
    """The bridge, as a client's end of the wire sees it. Called in the order of reading."""

    def on_client_request(self, request: ClientRequest) -> None:
        """Answer the request now or later; raising RpcError is an answer."""

    def on_client_notification(self, client: Client, method: str, params: Any) -> None:
        """Handle a notification, which has no answer."""


class _Running(Struct, frozen=True, eq=False):
    """A request that is answered from a task of its own."""

    method: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)


class Client:
    """A client, from its first byte to its last."""

    def __init__(
        self,
        handler: ClientHandler,
        incoming: Incoming,
        outgoing: Outgoing,
        share: SocketShare | None = None,
        rights: Rights | None = None,
        ends: Ends = _NO_ENDS,
    ) -> None:
        """Own both streams from now on; `end` closes them.

        `share`: None for the client on stdin, which has started the bridge; others have joined it
        on a socket. `rights`: those of a remote client, None for one of this machine.
        """
        self._share, self._ends = share, ends
        self.on_socket = share is not None
        self.rights = rights
        #: within what its name tells who it is: the token of a remote client, None for all on the
        #: unix socket, the client itself for the one on stdin.
        self._login: object = (rights.login if rights else None) if self.on_socket else self
        #: the bridge has ended the connection (`let_go`); the client has left (`leave`).
        self.let_go_of = self.gone = False
        self.stage = Stage.NEW
        #: requests that came after an `initialize` which is not answered yet.
        self.early = WaitingRequests()
        self.abilities = ClientAbilities()
        self.outgoing = outgoing
        #: the stream that holds back what is sent, and the one that passes on to it; None until
        #: they are needed.
        self._held: Held | None = None
        self._laned: Laned | None = None
        self.peer = Peer(self, self._send, towards_client=True, internal_error=errors.internal)
        self.peer.translate = self._read_version
        self.handler = handler
        self._incoming = incoming
        self._running: dict[RequestId, _Running] = {}
        self._served, self._malformed = anyio.CancelScope(), 0

    def hold(self, session_id: str) -> Callable[[], None]:
        """Hold back what tells the client of a session; returns the function that ends that.

        All else is sent at once: what is of other sessions or of none, and that a request was
        refused before anything was done.
        """
        if self._held is None:
            self._laned = self._held = self.outgoing = Held(self.outgoing)
        if self.peer.send_about is None and not self.let_go_of:
            self.peer.send_about = self._send_about
        return self._held.hold(session_id)

    def write(self, lines: bytes, session_id: str) -> None:
        """Send whole lines that tell of a session."""
        if self._laned:
            self._laned.write(lines, session_id)
        else:
            self.outgoing.write(lines)

    def _send_about(self, line: bytes, about: object) -> None:
        assert self._laned
        assert self._held
        name = _session_in(about)
        names = () if name is None else (name, protocol.parted(name)[0])  # that of a subagent, too
        self._laned.write(line, self._held.held_lane(*names))

    @property
    def identity(self) -> object:
        """A key of who the client is: equal on all connections with the same name and login.

        Without a name each connection is a client of its own.
        """
        name = self.abilities.name
        return self if name is None else (self._login, name)

    @property
    def observes(self) -> bool:
        """True when the client is asked nothing, and prompts nothing."""
        return protocol.OBSERVES in self.abilities.own

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that decide what the client may do."""
        came = Role.JOINED if self.on_socket else Role.FIRST
        role = Role(self.rights.may) if self.rights else came
        return (role, Role.OBSERVER) if self.observes else (role,)

    def may(self, right: Right) -> bool:
        """Return True if the client has this right."""
        return rights.have(self.roles, right)

    @property
    def login(self) -> str:
        """The name of the login of a remote client, also of one that another bridge passes on.

        Empty for others.
        """
        told = self.rights.name if self.rights else own_meta(self.abilities.declared).get(LOGIN)
        return told[:_NAME] if isinstance(told, str) else ""

    @property
    def sets_up(self) -> bool:
        """True when a load of the client may start an agent, and sets the roots and MCP servers."""
        return self.rights is None or self.may(Right.OPEN)

    @property
    def own_turns_only(self) -> bool:
        """True when the client is asked only about turns of its own prompts."""
        return protocol.OWN_TURNS_ONLY in self.abilities.own

    async def serve(self, greeting: float | None = None) -> None:
        """Serve the client until it sends or takes nothing more, or `let_go` or `cut` was called.

        `greeting`: seconds within which it has to send `initialize`, or it is let go.
        """
        with self._served:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, tasks.cancel_scope)
                if greeting is not None:
                    tasks.start_soon(self._expect_greeting, greeting)
                await self._read()
                tasks.cancel_scope.cancel()
        event("client.gone")

    def let_go(self, reason: str) -> None:
        """End the connection; `reason` is the last message to the client."""
        if not self.let_go_of:
            self.let_go_of = True
            event("client.let_go", what=reason)
            self.peer.notify(protocol.LET_GO, {"reason": reason})
            self.peer.send_through(_drop)
            self._served.cancel()

    def cut(self) -> None:
        """End `serve` as if the client were gone, whatever its streams say."""
        self._served.cancel()

    def _send(self, line: bytes) -> None:
        self.outgoing.write(line)

    async def _write(self, scope: anyio.CancelScope) -> None:
        await self.outgoing.run()
        scope.cancel()

    async def _expect_greeting(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        if self.stage is Stage.NEW:
            self.let_go(f"no initialize came within {seconds:g} s")

    async def _read(self) -> None:
        try:
            if self._share:
                await self._read_shared(self._share)
            else:
                while data := await self._next_bytes():
                    self.peer.feed(data)
                    await self.outgoing.drain_below(_FLOOD)
                self.peer.eof()
        except OSError as exc:
            event("client.unreadable", what=exc.strerror)

    async def _next_bytes(self) -> bytes:
        peer, bound = self.peer, waits.REST_OF_MESSAGE
        return await next_bytes(self._incoming, peer.decoder, peer.feed, bound)

    async def _read_shared(self, share: SocketShare) -> None:
        sharer = share.sharer(self.rights.name if self.rights else None)
        allowance = Allowance(self.outgoing, _REMOTE_FLOOD if self.rights else _SOCKET_FLOOD)

        def take(lines: bytes) -> None:
            allowance.count(lines.count(b"\n"))
            self.peer.feed(lines)

        with share.counted(self.peer, self.let_go):
            while data := await self._next_bytes():
                await share.feed(take, data, sharer, allowance.room)
                share.bound()
            self.peer.eof()

    async def end(self, seconds: float) -> None:
        """Write the answers that wait, for at most `seconds`, then close both streams."""
        await self.outgoing.flush(seconds)
        self._incoming.close()
        self.outgoing.close()

    def leave(self, methods: frozenset[str]) -> None:
        """Note that the client neither reads answers nor gives any.

        Its running requests of these methods are cancelled; others go on.
        """
        self.gone = True
        self.early.go_on(errors.cancelled())
        for running in self._running.values():
            if running.method in methods:
                running.scope.cancel()
        self.peer.close(errors.agent_trouble("the client has left"))

    # --- requests in flight --------------------------------------------------------------------

    def run(self, tasks: TaskGroup, request: ClientRequest, work: Work, params: Json) -> None:
        """Answer a request from a task of its own, which `$/cancel_request` ends.

        Raises RpcError if the client's login has too many requests at work.
        """
        login = self.rights.login if self.rights else None
        if self._share and login is not None:
            self._share.begin(login)
        request_id = request.call.id
        running = self._running[request_id] = _Running(request.method)

        async def answer() -> None:
            try:
                with running.scope as scope:
                    await _answer(request, work, params)
                if scope.cancelled_caught:
                    request.fail(errors.cancelled())
            finally:
                self._running.pop(request_id, None)
                running.ended.set()
                if self._share and login is not None:
                    self._share.end(login)

        tasks.start_soon(answer)

    def cancel_request(self, request_id: RequestId) -> bool:
        """Cancel the request of this id, if it runs or waits; returns False if none does."""
        if running := self._running.get(request_id):
            running.scope.cancel()
        return running is not None or self.early.cancel_request(self, request_id)

    async def give_up(self, methods: frozenset[str]) -> None:
        """Cancel the running requests of these methods, and wait until they have ended.

        Requests that were read and not begun are answered as cancelled, too.
        """
        self.early.go_on(errors.cancelled())
        for running in self._running.values():
            if running.method in methods:
                running.scope.cancel()
        await self.finish(methods)

    async def finish(self, methods: frozenset[str]) -> None:
        """Wait until the requests of these methods that run now have ended."""
        for running in [each for each in self._running.values() if each.method in methods]:
            await running.ended.wait()

    # --- the version of the protocol -----------------------------------------------------------

    def _read_version(self, message: Message) -> Iterable[Message]:
        """Return `message` for the peer; from an `initialize` of version 2 on, its translation."""
        if message.get("method") != protocol.INITIALIZE:
            return (message,)
        self.peer.translate = None
        if self._ends.client is None or not protocol.speaks_v2(message.get("params")):
            return (message,)
        self._held = Held(self.outgoing)  # it holds back what was translated
        self._laned = self.outgoing = translated = self._ends.client(self._held)
        self.peer.translate = translated.reader()
        return self.peer.translate(message)

    # --- what the peer hands over --------------------------------------------------------------

    def on_request(self, call: Call) -> None:
        ClientRequest(self, call).hand_over()

    def on_notification(self, method: str, params: Any) -> None:
        self.handler.on_client_notification(self, method, params)

    def on_malformed(self, line: Malformed) -> None:
        self._malformed += 1
        if self._malformed <= _TOLD_OF:
            event("client.malformed", what=line.error.message)

    def on_batch_end(self) -> None:
        """Do nothing: messages of a client need no batch."""


def _session_in(about: object) -> str | None:
    """Return the id of the session that a message tells of; None if it tells of none.

    `about`: the parameters of a message, or of a request and the result that answers it. A result
    that names a session tells of that one: it was made or opened.
    """
    for params in reversed(about) if isinstance(about, tuple) else (about,):
        if isinstance(params, dict) and isinstance(named := params.get("sessionId"), str):
            return named
    return None


def _drop(line: bytes) -> None:
    """Drop a line for a client that was let go."""


async def _answer(request: ClientRequest, work: Work, params: Json) -> None:
    try:
        result = await work(request, params)
    except RpcError as exc:
        request.fail(exc)
    except Exception as exc:
        request.fail(errors.internal(exc))
    else:
        if result is not ANSWERED:
            request.answer(result)
