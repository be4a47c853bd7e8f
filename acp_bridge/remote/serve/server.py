"""Accepts remote connections, and hands over those that log in with a token.

- Before its login a connection has some seconds, some kilobytes and one of few places. If none is
  free, the address that has the most of them loses its oldest, so that a client that says nothing
  keeps nobody out, and one that connects again and again only those at its own address.
- The token is checked before a WebSocket is opened, and then, on the same machine, the process.
- Every connection belongs to a token, and ends with it.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from typing import Final, Protocol, TypeAlias

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketListener, SocketStream
from anyio.streams.tls import TLSStream
from websockets.frames import CloseCode
from websockets.server import ServerProtocol

from acp_bridge.core import errors
from acp_bridge.core.clients.rights import May
from acp_bridge.core.clients.socket_share import Sharer, SocketShare
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.wire.socket_stream import accept
from acp_bridge.remote.serve import local
from acp_bridge.remote.serve.asked import Asked, read
from acp_bridge.remote.serve.door import NO_WEBSOCKET, PATH, Door, Refusal, Wrong, of_one
from acp_bridge.remote.serve.local import Address, Process, plain
from acp_bridge.remote.serve.senders import Senders
from acp_bridge.remote.serve.tokens import Token
from acp_bridge.remote.serve.websocket import LONGEST, WebSocket, opened, server_protocol
from acp_bridge.sharing.listening import peers

#: the most connections before their login, after it, and after it with one token.
WAITING: Final = 20
MOST: Final = 64
MOST_OF_TOKEN: Final = 16
#: seconds up to the login, and bytes of a request's header.
PATIENCE: Final = 10.0
HEADER: Final = 8192
#: the most bytes of a message of a page, and of a client that may not prompt.
MOST_WITHOUT_PROMPTS: Final = 1 << 20
#: the most bytes of messages whose end has not come, of one login's connections and of all.
MOST_UNFINISHED: Final = 2 * LONGEST
MOST_UNFINISHED_OF_ALL: Final = 40 << 20
#: seconds after which accepting is tried again when the system has no descriptor left.
_NO_ROOM: Final = 0.5
#: seconds in which a client that is refused can read why.
_LAST_WORDS: Final = 0.5
#: refusals that are logged in a minute: else anybody who reaches the port could fill the log.
_LOGGED: Final = 60
#: headers of every HTTP answer that does not set them itself.
_OF_EVERY_ANSWER: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

#: serves a client until it is gone; owns the WebSocket.
Join: TypeAlias = Callable[[WebSocket, Token], Awaitable[None]]


class Visit(Protocol):
    """A page that has logged in."""

    @property
    def name(self) -> str:
        """The name of the page's login."""

    async def serve(self) -> bool:
        """Serve the page until it is gone; returns True if its user has logged out."""


#: waits for the login of a page, and returns its visit; None if the login failed.
ComeIn: TypeAlias = Callable[[WebSocket], Awaitable[Visit | None]]


class NotIn(Exception):
    """A connection is refused; it was answered, if that was possible."""


@dataclass(eq=False, slots=True)
class _Connection:
    """A connection that the door has let in: with a token, or, if that is None, of a page.

    A page has yet to log in, over its WebSocket.
    """

    address: str
    token: Token | None
    raw: SocketStream
    #: it comes from this machine.
    here: bool
    #: the address against which a wrong token counts; None if it came from this machine itself.
    told: str | None
    #: the name of its token or of its page's login; "" before the login.
    name: str = field(init=False)
    #: the process on this machine that has connected, where it was looked at and may connect.
    process: Process | None = None
    checked: bool = False
    socket: WebSocket | None = None

    def __post_init__(self) -> None:
        self.name = self.token.name if self.token else ""

    @property
    def unfinished(self) -> int:
        """The number of bytes of a message that has come in part."""
        return self.socket.unfinished if self.socket else 0

    @property
    def longest(self) -> int:
        """The most bytes that a message of it may have; more for a client that may prompt."""
        if not self.name:
            return HEADER
        prompts = self.token is not None and self.token.may is May.ALL
        return LONGEST if prompts else MOST_WITHOUT_PROMPTS


