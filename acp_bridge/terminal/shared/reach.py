"""Where a command finds sessions: at the bridges of this data folder, or at one on another machine.

- Both say which sessions are live, and which one is meant, and give a connection to its bridge and
  the request with which a client joins it.
- `There` is the bridge that `acp-bridge serve` runs at an address. Its list says what is kept, so
  the journal of this data folder counts for nothing.
"""

from __future__ import annotations

import argparse
import errno
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import anyio

from acp_bridge.core.history import History
from acp_bridge.core.protocol import (
    SESSION_LIST,
    SESSION_LOAD,
    SESSION_RESUME,
    SOCKET_PROTOCOL,
    Json,
    as_object,
    objects,
    resuming,
)
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.remote.connect.logins import Login, Unusable, Where, find, read_address
from acp_bridge.sharing.bridge_client import connection as over
from acp_bridge.sharing.bridge_client.by_socket import live_sessions
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener, NullListener
from acp_bridge.sharing.listening.run_files import LiveBridge
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.cli.options import data_folder
from acp_bridge.terminal.cli.own_agent import lacks_extra
from acp_bridge.terminal.cli.parser import CommandParser
from acp_bridge.terminal.cli.printing import fail
from acp_bridge.terminal.shared import known
from acp_bridge.terminal.shared.live import Answer, Asleep, Here, LiveSession, Request

#: seconds for a bridge elsewhere to answer a question about its sessions.
_PATIENCE: Final = 20.0
#: how many pages of the list of sessions of such a bridge are read.
_PAGES: Final = 1000
#: what a server answers to a token that it doesn't know.
_REFUSED: Final = 401
#: what is said where a login may not take part.
LOOKS: Final = "this login may only look: it is asked nothing, and sends nothing"


