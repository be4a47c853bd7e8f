"""Connections to the database of a journal.

Every failure of psycopg becomes a JournalError: the server's own text, which may hold a host or a
path, is only chained, for the log.
"""

import re
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from types import TracebackType
from typing import Any, Final, Self

import anyio
import psycopg
from psycopg import AsyncConnection

from acp_bridge.journal.errors import DatabaseAway, JournalError
from acp_bridge.journal.postgres.tables import migrate
from acp_bridge.settings import DatabaseUrl

#: the most connections in use, not counting that of a lease, and the most that are kept unused.
_KEPT: Final = 8
#: seconds for which a caller gets a connection, unless it asks for another time.
_ANSWER: Final = 10.0
#: seconds for what transfers all of a session.
ALL: Final = 600.0
_OPTIONS: Final = (
    "-c lock_timeout=5s -c idle_in_transaction_session_timeout=10s -c synchronous_commit=on"
)
#: a state that is no SQLSTATE: the certificate is not the server's, or the server has none.
_UNSAFE: Final = "unsafe"
#: the first characters of an SQLSTATE, and what a person is told of it: of errors that may pass.
_AWAY: Final = {
    "08": "the database can't be reached",
    "57P": "the database is shutting down or starting",
    "53100": "the disk of the database is full",
    "53": "the database has no room for this now",
    "55P03": "the database was held by another for too long",
    "40": "the database was held by another for too long",
    "25P03": "the database was left waiting for too long",
}
#: the first characters of SQLSTATEs after which nothing of a statement is done, for certain.
_NOTHING_DONE: Final = ("53", "55P03", "40", "25P03")
_REFUSED: Final = {
    "28": "the database refused the login: look at .pgpass or PGPASSWORD, and at the user's name",
    "3D000": "there is no such database: make it first, for example with createdb",
    "42501": "the database's user may not do this: it must be able to make a schema, or own it",
    _UNSAFE: "the way to the database is not as safe as sslmode asks for",
}
#: libpq gives no SQLSTATE while it connects, so it is read from what the server says in English. Of
#: a server with another language the database is away, whatever it says.
_SAID: Final = (
    (
        re.compile(r"authentication failed|pg_hba\.conf|role .+ does not exist|permitted to log"),
        "28",
    ),
    (re.compile(r"database .+ does not exist"), "3D000"),
    (re.compile(r"too many (clients|connections)|connection slots"), "53300"),
    (re.compile(r"database system is"), "57P03"),
    (re.compile(r"but SSL was required|certificate verify failed|root certificate"), _UNSAFE),
)


def failure(error: psycopg.Error) -> JournalError:
    """Return the JournalError to raise for an error of psycopg, without the server's text.

    It is a DatabaseAway if a later try may work.
    """
    state = error.sqlstate or _said(error)
    for kind, known in ((DatabaseAway, _AWAY), (JournalError, _REFUSED)):
        for start in sorted(known, key=len, reverse=True):
            if state.startswith(start):
                return kind(f"the journal failed: {known[start]}")
    if not state and isinstance(error, psycopg.OperationalError):
        return DatabaseAway("the journal failed: the database can't be reached")
    return JournalError(f"the journal failed: {type(error).__name__}")


def _said(error: psycopg.Error) -> str:
    if error.pgconn is not None and error.pgconn.needs_password:
        return "28"
    return next((state for said, state in _SAID if said.search(str(error))), "")


def was_refused(error: JournalError) -> bool:
    """Return whether the server has said that it has done nothing of a statement."""
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith(_NOTHING_DONE)


class Database:
    """A database that is migrated when it is first used; its connections are kept for a while."""

    def __init__(self, url: DatabaseUrl) -> None:
        """`url`: the address of the database, to which nothing connects yet."""
        self._url = url
        self._free: list[AsyncConnection[Any]] = []
        self._migrated = False
        self._limit = anyio.Semaphore(_KEPT)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection that is free."""
        while self._free:
            await self._free.pop().close()

    @asynccontextmanager
    async def connection(
        self, within: float = _ANSWER, *, first: bool = False
    ) -> AsyncIterator[AsyncConnection[Any]]:
        """Give a connection in autocommit for at most `within` seconds; one that failed is closed.

        `first`: don't wait for a place if as many as are allowed are in use.

        Raises JournalError; DatabaseAway if a later try may work.
        """
        limit = nullcontext() if first else self._limit
        try:
            with anyio.fail_after(within):
                async with limit, self._used() as connection:
                    yield connection
        except TimeoutError as error:
            raise DatabaseAway("the journal failed: the database does not answer") from error

    @asynccontextmanager
    async def _used(self) -> AsyncIterator[AsyncConnection[Any]]:
        connection = None
        try:
            connection = await self._kept() or await self._connect()
            yield connection
        except psycopg.Error as error:
            await self._throw_away(connection)
            raise failure(error) from error
        except BaseException:
            await self._throw_away(connection)
            raise
        if connection.closed or len(self._free) >= _KEPT:
            await connection.close()
        else:
            self._free.append(connection)

    async def _kept(self) -> AsyncConnection[Any] | None:
        """Return a free connection that the server has not closed, None if there is none.

        A server sends nothing on a connection that waits, unless it closes it.
        """
        while self._free:
            connection = self._free.pop()
            look = select.poll()
            look.register(connection.fileno(), select.POLLIN)
            if not look.poll(0):
                return connection
            await connection.close()
        return None

    async def _throw_away(self, connection: AsyncConnection[Any] | None) -> None:
        if connection is not None:
            await connection.close()

    async def _connect(self) -> AsyncConnection[Any]:
        connection = await AsyncConnection.connect(
            self._url.conninfo,
            autocommit=True,
            connect_timeout=5,
            tcp_user_timeout=10_000,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            options=_OPTIONS,
            client_encoding="utf8",
            application_name="acp-bridge",
        )
        try:
            if not self._migrated:
                await migrate(connection)
                self._migrated = True
        except BaseException:
            await connection.close()
            raise
        return connection