@dataclass(frozen=True, slots=True)
class Proof:
    """The further checks of a connection. `local`: one from this machine may be no agent's.

    `proxied`: connections from this machine are a proxy's, which may run as another user.
    """

    local: bool
    proxied: bool


class Server:
    """Accepts remote connections, and knows those that are open."""

    def __init__(
        self,
        door: Door,
        join: Join,
        proof: Proof,
        tls: ssl.SSLContext | None,
        come_in: ComeIn | None = None,
        share: SocketShare | None = None,
    ) -> None:
        """`come_in` logs in a page; None: there are none. Nothing is accepted before `serve`.

        `share`: the time that connections take; by default this server has one for itself.
        """
        self._come_in = come_in
        self._share = share or SocketShare()
        self._door, self._join, self._proof, self._tls = door, join, proof, tls
        #: the scopes of connections before their login, the oldest first, each with its address.
        self._waiting: dict[anyio.CancelScope, str] = {}
        self._connections: list[_Connection] = []
        #: the connections that have been refused, until they have read why, the oldest first.
        self._leaving: dict[ByteStream, anyio.CancelScope] = {}
        self._senders = Senders(door.looks, proxied=proof.proxied)
        self._looking = anyio.CapacityLimiter(1)
        #: the client addresses that a process of the user's has vouched for, each with its expiry.
        self._vouched: dict[Address | None, float] = {}
        #: the present minute, and how many refusals were logged in it.
        self._minute, self._logged = 0.0, 0

    def count(self, name: str) -> int:
        """Return the number of connections of the token or login of this name."""
        return sum(each.name == name and each.checked for each in self._connections)

    def end(self, name: str) -> int:
        """Close the connections of a revoked token or login; returns how many there were."""
        ended = [each for each in self._connections if each.name == name]
        for each in ended:
            self._connections.remove(each)
            if each.socket:
                each.socket.close(CloseCode.POLICY_VIOLATION, "the token was revoked")
        return len(ended)

    def vouch(self, peer: Address) -> None:
        """Note for `PATIENCE` seconds that a connection from `peer` on this machine is allowed."""
        now = anyio.current_time()
        self._vouched = {each: end for each, end in self._vouched.items() if end > now}
        if len(self._vouched) < MOST:
            self._vouched[plain(peer[0]).compressed, peer[1]] = now + PATIENCE

    async def serve(self, listener: SocketListener) -> None:
        """Accept connections on a listener until cancelled, and serve each in a task."""
        raw = listener.extra(SocketAttribute.raw_socket)
        async with listener, anyio.create_task_group() as tasks:
            while True:
                try:
                    stream = await accept(raw)
                except OSError as exc:
                    event("remote.not_accepted", what=exc.strerror)
                    await anyio.sleep(_NO_ROOM)
                    continue
                tasks.start_soon(self._take, stream)

    async def _take(self, stream: SocketStream) -> None:
        peer = _peer(stream)
        try:
            found = await self._greet(stream)
            if found is not None:
                await self._serve(*found)
        except Exception as exc:  # one connection is not to end the others
            errors.internal(exc, "a connection from elsewhere has failed")
        finally:
            self._vouched.pop(peer, None)  # the next with this address may be somebody else
            await anyio.aclose_forcefully(stream)

    # --- up to the login

    async def _greet(
        self, raw: SocketStream
    ) -> tuple[ByteStream, ServerProtocol, _Connection] | None:
        """Answer the request of a new connection, by a WebSocket or a refusal.

        Returns its stream, protocol and record, ready to be served; None if it is refused.
        """
        connection: _Connection | None = None
        try:
            with self._place(peer[0] if (peer := _peer(raw)) else "") as give_back:
                stream, asked = await self._asked(raw, give_back)
                connection = await self._let_in(raw, asked)
                await stream.send(b"".join(asked.protocol.data_to_send()))
                if connection is not None:
                    return stream, asked.protocol, connection
                await self._last_words(stream)
        except (NotIn, anyio.EndOfStream, *_BROKEN):
            pass
        self._forget(connection)
        return None

    @contextmanager
    def _place(self, address: str) -> Iterator[Callable[[], object]]:
        """Hold one of the `WAITING` places for connections that have to say something.

        The block is cancelled after `PATIENCE` seconds. If no place is free, the address that has
        the most of them loses its oldest. The function that is yielded gives the place back early:
        while the server is at work for a connection, no other one puts it out.
        """
        if len(self._waiting) >= WAITING:
            of_each = Counter(self._waiting.values())
            oldest = max(self._waiting, key=lambda each: of_each[self._waiting[each]])
            del self._waiting[oldest]
            oldest.cancel()
        with anyio.move_on_after(PATIENCE) as scope:
            self._waiting[scope] = of_one(address)
            try:
                yield partial(self._waiting.pop, scope, None)
            finally:
                self._waiting.pop(scope, None)

    async def _asked(
        self, raw: SocketStream, came: Callable[[], object]
    ) -> tuple[ByteStream, Asked]:
        """Read the HTTP request of a connection, after the handshake of TLS, if that is spoken.

        Returns the stream and the request. `came` is called once the request is there. A bad
        request is answered, and raises NotIn.
        """
        stream: ByteStream = raw
        if self._tls:
            stream = await TLSStream.wrap(
                raw, server_side=True, ssl_context=self._tls, standard_compatible=False
            )
        protocol, head = server_protocol(), b""
        while len(head) < HEADER and not protocol.events and protocol.handshake_exc is None:
            data = await stream.receive(HEADER - len(head))
            head += data
            protocol.receive_data(data)
        came()
        if (asked := read(protocol, head)) is not None:
            return stream, asked
        if not (answer := b"".join(protocol.data_to_send())):  # the library has given none
            too_long = len(head) == HEADER
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if too_long else _BAD
            protocol = server_protocol()
            protocol.send_response(protocol.reject(status, "this is no request for a WebSocket\n"))
            answer = b"".join(protocol.data_to_send())
        await stream.send(answer)
        await self._last_words(stream)
        raise NotIn

    async def _let_in(self, raw: SocketStream, asked: Asked) -> _Connection | None:
        """Make the protocol answer a request, by a WebSocket or a refusal; sends nothing.

        Returns the connection's record; None if it is refused.
        """
        protocol, request = asked.protocol, asked.request
        told = self._senders.told(request)
        here = self._senders.is_here(raw)
        address = told or _address(raw)
        now = anyio.current_time()
        who = self._door.answer(request.path, request.headers, None if here else address, now)
        if isinstance(who, Wrong):
            process = await self._senders.process(raw) if who.counts else None
            key = self._senders.key(process, told)
            found: _Connection | Refusal = self._door.wrong(who, key, now)
        elif isinstance(who, Refusal):
            found = who
        else:
            token = who if isinstance(who, Token) else None
            counts_as = told if here else address
            found = await self._entered(_Connection(address, token, raw, here, counts_as))
        if isinstance(found, _Connection) and request.path == PATH and not asked.upgrades:
            self._forget(found)  # only a client that may connect learns how
            found = NO_WEBSOCKET
        if not isinstance(found, Refusal):
            response = protocol.accept(request)
            response.headers["Acp-Connection-Id"] = token_hex(16)
            protocol.send_response(response)
            if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
                return found
            self._forget(found)
            return None
        if found.status != HTTPStatus.OK:
            self._log(address, found)
        _refuse(protocol, found)
        return None

    def _log(self, address: str, refusal: Refusal) -> None:
        minute = anyio.current_time() // 60
        self._minute, self._logged = minute, self._logged + 1 if minute == self._minute else 1
        if self._logged <= _LOGGED:
            event("remote.refused", address=address, status=int(refusal.status), what=refusal.text)

    async def _entered(self, connection: _Connection) -> _Connection | Refusal:
        """Return a connection whose process may connect; else the refusal.

        It is among the connections while its process is checked, so that the revoking of its token
        ends it, too.
        """
        if self._is_full(connection.name) or self._checked_now() >= WAITING:
            return _NO_PLACE
        self._connections.append(connection)
        refusal: Refusal | None = _REVOKED
        try:
            refusal = await self._look_at(connection)
            if refusal is None and self._is_full(connection.name):
                refusal = _NO_PLACE
        finally:
            if refusal is not None:
                self._forget(connection)
        if refusal is None and connection not in self._connections:
            return _REVOKED
        connection.checked = True
        return refusal or connection

    async def _last_words(self, stream: ByteStream) -> None:
        """Wait up to `_LAST_WORDS` seconds for the other end to close, lest it lose the answer.

        If `WAITING` connections are waited for, the oldest is closed.
        """
        if len(self._leaving) >= WAITING:
            self._leaving.pop(next(iter(self._leaving))).cancel()
        with anyio.move_on_after(_LAST_WORDS) as scope:
            self._leaving[stream] = scope
            try:
                if isinstance(stream, SocketStream):
                    await stream.send_eof()
                while True:
                    await stream.receive()
            finally:
                self._leaving.pop(stream, None)

    async def _look_at(self, connection: _Connection) -> Refusal | None:
        """Return the refusal of the process at the other end; None if it may connect."""
        raw = connection.raw
        if self._proof.local and not self._is_vouched(raw):
            try:
                with anyio.fail_after(waits.PEER):
                    look = partial(_look, raw, proxied=self._proof.proxied)
                    connection.process = await in_thread(
                        look, abandon_on_cancel=True, limiter=self._looking
                    )
            except (TimeoutError, NoThread):
                return Refusal(HTTPStatus.FORBIDDEN, peers.UNSEEN, {})
            except peers.Refused as refused:
                return Refusal(HTTPStatus.FORBIDDEN, str(refused), {})
        elif not self._proof.local and self._counts_here(connection):
            connection.process = await self._senders.process(raw)
        now = anyio.current_time()
        refusals = [
            self._door.too_many(key, now)
            for key in self._senders.blocked(connection.process, connection.told)
        ]
        return next(filter(None, refusals), None)

    def _counts_here(self, connection: _Connection) -> bool:
        """Return True if wrong tokens of a connection's process matter, earlier ones or its own."""
        return connection.here and (connection.token is None or self._door.has_failures_here)

    def _checked_now(self) -> int:
        return sum(not each.checked for each in self._connections)

    def _is_full(self, name: str) -> bool:
        of_token = self.count(name) if name else 0
        return of_token >= MOST_OF_TOKEN or self._open() >= MOST

    def _open(self) -> int:
        return sum(each.checked for each in self._connections)

    def _is_vouched(self, raw: SocketStream) -> bool:
        end = self._vouched.pop(_peer(raw), None)
        return end is not None and end > anyio.current_time()

    # --- behind it

    async def _serve(
        self, stream: ByteStream, protocol: ServerProtocol, connection: _Connection
    ) -> None:
        """Serve an accepted connection, a client's or a page's, until it is gone."""
        try:
            async with opened(stream, protocol) as socket:
                connection.socket = socket
                socket.step = partial(self._step, self._share.sharer(connection.name))
                socket.on_bytes = partial(self._bound, connection)
                if connection not in self._connections:  # revoked in this moment
                    return
                if connection.token is None:
                    await self._serve_page(socket, connection)
                else:
                    event("remote.client", token=connection.name)
                    await self._join(socket, connection.token)
            event("remote.client_gone", token=connection.name, what=socket.failure)
        finally:
            self._forget(connection)

    async def _serve_page(self, socket: WebSocket, connection: _Connection) -> None:
        """Serve a page once it has logged in, for which it has `PATIENCE` seconds."""
        assert self._come_in is not None, "the door lets no page in"
        visit: Visit | None = None
        seen = connection.process
        with self._place(seen.key if seen and seen.pid else connection.address):
            visit = await self._come_in(socket)
        if visit is None:
            self._count_failed(socket, connection)
        elif self._is_full(visit.name):
            socket.close(CloseCode.TRY_AGAIN_LATER, _FULL)
        else:
            connection.name = visit.name
            socket.step = partial(self._step, self._share.sharer(visit.name))
            event("remote.page", token=visit.name)
            if await visit.serve():
                self.end(visit.name)

    def _count_failed(self, socket: WebSocket, connection: _Connection) -> None:
        """Count the wrong login or code of a page; one that has said nothing has sent none."""
        if not socket.has_said:
            return
        key = connection.told
        if connection.here:
            key = self._senders.key(connection.process, connection.told)
        if key is not None:
            self._door.failed(key, anyio.current_time())

    async def _step(self, sharer: Sharer, work: Callable[[], None]) -> None:
        await self._share.step(work, sharer)

    def _bound(self, connection: _Connection) -> None:
        """Close a connection whose unfinished message is longer than it may be.

        If the unfinished messages of a login, or of all, are together too long, close the longest
        one of the login that has sent most of them.
        """
        socket = connection.socket
        if socket and socket.unfinished > connection.longest:
            socket.close(CloseCode.MESSAGE_TOO_BIG, "what this login may do is shorter than that")
        of_logins = Counter[str]()
        for each in self._connections:
            of_logins[each.name] += each.unfinished
        name = max(of_logins, key=lambda each: of_logins[each], default="")
        if of_logins[name] > MOST_UNFINISHED or of_logins.total() > MOST_UNFINISHED_OF_ALL:
            mine = [each for each in self._connections if each.name == name]
            longest = max(mine, key=lambda each: each.unfinished).socket
            if longest:
                longest.close(CloseCode.MESSAGE_TOO_BIG, "too much was sent that has no end")

    def _forget(self, connection: _Connection | None) -> None:
        if connection in self._connections:
            self._connections.remove(connection)


