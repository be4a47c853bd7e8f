"""The server's side of a page: its login, the view that it shows now, and its user's actions.

The page sends one JSON object a message, the first one to log in, and gets messages that say which
HTML to put where (`Tell` in `opened.py`); it has no model of its own.

Invariants
- Before its first message has proved a login, the page is told nothing, and nothing is done.
- A page that is not visible has no session open.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio

from acp_bridge.core.clients import rights
from acp_bridge.core.errors import unknown_session
from acp_bridge.core.protocol import ErrorCode, Json, as_object
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.core.wire.streams import Incoming, Outgoing
from acp_bridge.remote.page import parts
from acp_bridge.remote.page.carrier import Carrier, Ways
from acp_bridge.remote.page.have import read_have
from acp_bridge.remote.page.list_rows import Wish
from acp_bridge.remote.page.listing import Listing, find
from acp_bridge.remote.page.opened import Opened
from acp_bridge.remote.page.taps import Receipts
from acp_bridge.remote.serve.pair import pair
from acp_bridge.sharing.bridge_client.connection import Connection, connected
from acp_bridge.sharing.bridge_client.listener import Listener, NullListener
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.terminal.view.block_text import one_line
from acp_bridge.terminal.view.element import element, text

#: seconds for an answer of the bridge.
_PATIENCE: Final = 30.0
#: the most bytes of the first message, and of any other.
_FIRST: Final = 8_192
_LONGEST: Final = 1 << 20
#: bytes that may wait for a page before it is told of more changes.
_FULL: Final = 1 << 16
_NO_LOGIN: Final = "That code, or this login, does not count (any more): ask for a new code."

#: Serves a client of the bridge on these streams until it is gone.
Join = Callable[[Incoming, Outgoing], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Login:
    """A page's login: `may` is `look`, `approve` or `all`; `join` serves clients with it."""

    name: str
    may: str
    join: Join
    #: what has become of the taps of its pages.
    receipts: Receipts = field(default_factory=Receipts)
    #: tells logins apart: a page keeps taps and drafts for one login.
    id: str = ""


class Logins(Protocol):
    """Checks, makes and ends the logins of pages."""

    async def enter(self, secret: str) -> Login | None:
        """Return the login that a secret belongs to; None if there is none (any more)."""

    async def exchange(self, code: str) -> str | None:
        """Use up a code for a new login, and return its secret; None if the code is not good."""

    async def leave(self, secret: str) -> None:
        """Remove the login that a secret belongs to."""


class Visit:
    """A page that has logged in."""

    def __init__(self, page: _Page, secret: str, logins: Logins, messages: _Messages) -> None:
        self._page, self._secret, self.logins, self._messages = page, secret, logins, messages

    @property
    def name(self) -> str:
        """The name of the page's login."""
        return self._page.login.name

    async def serve(self) -> bool:
        """Serve the page until it is gone, or its user logs out; returns True for the latter."""
        logs_out = await self._page.run(self._messages)
        if logs_out:
            await self.logins.leave(self._secret)
            self._page.tell({"login": None, "line": "You are logged out."})
        return logs_out


async def come_in(incoming: Incoming, outgoing: Outgoing, logins: Logins) -> Visit | None:
    """Wait for a page's first message; returns its visit, None if the message proves no login.

    The caller bounds the time.
    """
    messages = _Messages(incoming)
    first = await messages.next(_FIRST) or {}
    tell = _teller(outgoing)
    secret, login = await _proved(first, logins, tell)
    if login is None:
        tell({"login": None, "line": _NO_LOGIN})
        return None
    return Visit(_Page(outgoing, tell, login, first), secret, logins, messages)


async def _proved(
    first: Json, logins: Logins, tell: Callable[[Json], None]
) -> tuple[str, Login | None]:
    """Return the secret in the first message, or a new one for its code, and the login."""
    secret = first.get("login")
    if isinstance(code := first.get("code"), str):
        secret = await logins.exchange(code.strip())
        if secret is not None:
            tell({"login": secret})
    if not isinstance(secret, str):
        return "", None
    return secret, await logins.enter(secret)


def _teller(outgoing: Outgoing) -> Callable[[Json], None]:
    def tell(message: Json) -> None:
        outgoing.write(json.dumps(message).encode() + b"\n")

    return tell


