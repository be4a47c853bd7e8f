"""Takes connections from elsewhere, and hands over those that come in with a token.

- Before its login a connection has some seconds, some kilobytes and one of few places. To a new one
  gives way who has waited longest at the address that has most of them, so that who says nothing
  keeps nobody out, and who comes again and again only those at the same address.
- The token is looked at before a WebSocket is opened, and then, on the same machine, the process.
- Every connection belongs to a token, and ends with it.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from secrets import token_hex
from typing import Final, Protocol, TypeAlias

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketListener, SocketStream
from anyio.streams.tls import TLSStream
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from acp_bridge import errors
from acp_bridge.clients.rights import May
from acp_bridge.clients.socket_share import MOST_UNFINISHED
from acp_bridge.listening import peers
from acp_bridge.remote import local
from acp_bridge.remote.door import Door, Refusal, Stranger, of_one
from acp_bridge.remote.local import Address, plain
from acp_bridge.remote.tokens import Token
from acp_bridge.remote.websocket import WebSocket, opened, server_protocol
from acp_bridge.runtime import waits
from acp_bridge.runtime.log import event
from acp_bridge.runtime.threads import NoThread, in_thread

#: connections that have not come in, those that have, and of these those of one token.
WAITING: Final = 20
MOST: Final = 64
MOST_OF_TOKEN: Final = 16
#: seconds, and bytes of a request's header, up to the login.
PATIENCE: Final = 10.0
HEADER: Final = 8192
#: bytes of a message of a page, and of a client that may not prompt.
MOST_WITHOUT_PROMPTS: Final = 1 << 20
#: seconds after which accepting is tried again when the system has no descriptor left.
_NO_ROOM: Final = 0.5
#: seconds in which who is refused reads why.
_LAST_WORDS: Final = 0.5
#: refusals that are logged in a minute: whoever reaches the port could fill the log.
_LOGGED: Final = 60
#: Header and body of a refusal are for nobody else.
_OF_EVERY_ANSWER: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

#: serves a client until it is gone; owns the WebSocket.
Join: TypeAlias = Callable[[WebSocket, Token], Awaitable[None]]


class Visit(Protocol):
    """A page that has proved its login."""

    @property
    def name(self) -> str:
        """The name of its login."""

    async def serve(self) -> bool:
        """Serve the page until it is gone; returns True if its user has ended the login."""


#: returns the visit of a page that has proved its login; None if it has not.
ComeIn: TypeAlias = Callable[[WebSocket], Awaitable[Visit | None]]


class NotIn(Exception):
    """A connection that does not come in; it was told so, if it could be."""


@dataclass(eq=False, slots=True)
class _Connection:
    """A connection whose WebSocket is opened in a moment.

    It has come in with a token, or has its page's login still to prove.
    """

    address: str
    token: Token | None
    #: the name of its token or login; "" before that is proved.
    name: str = ""
    socket: WebSocket | None = None

    @property
    def longest(self) -> int:
        """The bytes of its longest message: prompts alone are long, and read at once they cost."""
        if not self.name:
            return HEADER
        prompts = self.token is not None and self.token.may is May.ALL
        return MOST_UNFINISHED if prompts else MOST_WITHOUT_PROMPTS


@dataclass(frozen=True, slots=True)
class Proof:
    """What a connection has to be besides: `local`: from this machine, by no agent of it.

    `proxied`: what comes from this machine comes from a proxy, which may be another user's.
    """

    local: bool
    proxied: bool


class Server:
    """The connections from elsewhere."""

    def __init__(
        self,
        door: Door,
        join: Join,
        proof: Proof,
        tls: ssl.SSLContext | None,
        come_in: ComeIn | None = None,
    ) -> None:
        """Nothing is taken before `serve`. `come_in`: how pages do, where there are some."""
        self._come_in = come_in
        self._door, self._join, self._proof, self._tls = door, join, proof, tls
        #: those that have not come in, the oldest first, with the address of each.
        self._waiting: dict[anyio.CancelScope, str] = {}
        self._connections: list[_Connection] = []
        self._looking = anyio.CapacityLimiter(1)
        #: the other ends that a process which may connect has vouched for, and until when.
        self._vouched: dict[Address | None, float] = {}
        #: how many refusals were logged in which minute.
        self._minute, self._logged = 0.0, 0

    def count(self, name: str) -> int:
        """Return how many connections of a token there are."""
        return sum(each.name == name for each in self._connections)

    def end(self, name: str) -> int:
        """End the connections of a token that was revoked; returns how many there were."""
        ended = [each for each in self._connections if each.name == name]
        for each in ended:
            self._connections.remove(each)
            if each.socket:
                each.socket.close(CloseCode.POLICY_VIOLATION, "the token was revoked")
        return len(ended)

    def vouch(self, peer: Address) -> None:
        """Note that the connection from this address of this machine's is no agent's."""
        now = anyio.current_time()
        self._vouched = {each: end for each, end in self._vouched.items() if end > now}
        if len(self._vouched) < MOST:
            self._vouched[plain(peer[0]).compressed, peer[1]] = now + PATIENCE

    async def serve(self, listener: SocketListener) -> None:
        """Take connections until cancelled."""
        async with listener, anyio.create_task_group() as tasks:
            while True:
                try:
                    stream = await listener.accept()
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
            self._vouched.pop(peer, None)  # who has its address next is somebody else
            await anyio.aclose_forcefully(stream)

    # --- up to the login

    async def _greet(
        self, raw: SocketStream
    ) -> tuple[ByteStream, ServerProtocol, _Connection] | None:
        """Return an open WebSocket with its token; None for a connection that does not come in."""
        connection: _Connection | None = None
        with self._place(peer[0] if (peer := _peer(raw)) else ""):
            try:
                stream, protocol, request = await self._asked(raw)
                connection = await self._let_in(raw, protocol, request)
                await stream.send(b"".join(protocol.data_to_send()))
                if connection is not None:
                    return stream, protocol, connection
                await _last_words(stream)
            except (NotIn, anyio.EndOfStream, *_BROKEN):
                pass
        self._forget(connection)
        return None

    @contextmanager
    def _place(self, address: str) -> Iterator[None]:
        """Have one of the places of those that have not come in, for some seconds.

        Where there is none left, the oldest one gives way of the address that has the most.
        """
        if len(self._waiting) >= WAITING:
            of_each = Counter(self._waiting.values())
            oldest = max(self._waiting, key=lambda each: of_each[self._waiting[each]])
            del self._waiting[oldest]
            oldest.cancel()
        with anyio.move_on_after(PATIENCE) as scope:
            self._waiting[scope] = of_one(address)
            try:
                yield
            finally:
                self._waiting.pop(scope, None)

    async def _asked(self, raw: SocketStream) -> tuple[ByteStream, ServerProtocol, Request]:
        """Return the request of a connection; raises NotIn."""
        stream: ByteStream = raw
        if self._tls:
            stream = await TLSStream.wrap(
                raw, server_side=True, ssl_context=self._tls, standard_compatible=False
            )
        protocol, room = server_protocol(), HEADER
        while room and not protocol.events and protocol.handshake_exc is None:
            data = await stream.receive(room)
            room -= len(data)
            protocol.receive_data(data)
        events = protocol.events_received()
        if len(events) == 1 and isinstance(events[0], Request):
            return stream, protocol, events[0]
        if not (answer := b"".join(protocol.data_to_send())):  # the library has given none
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if not room else _BAD
            protocol = server_protocol()
            protocol.send_response(protocol.reject(status, "this is no request for a WebSocket\n"))
            answer = b"".join(protocol.data_to_send())
        await stream.send(answer)
        await _last_words(stream)
        raise NotIn

    async def _let_in(
        self, raw: SocketStream, protocol: ServerProtocol, request: Request
    ) -> _Connection | None:
        """Have the protocol answer a request; returns the connection if it comes in."""
        address = self._address(raw, request)
        who = self._door.answer(request.path, request.headers, address, anyio.current_time())
        found = who if isinstance(who, Refusal) else await self._entered(raw, address, who)
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
        response = protocol.reject(found.status, f"{found.text}\n")
        for name, value in {**_OF_EVERY_ANSWER, **found.headers}.items():
            response.headers.pop(name, None)
            response.headers[name] = value
        protocol.send_response(response)
        return None

    def _log(self, address: str, refusal: Refusal) -> None:
        minute = anyio.current_time() // 60
        self._minute, self._logged = minute, self._logged + 1 if minute == self._minute else 1
        if self._logged <= _LOGGED:
            event("remote.refused", address=address, status=int(refusal.status), what=refusal.text)

    def _address(self, raw: SocketStream, request: Request) -> str:
        """Return where a request comes from: behind a proxy, as that tells."""
        if self._proof.proxied and (told := request.headers.get_all("X-Forwarded-For")):
            return told[-1].rpartition(",")[2].strip()[:64]
        remote = raw.extra(SocketAttribute.remote_address)
        return str(remote[0]) if isinstance(remote, tuple) else "a local socket"

    async def _entered(
        self, raw: SocketStream, address: str, who: Token | Stranger
    ) -> _Connection | Refusal:
        """Return a connection that may come in, or why it may not all the same.

        It belongs to its token while its process is looked at, so that it ends with that, too.
        """
        token = who if isinstance(who, Token) else None
        if self._is_full(token.name if token else None):
            return Refusal(HTTPStatus.TOO_MANY_REQUESTS, _FULL, {})
        connection = _Connection(address, token, token.name if token else "")
        self._connections.append(connection)
        refusal: Refusal | None = _REVOKED
        try:
            refusal = await self._look_at(raw)
        finally:
            if refusal is not None:
                self._forget(connection)
        return refusal or (connection if connection in self._connections else _REVOKED)

    async def _look_at(self, raw: SocketStream) -> Refusal | None:
        """Return why the process at the other end may not come in, None if it may."""
        if not self._proof.local or self._is_vouched(raw):
            return None
        try:
            with anyio.fail_after(waits.PEER):
                look = partial(_look, raw, proxied=self._proof.proxied)
                await in_thread(look, abandon_on_cancel=True, limiter=self._looking)
        except (TimeoutError, NoThread):
            return Refusal(HTTPStatus.FORBIDDEN, peers.UNSEEN, {})
        except peers.Refused as refused:
            return Refusal(HTTPStatus.FORBIDDEN, str(refused), {})
        return None

    def _is_full(self, name: str | None) -> bool:
        of_token = self.count(name) if name is not None else 0
        return of_token >= MOST_OF_TOKEN or len(self._connections) >= MOST

    def _is_vouched(self, raw: SocketStream) -> bool:
        end = self._vouched.pop(_peer(raw), None)
        return end is not None and end > anyio.current_time()

    # --- behind it

    async def _serve(
        self, stream: ByteStream, protocol: ServerProtocol, connection: _Connection
    ) -> None:
        """Serve a client that has come in."""
        try:
            async with opened(stream, protocol) as socket:
                connection.socket = socket
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
        """Serve a page once it has proved its login, for which it has the same time as others."""
        assert self._come_in is not None, "the door lets no page in"
        visit: Visit | None = None
        with self._place(connection.address):
            visit = await self._come_in(socket)
        if visit is None:
            self._door.failed(connection.address, anyio.current_time())
        elif self._is_full(visit.name):
            socket.close(CloseCode.TRY_AGAIN_LATER, _FULL)
        else:
            connection.name = visit.name
            event("remote.page", token=visit.name)
            if await visit.serve():
                self.end(visit.name)

    def _bound(self, connection: _Connection) -> None:
        """End a connection whose message is too long for what it is for.

        Of all messages of a login's that have no end yet, the longest one, if they are together.
        """
        socket = connection.socket
        if socket and socket.unfinished > connection.longest:
            socket.close(CloseCode.MESSAGE_TOO_BIG, "what this login may do is shorter than that")
        all_of_it = [each for each in self._connections if each.name == connection.name]
        mine = [each.socket for each in all_of_it if each.socket]
        if sum(socket.unfinished for socket in mine) > MOST_UNFINISHED:
            longest = max(mine, key=lambda socket: socket.unfinished)
            longest.close(CloseCode.MESSAGE_TOO_BIG, "this login has sent too much that has no end")

    def _forget(self, connection: _Connection | None) -> None:
        if connection in self._connections:
            self._connections.remove(connection)


_FULL: Final = f"there are {MOST_OF_TOKEN} connections with this token, or {MOST} in all"
_REVOKED: Final = Refusal(HTTPStatus.UNAUTHORIZED, "the token was revoked", {})
_BAD: Final = HTTPStatus.BAD_REQUEST
#: what a stream raises when the other end is gone, or speaks no TLS.
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ssl.SSLError)


async def _last_words(stream: ByteStream) -> None:
    """Wait until the other end has read its answer: unread bytes would have it reset."""
    with anyio.move_on_after(_LAST_WORDS):
        if isinstance(stream, SocketStream):
            await stream.send_eof()
        while True:
            await stream.receive()


def _peer(raw: SocketStream) -> Address | None:
    """Return the other end of a TCP connection; None for another one, or one that is cut."""
    try:
        remote = raw.extra(SocketAttribute.remote_address)
    except OSError:
        return None
    return (plain(remote[0]).compressed, remote[1]) if isinstance(remote, tuple) else None


def _look(raw: SocketStream, *, proxied: bool) -> None:
    """Raise Refused for a connection of an agent of this machine; it belongs in a thread."""
    remote, own = (
        raw.extra(SocketAttribute.remote_address),
        raw.extra(SocketAttribute.local_address),
    )
    if isinstance(remote, tuple) and isinstance(own, tuple):
        local.check((str(remote[0]), remote[1]), (str(own[0]), own[1]), proxied=proxied)
        return
    try:
        peers.check(raw.extra(SocketAttribute.raw_socket))
    except peers.AnotherUser:
        if not proxied:
            raise
