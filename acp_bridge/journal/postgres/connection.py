"""Connections to the database of a journal.

Every failure of psycopg becomes a JournalError, by `failures.failure`. A connection needs nothing
of the server behind it but what `_SETTINGS` sets, so a pooler may stand between.
"""

import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from types import TracebackType
from typing import Any, Final, Self

import anyio
import psycopg
from psycopg import AsyncConnection

from acp_bridge.journal.errors import DatabaseAway
from acp_bridge.journal.postgres import tables
from acp_bridge.journal.postgres.failures import failure, refuses_options
from acp_bridge.settings import DatabaseUrl

#: the most connections in use, not counting that of a lease, and the most that are kept unused.
_KEPT: Final = 8
#: seconds for which a caller gets a connection, unless it asks for another time.
_ANSWER: Final = 10.0
#: seconds for what transfers all of a session.
ALL: Final = 600.0
#: what a role, a database or a server may have set in another way. Whether the database may be
#: written is its owner's word, so `default_transaction_read_only` stays as it is.
_SETTINGS: Final = {
    "lock_timeout": "5001ms",  # a value that nobody else has set
    "idle_in_transaction_session_timeout": "10s",
    "synchronous_commit": "on",
    "statement_timeout": "0",
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_deferrable": "off",
    "array_nulls": "on",
    "standard_conforming_strings": "on",  # else psycopg writes other bytes
    "row_security": "off",  # a policy that hides rows becomes an error
}
_OPTIONS: Final = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
#: the same, and what older versions don't know, for a connection that did not take them as options.
_SET: Final = (
    "(SELECT count(set_config(name, own.value, false)) FROM unnest(%s::text[], %s::text[]) AS"
    " own(name, value) JOIN pg_catalog.pg_settings USING (name))"
)
_ALL_SETTINGS: Final = {**_SETTINGS, "transaction_timeout": "0"}
_ALL_SET: Final = [
    [*_ALL_SETTINGS],
    [value.replace("\\", "") for value in _ALL_SETTINGS.values()],
]
#: one of the settings, to see if the options were taken; and the version of the tables.
_TAKEN: Final = "current_setting('lock_timeout')"
_VERSION: Final = "(SELECT max(version) FROM acp_bridge.version)"
#: the first version that has settings beyond those.
_HAS_MORE: Final = 170_000


class Database:
    """A database that is migrated when it is first used; its connections are kept for a while."""

    def __init__(self, url: DatabaseUrl) -> None:
        """`url`: the address of the database, to which nothing connects yet."""
        self._url = url
        self._free: list[AsyncConnection[Any]] = []
        self._migrates, self._migrated = True, False
        #: False behind a pooler, which refuses settings as options, or leaves them out.
        self._takes_options = True
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

    async def look(self) -> int:
        """Connect, and change nothing; returns the version of the tables, 0 if there are none.

        Raises JournalError, also if the user may not do all that a bridge does.
        """
        self._migrates = False
        async with self.connection() as connection:
            return await tables.look(connection)

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
        try:
            connection = await self._dial(_OPTIONS if self._takes_options else "")
        except psycopg.OperationalError as error:
            if not refuses_options(error):
                raise
            self._takes_options = False
            connection = await self._dial("")
        try:
            if self._migrated:
                await self._set(connection)
            else:
                await self._begin(connection)
            if self._migrates and not self._migrated:
                await tables.migrate(connection)
                self._migrated = True
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _dial(self, options: str) -> AsyncConnection[Any]:
        return await AsyncConnection.connect(
            self._url.conninfo,
            autocommit=True,
            connect_timeout=5,
            tcp_user_timeout=10_000,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            options=options,  # never those of PGOPTIONS
            client_encoding="utf8",
            application_name="acp-bridge",
            prepare_threshold=None,  # a pooler may pass each transaction to another server process
        )

    async def _set(self, connection: AsyncConnection[Any]) -> None:
        """Set what was not set by options."""
        if self._is_unset(connection):
            await connection.execute(f"SELECT {_SET}".encode(), _ALL_SET)

    def _is_unset(self, connection: AsyncConnection[Any]) -> bool:
        return not self._takes_options or connection.info.server_version >= _HAS_MORE

    async def _begin(self, connection: AsyncConnection[Any]) -> None:
        """Find out, in one round trip, if the options were taken and the tables are up to date.

        What was not set by options is set. Raises psycopg.Error, DatabaseRefuses.
        """
        took, sets = self._takes_options, self._is_unset(connection)
        what, given = (f"{_TAKEN}, {_SET}", _ALL_SET) if sets else (f"{_TAKEN}, 0", None)
        try:
            version = _VERSION if self._migrates else "NULL"
            cursor = await connection.execute(f"SELECT {what}, {version}".encode(), given)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            cursor = await connection.execute(f"SELECT {what}, NULL".encode(), given)
        taken, _, version_there = await cursor.fetchone() or (None, 0, None)
        self._takes_options = took and taken == _SETTINGS["lock_timeout"]
        if took and not self._takes_options and not sets:
            await self._set(connection)
        if version_there is not None:
            tables.check_version(version_there)
            tables.check_encoding(connection)
            self._migrated = version_there == len(tables.MIGRATIONS)
