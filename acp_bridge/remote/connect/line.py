"""Opens a connection to a remote bridge: TCP, then TLS, then a WebSocket.

- The token is sent only when the remote bridge has shown a certificate that is trusted, by the
  system or because the user has pinned it.
- A server on this machine can't look into this process: before anything is sent, the connection is
  vouched for on the private socket of the server of this data folder, if one runs (V6).
- Opening takes at most `OPENING` seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSAttribute, TLSStream

from acp_bridge.core.runtime.threads import in_thread
from acp_bridge.core.wire.socket_stream import connect
from acp_bridge.remote.connect.logins import Login, Where
from acp_bridge.remote.serve.local import Address, plain
from acp_bridge.remote.serve.websocket import NotOpened, WebSocket, dial, opened

#: seconds in which a connection has to be open.
OPENING: Final = 20.0


class NotTrusted(Exception):
    """The server's certificate is not trusted; `fingerprint`: its SHA-256 in hexadecimal digits."""

    def __init__(self, why: str, fingerprint: str) -> None:
        super().__init__(why)
        self.fingerprint = fingerprint


class Unreached(Exception):
    """No connection could be opened; the text says why. `status`: the HTTP status, if any."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


@asynccontextmanager
async def connected(where: Where, login: Login, home: Path) -> AsyncGenerator[WebSocket, None]:
    """Yield an open WebSocket to the bridge at `where`; raises Unreached, NotTrusted.

    `home`: the data folder of a server on this machine that the connection is vouched for at.
    """
    async with AsyncExitStack() as stack:
        try:
            with anyio.fail_after(OPENING):
                stream = await _reached(where, login.certificate, home)
                stack.push_async_callback(anyio.aclose_forcefully, stream)
                protocol = await dial(stream, where.url, login.token)
        except NotOpened as exc:
            raise Unreached(str(exc), exc.status) from exc
        except TimeoutError as exc:
            raise Unreached(f"it did not answer within {OPENING:g} s") from exc
        yield await stack.enter_async_context(opened(stream, protocol))


async def look(where: Where) -> None:
    """Check that a bridge can be reached and its certificate is trusted; sends no token.

    Raises Unreached, NotTrusted.
    """
    try:
        with anyio.fail_after(OPENING):
            await anyio.aclose_forcefully(await _reached(where, None))
    except TimeoutError as exc:
        raise Unreached(f"it did not answer within {OPENING:g} s") from exc


async def _reached(where: Where, pinned: str | None, home: Path | None = None) -> ByteStream:
    """Return an open TCP or TLS stream; raises Unreached, NotTrusted.

    `pinned`: the only fingerprint to trust; `home`: where to vouch for the connection.
    """
    if not where.secure:
        return await _tcp(where, home)
    try:
        return await _with_tls(where, _context(trusts=pinned is None), pinned, home)
    except ssl.SSLCertVerificationError as exc:
        why = exc.verify_message or str(exc)
    stream = await _with_tls(where, _context(trusts=False), None)
    fingerprint = _fingerprint(stream)
    await anyio.aclose_forcefully(stream)
    raise NotTrusted(why, fingerprint)


async def _tcp(where: Where, home: Path | None = None) -> ByteStream:
    try:
        stream = await connect(where.host, where.port)
    except OSError as exc:
        raise Unreached(str(exc.strerror or exc)) from exc
    if home is not None:
        try:
            await _vouch(stream, home)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
    return stream


async def _vouch(stream: SocketStream, home: Path) -> None:
    """Vouch for a connection that leads to this machine, if a server of this data folder runs."""
    raw = stream.extra(SocketAttribute.raw_socket)
    with suppress(OSError):  # the other end is gone, or there is no room for one more thread
        own, remote = raw.getsockname(), raw.getpeername()
        here, there = plain(own[0]), plain(remote[0])
        if there.is_loopback or there == here:
            await in_thread(_vouched, home, (here.compressed, own[1]), abandon_on_cancel=True)


def _vouched(home: Path, own: Address) -> bool:
    from acp_bridge.remote.serve import control

    return control.vouch(home, own)


def _context(*, trusts: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not trusts:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _with_tls(
    where: Where, context: ssl.SSLContext, pinned: str | None, home: Path | None = None
) -> TLSStream:
    tcp = await _tcp(where, home)
    try:
        stream = await TLSStream.wrap(
            tcp, hostname=where.host, ssl_context=context, standard_compatible=False
        )
    except BaseException as exc:
        await anyio.aclose_forcefully(tcp)
        if isinstance(exc, ssl.SSLCertVerificationError):
            raise
        if isinstance(exc, OSError | anyio.EndOfStream | anyio.BrokenResourceError):
            raise Unreached(f"TLS: {exc.__cause__ or exc}") from exc
        raise
    if pinned is not None and not hmac.compare_digest(found := _fingerprint(stream), pinned):
        await anyio.aclose_forcefully(stream)
        raise NotTrusted("it is not the certificate that was confirmed at the login", found)
    return stream


def _fingerprint(stream: TLSStream) -> str:
    certificate = stream.extra(TLSAttribute.peer_certificate_binary) or b""
    return hashlib.sha256(certificate).hexdigest()