_FULL: Final = f"there are {MOST_OF_TOKEN} connections with this token, or {MOST} in all"
_NO_PLACE: Final = Refusal(HTTPStatus.TOO_MANY_REQUESTS, _FULL, {})
_REVOKED: Final = Refusal(HTTPStatus.UNAUTHORIZED, "the token was revoked", {})
_BAD: Final = HTTPStatus.BAD_REQUEST
#: what a stream raises when the other end is gone, or speaks no TLS.
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ssl.SSLError)


def _refuse(protocol: ServerProtocol, refusal: Refusal) -> None:
    """Make the protocol answer a request by a refusal."""
    response = protocol.reject(refusal.status, f"{refusal.text}\n")
    for name, value in {**_OF_EVERY_ANSWER, **refusal.headers}.items():
        response.headers.pop(name, None)
        response.headers[name] = value
    protocol.send_response(response)


def _address(raw: SocketStream) -> str:
    """Return the address at the other end of a connection."""
    remote = raw.extra(SocketAttribute.remote_address)
    return str(remote[0]) if isinstance(remote, tuple) else "a local socket"


def _peer(raw: SocketStream) -> Address | None:
    """Return the client's address of a TCP connection; None for a Unix socket, or if it is cut."""
    try:
        remote = raw.extra(SocketAttribute.remote_address)
    except OSError:
        return None
    return (plain(remote[0]).compressed, remote[1]) if isinstance(remote, tuple) else None


def _look(raw: SocketStream, *, proxied: bool) -> Process | None:
    """Raise Refused for a connection of an agent on this machine; it belongs in a thread.

    Returns the process; None for one of a Unix socket, or of another machine.
    """
    remote, own = (
        raw.extra(SocketAttribute.remote_address),
        raw.extra(SocketAttribute.local_address),
    )
    if isinstance(remote, tuple) and isinstance(own, tuple):
        return local.check((str(remote[0]), remote[1]), (str(own[0]), own[1]), proxied=proxied)
    try:
        peers.check(raw.extra(SocketAttribute.raw_socket))
    except peers.AnotherUser:
        if not proxied:
            raise
    return None
