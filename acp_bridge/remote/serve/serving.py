"""Runs a bridge for remote clients: its listeners, its server, and its private socket."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketListener

from acp_bridge.core.bridge.bridge import Bridge
from acp_bridge.core.clients.rights import Rights
from acp_bridge.core.records import replace
from acp_bridge.core.runtime.log import event, logger
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.settings import Settings
from acp_bridge.core.wire.streams import Incoming, Outgoing
from acp_bridge.remote.page.client import Visit, come_in
from acp_bridge.remote.page.codes import Codes
from acp_bridge.remote.page.files import page_file
from acp_bridge.remote.page.logins import JoinAs, PageLogins
from acp_bridge.remote.serve import address
from acp_bridge.remote.serve.address import Address
from acp_bridge.remote.serve.control import Control, private_socket
from acp_bridge.remote.serve.door import PATH, Door
from acp_bridge.remote.serve.server import Proof, Server
from acp_bridge.remote.serve.tokens import Token, Tokens
from acp_bridge.remote.serve.websocket import WebSocket
from acp_bridge.serving import serve_remote

#: seconds between two looks at whether somebody else has changed the tokens.
_LOOK: Final = 5.0
_CHANGED: Final = (
    "the file of the tokens was changed by another program, and is not read: what it says counts"
    " from the next start on, unless a token is made or revoked before, which writes it anew"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The user's choices for a server, from the command line."""

    address: Address
    #: the folders below which clients may work, as real paths.
    roots: tuple[str, ...]
    #: the TLS context, None without TLS; the files of certificate and key; the names in the former.
    tls: ssl.SSLContext | None
    files: tuple[str, str]
    certified: frozenset[str]
    #: the origin of the proxy before the server, None without one.
    origin: str | None
    #: connections from this machine are not checked for agents.
    allow_local: bool


async def serve(
    plan: Plan,
    settings: Settings,
    tokens: Tokens,
    ready: Callable[[str, str], None],
    on_end: Callable[[], None],
) -> None:
    """Serve until a signal asks to end; raises OSError if it can't listen at the address.

    `ready` is called with the URLs of the server and of its page once clients can connect and a
    signal ends it in order; `on_end` is called when the bridge begins to end.
    """
    async with _bound(plan.address) as (listeners, found):
        with private_socket(settings.home, tokens) as private:
            names = address.names(found, plan.certified, plan.origin)

            async def let_in(bridge: Bridge) -> None:
                codes = Codes()
                door = Door(names, tokens.find, page_file)
                server = _server(bridge, plan, door, partial(PageLogins, tokens, codes))
                async with anyio.create_task_group() as tasks:
                    control = Control(tokens, server, codes, _page_url(plan, found))
                    tasks.start_soon(control.serve, private)
                    tasks.start_soon(_watch, tokens)
                    if plan.tls:
                        tasks.start_soon(_renew, plan.tls, plan.files)
                    for listener in listeners:
                        tasks.start_soon(server.serve, listener)
                    ready(_url(plan, found), f"{_page_url(plan, found)}/")

            elsewhere = address.from_elsewhere(found, plan.certified, plan.origin)
            await serve_remote(settings, let_in, on_end, elsewhere)


def _server(
    bridge: Bridge, plan: Plan, door: Door, logins: Callable[[JoinAs], PageLogins]
) -> Server:
    async def join_as(token: Token, incoming: Incoming, outgoing: Outgoing) -> None:
        login = Rights(token.may, token.name, plan.roots, token.hash)
        await bridge.join_remote(incoming, outgoing, login)

    async def join(socket: WebSocket, token: Token) -> None:
        await join_as(token, socket, socket)

    pages = logins(join_as)

    async def visit(socket: WebSocket) -> Visit | None:
        return await come_in(socket, socket, pages)

    proof = Proof(local=not plan.allow_local, proxied=plan.origin is not None)
    return Server(door, join, proof, plan.tls, visit, bridge.share)


async def _watch(tokens: Tokens) -> None:
    """Log a warning whenever another program has changed the file of the tokens."""
    while True:
        await anyio.sleep(_LOOK)
        try:
            changed = await in_thread(tokens.changed_behind, abandon_on_cancel=True)
        except NoThread:
            continue
        if changed:
            logger.warning("%s", _CHANGED)


async def _renew(tls: ssl.SSLContext, files: tuple[str, str]) -> None:
    """Load the certificate again whenever its files change: a restart would end the work."""
    seen = _changed(files)
    while True:
        await anyio.sleep(_LOOK)
        try:
            if (now := await in_thread(_changed, files)) == seen:
                continue
            seen = now
            await in_thread(address.renew, tls, *files)
        except (address.Bad, OSError) as why:
            logger.warning("the certificate was changed and is not read: %s", why)
        else:
            event("remote.renewed")


def _changed(files: tuple[str, str]) -> list[float]:
    """Return the modification times of files; 0 for one that is missing."""
    return [os.path.getmtime(file) if os.path.exists(file) else 0.0 for file in files]


@asynccontextmanager
async def _bound(wanted: Address) -> AsyncIterator[tuple[list[SocketListener], Address]]:
    """Yield the listeners at an address, and the address with its real port; raises OSError."""
    if wanted.path is not None:
        made = [await anyio.create_unix_listener(wanted.path, mode=0o660)]
        found = wanted
        await in_thread(_give_to_group, wanted.path)
    else:
        both = await anyio.create_tcp_listener(local_host=wanted.host, local_port=wanted.port)
        made = [each for each in both.listeners if isinstance(each, SocketListener)]
        found = replace(wanted, port=both.extra(SocketAttribute.local_port))
    try:
        yield made, found
    finally:
        for listener in made:
            await listener.aclose()
        if wanted.path is not None:
            await in_thread(partial(wanted.path.unlink, missing_ok=True))


def _give_to_group(path: Path) -> None:
    """Give a socket the group of its folder, in which the proxy is; logs a warning if it can't."""
    group = path.parent.stat().st_gid
    if path.stat().st_gid != group:
        try:
            os.chown(path, -1, group)
        except OSError as why:
            logger.warning(
                "%s does not get the group of its folder: %s. A proxy of another user can't connect"
                " to it, unless it is in your group.",
                path,
                why.strerror,
            )


def _url(plan: Plan, found: Address) -> str:
    if plan.origin is not None:
        return f"{plan.origin.replace('http', 'ws', 1)}{PATH}, behind a proxy at {found}"
    return f"{'wss' if plan.tls else 'ws'}://{found}{PATH}"


def _page_url(plan: Plan, found: Address) -> str:
    """Return the URL of the page, by a name that other machines reach where there is one."""
    if plan.origin is not None:
        return plan.origin
    name = address.main_name(plan.certified)
    host = f"{name}:{found.port}" if name else str(found)
    return f"{'https' if plan.tls else 'http'}://{host}"