class _Messages:
    """Reads the messages of a page, one JSON object a line."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._buffer = bytearray()

    async def next(self, longest: int = _LONGEST) -> Json | None:
        """Return the next message, of up to `longest` bytes.

        None at the end, and for one that is longer or no object.
        """
        while b"\n" not in self._buffer:
            data = await self._incoming.read()
            if not data or len(self._buffer) > longest:
                return None
            self._buffer += data
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        if len(line) > longest:
            return None
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


class _Page:
    def __init__(
        self, outgoing: Outgoing, tell: Callable[[Json], None], login: Login, first: Json
    ) -> None:
        """`first`: the message that has proved the login."""
        self.tell, self.login = tell, login
        self._outgoing = outgoing
        client = first.get("client")
        self._client = client if isinstance(client, str) else None
        self._visible = first.get("visible") is not False
        #: the id of the session that is to be shown; None for the list.
        self._wanted: str | None = _word(first.get("session")) or None
        self._opened: Opened | None = None
        self._view = anyio.CancelScope()
        #: what the page wants to see of the list, and the list that was shown last.
        self._wish = Wish.read(first)
        self._listing: Listing | None = None
        #: what the page has of the session that it wants to be shown next.
        self._have = read_have(first)
        self._tasks = anyio.create_task_group()
        ways = Ways(self._connection, self._folder, lambda: self._opened)
        self._carrier = Carrier(tell, ways, login.receipts, login.name, self._client)

    # -- its life

    async def run(self, messages: _Messages) -> bool:
        """Serve until the page is gone, or its user logs out; returns True for the latter."""
        async with self._tasks as tasks:
            tasks.start_soon(self._outgoing.run)
            tasks.start_soon(self._views)
            self.tell(
                {
                    "may": self.login.may,
                    "name": self.login.name,
                    "id": self.login.id or self.login.name,
                    "server": self.login.receipts.server,
                }
            )
            logs_out = False
            while not logs_out and (message := await messages.next()) is not None:
                logs_out = message.get("do") == "leave"
                self._take(message)
            self._carrier.end()
            tasks.cancel_scope.cancel()
        return logs_out

    async def _views(self) -> None:
        """Show the wanted view, the list or a session; nothing while the page is not visible."""
        while True:
            with anyio.CancelScope() as self._view:
                await self._room()  # a page that takes nothing is shown nothing more
                if self._visible and self._wanted is None:
                    await self._show_list()
                elif self._visible and self._wanted is not None:
                    await self._show_session(self._wanted)
                await anyio.sleep_forever()

    async def _show_list(self) -> None:
        self.tell({"view": "list"})
        listing = self._listing = Listing(self.tell, self._room, self._wish)
        async with self._connection(NullListener()) as connection:
            try:
                about = await connection.initialize("acp-bridge page", within=_PATIENCE)
                await listing.run(connection, agent_of(about))
            except (RpcError, NoAnswer, ConnectionLost) as why:
                self.tell({"put": "sessions", "html": element("li", _said(why))})

    async def _show_session(self, session_id: str) -> None:
        may, name, have = self.login.may, self.login.name, self._have
        self._have = None
        if have is not None and have.session != session_id:
            have = None
        opened = self._opened = Opened(
            session_id, self.tell, self._room, login=name, asks=may != "look", may_all=may == "all"
        )
        self.tell({"view": "session", "session": session_id})
        try:
            try:
                row = await self._row(session_id)
            except (RpcError, NoAnswer, ConnectionLost) as why:
                html = parts.unopened(_said(why), None, session_id)
                self.tell({"put": "state", "html": html})
                return
            if title := one_line(row.get("title")):
                self.tell({"put": "title", "html": text(title)})
            async with self._connection(opened) as connection:
                await opened.run(connection, str(row.get("cwd", "/")), self._client, have)
        finally:
            self._opened = None
            opened.hands.end()

    async def _folder(self, session_id: str) -> str:
        """Return the folder of a session; raises as `_row` does."""
        return str((await self._row(session_id)).get("cwd", "/"))

    async def _row(self, session_id: str) -> Json:
        """Return the session's row in the list of what this login may see.

        Raises RpcError, also where there is no such session; NoAnswer, ConnectionLost.
        """
        row = self._listing.row(session_id) if self._listing else None
        if row is None:
            async with self._connection(NullListener()) as connection:
                await connection.initialize("acp-bridge page", within=_PATIENCE)
                row = await find(connection, session_id)
        if row is None:
            raise unknown_session()
        return row

    @asynccontextmanager
    async def _connection(self, listener: Listener) -> AsyncGenerator[Connection, None]:
        """Yield a new connection to the bridge with the login's rights; closed after the block."""
        mine, theirs = pair()
        self._tasks.start_soon(self.login.join, *theirs)
        async with connected(mine, listener) as connection:
            yield connection

    async def _room(self) -> None:
        await self._outgoing.drain_below(_FULL)

    # -- what the user does

    def _take(self, message: Json) -> None:
        do, session = message.get("do"), _word(message.get("session"))
        try:
            if not rights.check_page(self.login.may, do):
                return
        except RpcError as why:
            self._carrier.refuse(message, why.message)
            return
        if "find" in message:
            self._wish = Wish.read(message)
        if "have" in message:
            self._have = read_have(message)
        match do:
            case "here":
                self.tell({"here": True})
            case "visible":
                self._visible = message.get("visible") is not False
                self._view.cancel()
            case "open" | "list":
                self._wanted = session or None if do == "open" else None
                self._view.cancel()
            case "earlier":
                if self._opened is not None:
                    self._opened.show_earlier()
            case "find" | "more":
                if self._listing is not None:
                    self._listing.want(self._wish)
            case "back":
                self._carrier.take_back(_word(message.get("key")), _word(message.get("server")))
            case "prompt" if not (_word(message.get("text")).strip() and _word(message.get("key"))):
                pass
            case "stop" | "answer" | "drop" | "move" | "set" | "run" | "prompt":
                if session := session or self._wanted or "":
                    self._carrier.take(message, session, self._tasks)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def agent_of(about: Json) -> str:
    """Return the names of the agent in an answer to `initialize`, as a search finds them."""
    info = as_object(about.get("agentInfo"))
    return " ".join(each for each in (info.get("title"), info.get("name")) if isinstance(each, str))


def _said(why: Exception) -> str:
    if isinstance(why, RpcError) and why.code == ErrorCode.RESOURCE_NOT_FOUND:
        return parts.UNKNOWN
    return one_line(why.message if isinstance(why, RpcError) else str(why), 500)