class NotThere(OSError):
    """The bridge elsewhere does not let this user in, or can't be reached.

    `why` is for the user, and says what to do; `code`: the exit code.
    """

    def __init__(self, why: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(errno.EHOSTUNREACH, why)
        self.why, self.code = why, code


class Reach(Protocol):
    """A place where commands find sessions, live ones above all."""

    #: the option with which another command reaches the same place, such as `--at URL `; "": none.
    again: str
    #: True if a client has to join a session before it does anything else with it.
    joins_first: bool

    async def ask(self) -> list[Answer]:
        """Return the bridges' answers with their live sessions.

        Raises NotFound, and what `connect` and a request raise.
        """

    async def find(self, given: str) -> LiveSession:
        """Return the live session whose id is, or begins with, `given`.

        Raises Asleep, NotFound, and what `connect` and a request raise.
        """

    async def in_folder(self, folder: Path) -> str:
        """Return the id of the session that was used last in a folder; raises as `find` does."""

    def connect(
        self, session: LiveSession, listener: Listener
    ) -> AbstractAsyncContextManager[Connection]:
        """Connect to the bridge of a session; entering the context manager raises OSError."""

    def joining(self, session: LiveSession, history: History, cursor: str | None = None) -> Request:
        """Return the request that joins a session.

        `history`: how much of it is shown; `cursor`: what follows that is shown instead.
        """


class There:
    """Finds sessions at the bridge of an address; `url`: the address as the user has written it."""

    joins_first = True  # another bridge may have the session, to which this one passes it on

    def __init__(self, url: str, where: Where, login: Login, home: Path) -> None:
        self.again = f"--at {one_line(url)} "
        self._where, self._login, self._home = where, login, home
        #: describes the bridge, which has no run file here, and no socket.
        self._bridge = LiveBridge(0, where.place, where.url, SOCKET_PROTOCOL, "", "")

    async def ask(self) -> list[Answer]:
        """Return the one answer of the bridge; raises NotThere and what a request raises."""
        async with self.open(NullListener()) as connection:
            return [Answer(self._bridge, await live_sessions(connection, _PATIENCE))]

    async def find(self, given: str) -> LiveSession:
        """Return the live session whose id is, or begins with, `given`.

        Raises NotFound, Asleep with a session that can be opened, and what `ask` raises.
        """
        rows, living = await self._listed()
        titles = {each: str(row.get("title") or "") for each, row in rows.items()}
        session_id = known.full_id(given, titles)
        session = LiveSession(session_id, self._bridge, rows[session_id])
        if session_id not in living:
            raise Asleep(session_id, session=session)
        return session

    async def in_folder(self, folder: Path) -> str:
        """Return the id of the session used last in the folder with this path on that machine.

        A live one goes first. Raises NotFound, and what `ask` raises.
        """
        rows, living = await self._listed()
        there = [each for each, row in rows.items() if row.get("cwd") == str(folder)]
        if not there:
            raise known.NotFound(
                f"no session was used in {folder} there: name one,"
                f" {OWN_COMMANDS.line('ps', self.again)} lists what is live"
            )
        return next((each for each in there if each in living), there[0])

    async def _listed(self) -> tuple[dict[str, Json], set[str]]:
        """Return the rows of all sessions by id, the newest first, and the ids of those live."""
        rows: dict[str, Json] = {}
        async with self.open(NullListener()) as connection:
            found = await live_sessions(connection, _PATIENCE)
            living = {str(row["sessionId"]): row for row in found}
            params: Json = {}
            for _ in range(_PAGES):
                page = as_object(await connection.request(SESSION_LIST, params, within=_PATIENCE))
                for row in objects(page.get("sessions")):
                    if isinstance(session_id := row.get("sessionId"), str):
                        rows.setdefault(session_id, row)
                if not isinstance(cursor := page.get("nextCursor"), str):
                    break
                params = {"cursor": cursor}
        return {**rows, **living}, set(living)

    def connect(
        self, session: LiveSession, listener: Listener
    ) -> AbstractAsyncContextManager[Connection]:
        """Connect to the bridge; entering the context manager raises NotThere."""
        return self.open(listener)

    @asynccontextmanager
    async def open(self, listener: Listener) -> AsyncGenerator[Connection, None]:
        """Give a connection to the bridge for the block; raises NotThere."""
        from acp_bridge.remote.connect.line import (  # the extra [remote]
            NotTrusted,
            Unreached,
            connected,
        )

        async with AsyncExitStack() as stack:
            try:
                line = connected(self._where, self._login, self._home)
                socket = await stack.enter_async_context(line)
            except NotTrusted as exc:
                raise NotThere(_told(self._where, f"its certificate: {exc}")) from exc
            except Unreached as exc:
                if exc.status == _REFUSED:
                    why = token_refused(self._where, str(exc))
                    raise NotThere(why, Exit.AUTHENTICATION) from exc
                raise NotThere(_told(self._where, str(exc))) from exc
            yield await stack.enter_async_context(over.connected((socket, socket), listener))

    def joining(self, session: LiveSession, history: History, cursor: str | None = None) -> Request:
        """Return the request that joins a session, or opens it if it is not live."""
        params = {"sessionId": session.session_id, "cwd": session.about.get("cwd")}
        method = SESSION_LOAD if history is History.FULL and cursor is None else SESSION_RESUME
        return method, resuming({**params, "mcpServers": []}, cursor)


class Again:
    """Connects to a bridge elsewhere again and again; each time but the first, until it succeeds.

    A token that is refused meanwhile ends the attempts (NotThere).
    """

    def __init__(self, there: There) -> None:
        from acp_bridge.remote.connect.shell import Backoff

        self._there = there
        self._backoff = Backoff()
        #: when the last connection was opened.
        self._opened: float | None = None

    @asynccontextmanager
    async def connect(
        self, listener: Listener, *, tell: Callable[[str], None]
    ) -> AsyncGenerator[Connection, None]:
        """Give the next connection for the block, after a pause. Raises NotThere.

        `tell` is never called: the bridge's stderr is on another machine.
        """
        if self._opened is not None:
            await anyio.sleep(self._backoff.after_line(anyio.current_time() - self._opened))
        async with AsyncExitStack() as stack:
            while True:
                try:
                    connection = await stack.enter_async_context(self._there.open(listener))
                    break
                except NotThere as why:
                    if self._opened is None or why.code is Exit.AUTHENTICATION:
                        raise
                await anyio.sleep(self._backoff.after_failure())
            self._opened = anyio.current_time()
            yield connection


def add_at(parser: CommandParser) -> None:
    """Add the option `--at` to a command's parser."""
    parser.add_argument(
        "--at",
        metavar="URL",
        help="at the bridge that 'acp-bridge serve' runs there, on another machine,\n"
        "say; it needs a login by 'acp-bridge connect'",
    )


def reach_of(parser: CommandParser, given: argparse.Namespace) -> Reach:
    """Return where a command finds sessions: at the address of `--at`, or in the data folder.

    Raises SystemExit after a message on stderr.
    """
    home = data_folder(given.home)
    return Here(home) if given.at is None else there_of(parser.name, home, given.at)


def there_of(command: str, home: Path, url: str) -> There:
    """Return the bridge at an address. Raises SystemExit after a message on stderr."""
    check_package(command)
    where, login = login_for(command, home, url)
    return There(url, where, login, home)


def check_package(command: str) -> None:
    """Raise SystemExit, after a message on stderr, if what a WebSocket needs isn't installed."""
    if (lacking := lacks_extra("websockets", "remote")) is not None:
        raise SystemExit(fail(command, lacking))


def login_for(command: str, home: Path, url: str) -> tuple[Where, Login]:
    """Return the address in `url` and the login that is kept for it.

    Raises SystemExit after a message on stderr, also if no login is kept.
    """
    try:
        where = read_address(url)
        login = find(home, where)
    except Unusable as why:
        raise SystemExit(fail(command, why)) from None
    if login is None:
        login_with = OWN_COMMANDS.line("connect", f"--login {url}")
        what = f"there is no token for {where.url}: run {login_with}"
        raise SystemExit(fail(command, what, Exit.AUTHENTICATION))
    return where, login


def token_refused(where: Where, why: str) -> str:
    """Return the sentences about a token that is refused: `why`, and how to get another one."""
    what = f"{where.place} has refused the token: {one_line(why)}. Another one is kept by"
    return f"{what} {OWN_COMMANDS.line('connect', f'--login {where.url}')}"


def _told(where: Where, why: str) -> str:
    return f"{where.place} can't be reached: {one_line(why)}"
