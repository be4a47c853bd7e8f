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
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio

from acp_bridge.bridge_client.connection import Connection, connected
from acp_bridge.bridge_client.listener import Listener, NullListener
from acp_bridge.bridge_client.sent import ConnectionLost, NoAnswer
from acp_bridge.errors import unknown_session
from acp_bridge.protocol import ErrorCode, Json, as_object
from acp_bridge.remote.page import parts
from acp_bridge.remote.page.have import read_have
from acp_bridge.remote.page.list_rows import Wish
from acp_bridge.remote.page.listing import Listing, find
from acp_bridge.remote.page.opened import Opened
from acp_bridge.remote.page.sender import Sender
from acp_bridge.remote.pair import pair
from acp_bridge.view.block_text import harmless, one_line
from acp_bridge.view.markup import text
from acp_bridge.wire.jsonrpc import RpcError
from acp_bridge.wire.streams import Incoming, Outgoing

#: seconds for an answer of the bridge.
_PATIENCE: Final = 30.0
#: the most bytes of the first message, and of any other.
_FIRST: Final = 8_192
_LONGEST: Final = 1 << 20
#: bytes that may wait for a page before it is told of more changes.
_FULL: Final = 1 << 16
#: prompts of one page that are on their way at once.
_MOST_PROMPTS: Final = 8
_NO_LOGIN: Final = "That code, or this login, does not count (any more): ask for a new code."

#: Serves a client of the bridge on these streams until it is gone.
Join = Callable[[Incoming, Outgoing], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Login:
    """A page's login: `may` is `look`, `approve` or `all`; `join` serves clients with it."""

    name: str
    may: str
    join: Join


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
        self._prompts = 0
        self._tasks = anyio.create_task_group()

    # -- its life

    async def run(self, messages: _Messages) -> bool:
        """Serve until the page is gone, or its user logs out; returns True for the latter."""
        async with self._tasks as tasks:
            tasks.start_soon(self._outgoing.run)
            tasks.start_soon(self._views)
            self.tell({"may": self.login.may, "name": self.login.name})
            logs_out = False
            while not logs_out and (message := await messages.next()) is not None:
                logs_out = message.get("do") == "leave"
                self._take(message)
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
                self.tell({"put": "sessions", "html": f"<li>{text(_said(why))}</li>"})

    async def _show_session(self, session_id: str) -> None:
        may, have = self.login.may, self._have
        self._have = None
        if have is not None and have.session != session_id:
            have = None
        opened = Opened(session_id, self.tell, self._room, asks=may != "look", may_all=may == "all")
        self.tell({"view": "session", "session": session_id})
        try:
            row = await self._row(session_id)
        except (RpcError, NoAnswer, ConnectionLost) as why:
            self.tell({"put": "state", "html": parts.unopened(_said(why), None, session_id)})
            return
        if title := one_line(row.get("title")):
            self.tell({"put": "title", "html": text(title)})
        async with self._connection(opened) as connection:
            self._opened = opened
            try:
                await opened.run(connection, str(row.get("cwd", "/")), self._client, have)
            finally:
                self._opened = None

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
        do, opened = message.get("do"), self._opened
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
                self._wanted = _word(message.get("session")) or None if do == "open" else None
                self._view.cancel()
            case "find" | "more" if self._listing is not None:
                self._listing.want(self._wish)
            case "prompt" | "run":
                self._on_prompt(message)
            case _ if opened is not None:
                _act(opened, message)

    def _on_prompt(self, message: Json) -> None:
        session, said = _word(message.get("session")) or self._wanted, _word(message.get("text"))
        key = _word(message.get("key"))
        if message.get("do") == "run":
            said, key = "/queue run", "run"
        if not session or not said.strip() or not key:
            return
        if self._prompts >= _MOST_PROMPTS:
            self.tell({"refused": key, "line": "too many prompts are on their way"})
            return
        self._prompts += 1
        self._tasks.start_soon(self._send, session, said, key)

    async def _send(self, session: str, said: str, key: str) -> None:
        sender = Sender()
        try:
            folder = str((await self._row(session)).get("cwd", "/"))
            async with self._connection(sender) as connection:
                await sender.send(connection, session, folder, said, key)
        except (RpcError, NoAnswer, ConnectionLost) as why:
            self.tell({"refused": key, "line": _said(why)})
        else:
            self.tell({"taken": key})
            if sender.said:
                self.tell({"line": harmless(sender.said)})
        finally:
            self._prompts -= 1


def _act(opened: Opened, message: Json) -> None:
    """Carry out a message of the page in its open session; an unknown one is dropped."""
    match message:
        case {"do": "stop"}:
            opened.stop()
        case {"do": "earlier"}:
            opened.show_earlier()
        case {"do": "answer", "question": question, "option": option}:
            opened.answer(_number(question), _number(option))
        case {"do": "drop", "prompt": str(prompt)}:
            opened.drop(prompt)
        case {"do": "move", "prompt": str(prompt), "by": by}:
            opened.move(prompt, _number(by))
        case {"do": "set", "kind": str(kind), "value": value}:
            opened.choose(kind, _number(value))


def _number(value: Any) -> int:
    """Return the integer that a page has sent, as a number or a text; -1 for anything else."""
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        return -1


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
