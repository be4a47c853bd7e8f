"""A server in the test's own process; whoever comes in hears what it says."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketListener
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from acp_bridge.core.clients.rights import May
from acp_bridge.remote.page.codes import Codes
from acp_bridge.remote.serve import address, tokens
from acp_bridge.remote.serve.control import Control, private_socket
from acp_bridge.remote.serve.door import Door
from acp_bridge.remote.serve.server import Proof, Server
from acp_bridge.remote.serve.tokens import Token, Tokens, new_secret, new_token
from acp_bridge.remote.serve.websocket import WebSocket
from acp_bridge.sharing.bridge_client.tasks import beside

ANYBODY = Proof(local=False, proxied=False)


class Site:
    """A server that listens on the loopback, its tokens, and who has come in."""

    def __init__(self, mine: Tokens, tls: ssl.SSLContext | None) -> None:
        self.tokens, self.tls = mine, tls
        self.port = 0
        self.came: list[str] = []
        self.inside: list[WebSocket] = []
        self.heard: list[bytes] = []
        self.secret = self.token("laptop")
        self.server: Server
        self.private = Path()

    def token(self, name: str, may: May = May.ALL) -> str:
        secret = new_secret()
        self.tokens.add(new_token(name, may, secret))
        return secret

    async def join(self, socket: WebSocket, token: Token) -> None:
        self.came.append(token.name)
        self.inside.append(socket)
        while data := await socket.read():
            self.heard.append(data)
            if b"fail" in data:
                raise RuntimeError("a bug")
            socket.write(data)
        self.inside.remove(socket)

    def connect(self, secret: str | None = None, **more: Any) -> Any:
        """The library's client, which comes in with the token."""
        header = {"Authorization": f"Bearer {secret or self.secret}"}
        scheme = "wss" if self.tls else "ws"
        given = {"additional_headers": header, "proxy": None, **more}
        return connect(f"{scheme}://127.0.0.1:{self.port}/acp", **given)

    async def refused(self, secret: str | None = None, **more: Any) -> int:
        """The status with which a client does not come in."""
        try:
            async with self.connect(secret, **more):
                raise AssertionError("it came in")
        except InvalidStatus as why:
            return why.response.status_code

    async def raw(self, data: bytes) -> bytes:
        """All that a connection is answered that sends these bytes."""
        found = b""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            await stream.send(data)
            try:
                while True:
                    found += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return found


async def said(client: ClientConnection, text: str) -> str:
    """What a client is answered."""
    await client.send(text)
    return str(await client.recv())


@asynccontextmanager
async def site(
    home: Path, proof: Proof = ANYBODY, files: tuple[str, str] | None = None
) -> AsyncIterator[Site]:
    """Serve on the loopback, with TLS if `files` are a certificate and its key."""
    tls = address.tls(*files) if files else None
    with anyio.fail_after(20), tokens.held(home) as mine, private_socket(home, mine) as private:
        it = Site(mine, tls)
        listener = (await anyio.create_tcp_listener(local_host="127.0.0.1")).listeners[0]
        assert isinstance(listener, SocketListener)
        it.port = listener.extra(SocketAttribute.local_port)
        where = address.Address("127.0.0.1", it.port)
        certified = address.certified(tls, files[0]) if tls and files else frozenset[str]()
        door = Door(address.names(where, certified, None), mine.find)
        it.server = Server(door, it.join, proof, tls)
        it.private = Path(private.getsockname())
        async with beside() as tasks:
            tasks.start_soon(it.server.serve, listener)
            tasks.start_soon(Control(mine, it.server, Codes(), "http://page").serve, private)
            yield it
