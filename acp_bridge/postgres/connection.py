"""Connections to the database of a journal.

Every failure of psycopg becomes a JournalError, by `failures.failure`. A connection needs nothing
of the server behind it but what `_SETTINGS` sets, so a pooler may stand between. No wait for the
server is longer than `waits.DATABASE` without a byte (`silence`).
"""

import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from types import TracebackType
from typing import Final, Self

import anyio
import psycopg

from acp_bridge.core.journal.errors import DatabaseAway
from acp_bridge.core.runtime import waits
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import tables
from acp_bridge.postgres.failures import failure, has_no_room, refuses_options
from acp_bridge.postgres.silence import BoundedConnection, NoAnswer, Silence, silent

#: the most connections in use, not counting that of a lease, and the most that are kept unused.
_KEPT: Final = 8
#: seconds for which a caller gets a connection, unless it asks for another time. A slow database
#: needs some for each statement; a silent one is given up long before.
_ANSWER: Final = 30.0
#: seconds that a new connection may take, until one that another caller gives back is taken.
_DIAL: Final = 1.0
#: seconds for what transfers all of a session.
ALL: Final = 600.0
#: what a role, a database or a server may have set in another way. Whether the database may be
#: written is its owner's word, so `default_transaction_read_only` stays as it is.
_SETTINGS: Final = {
    "lock_timeout": f"{waits.DATABASE_LOCK * 1000 + 1:.0f}ms",  # a value that nobody else has set
    "idle_in_transaction_session_timeout": "10s",
    "synchronous_commit": "on",
    "statement_timeout": "0",
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_deferrable": "off",
    "array_nulls": "on",
    "standard_conforming_strings": "on",  # else psycopg writes other bytes
    "row_security": "off",  # a policy that hides rows becomes an error
}
#: the same of settings that only some versions of the server know, with the first such version.
_NEWER: Final = {"idle_session_timeout": ("0", 140_000), "transaction_timeout": ("0", 170_000)}
#: all of them, for a connection that did not take them as options; those it doesn't know are left.
_SET: Final = (
    "(SELECT count(set_config(name, own.value, false)) FROM unnest(%s::text[], %s::text[]) AS"
    " own(name, value) JOIN pg_catalog.pg_settings USING (name))"
)
_ALL_SETTINGS: Final = {**_SETTINGS, **{name: value for name, (value, _) in _NEWER.items()}}
_ALL_SET: Final = [
    [*_ALL_SETTINGS],
    [value.replace("\\", "") for value in _ALL_SETTINGS.values()],
]
#: one of the settings, to see if the options were taken; and the version of the tables.
_TAKEN: Final = "current_setting('lock_timeout')"
_VERSION: Final = "(SELECT max(version) FROM acp_bridge.version)"


def _options(version: int = 0) -> str:
    """Return the settings, as options for a server of this version (150_004 is 15.4)."""
    more = {name: value for name, (value, since) in _NEWER.items() if version >= since}
    return " ".join(f"-c {name}={value}" for name, value in {**_SETTINGS, **more}.items())


class Database:
    """A database that is migrated when it is first used; its connections are kept for a while."""

    def __init__(self, url: DatabaseUrl, patience: float = waits.DATABASE) -> None:
        """`url`: the address of the database, to which nothing connects yet.

        `patience`: seconds without a byte of the database until it counts as silent.
        """
        self._url = url
        self._patience = patience
        self._silence = Silence()
        self._free: list[BoundedConnection] = []
        self._migrates, self._migrated = True, False
        #: False behind a pooler, which refuses settings as options, or leaves them out.
        self._takes_options = True
        #: what any server takes, until its version is known.
        self._options = _options()
        self._limit = anyio.Semaphore(_KEPT)
        #: how many have a connection, or wait for one.
        self._users = 0
        #: the last new connection was not there in time, so one that comes back is taken at once.
        self._scarce = False
        #: set when a connection is free again.
        self._back = anyio.Event()

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
    ) -> AsyncIterator[BoundedConnection]:
        """Give a connection in autocommit for at most `within` seconds; one that failed is closed.

        `first`: don't wait for a place if as many as are allowed are in use, nor for others who
        find out whether a database that was silent answers again.

        Raises JournalError; DatabaseAway if a later try may work, DatabaseSilent if it is silent.
        """
        found = self._silence.found
        try:
            with anyio.fail_after(within):
                async with nullcontext() if first else self._place(within):
                    with self._silence.asking(found, always=first):
                        async with self._used() as connection:
                            yield connection
        except TimeoutError as error:
            raise DatabaseAway("the journal failed: the database does not answer") from error

    @asynccontextmanager
    async def _place(self, within: float) -> AsyncIterator[None]:
        """Take a place among those who use a connection. Raises TimeoutError.

        Who transfers all of a session may wait longer for one than others.
        """
        with anyio.fail_after(within if within >= ALL else self._patience):
            await self._limit.acquire()
        try:
            yield
        finally:
            self._limit.release()

    @asynccontextmanager
    async def _used(self) -> AsyncIterator[BoundedConnection]:
        connection = None
        self._users += 1
        try:
            connection = await self._kept() or await self._new_or_back()
            yield connection
        except psycopg.Error as error:
            await self._throw_away(connection)
            if _is_silent(error, connection):
                await self._throw_away(*self._free)  # they might go the same way
                self._free.clear()
                raise silent() from error
            raise failure(error) from error
        except BaseException:
            await self._throw_away(connection)
            raise
        finally:
            self._users -= 1
        if connection.closed or len(self._free) >= _KEPT:
            await connection.close()
        else:
            self._free.append(connection)
            self._back.set()
            self._back = anyio.Event()

    async def _new_or_back(self) -> BoundedConnection:
        """Return a new connection, or one that another caller gives back before that is there.

        A server or a pooler may give this bridge only a few. If it gives no more at once, one of
        those is waited for. Raises psycopg.Error, DatabaseRefuses.
        """
        found: list[BoundedConnection] = []
        failed: list[Exception] = []
        refused = anyio.Event()

        async def dial(scope: anyio.CancelScope) -> None:
            until = anyio.current_time() + self._patience
            while not found:
                try:
                    found.append(await self._connect())
                    self._scarce = False
                except Exception as error:
                    failed.append(error)
                    waits_for_others = has_no_room(error) and self._users > 1
                    if not waits_for_others or anyio.current_time() >= until:
                        break
                    refused.set()
                    await anyio.sleep(_DIAL / 5)
            scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(dial, tasks.cancel_scope)
                with anyio.move_on_after(0 if self._scarce else _DIAL):
                    await refused.wait()
                while not (connection := await self._kept()):
                    await self._back.wait()
                self._scarce = True
                found.append(connection)
                tasks.cancel_scope.cancel()
        except BaseException:  # it was cancelled in the moment in which a connection came
            await self._throw_away(*found)
            raise
        if not found:
            raise failed[-1]
        self._free += found[1:]
        return found[0]

    async def _kept(self) -> BoundedConnection | None:
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

    async def _throw_away(self, *connections: BoundedConnection | None) -> None:
        for connection in connections:
            if connection is not None:
                await connection.close()

    async def _connect(self) -> BoundedConnection:
        try:
            connection = await self._dial(self._options if self._takes_options else "")
        except psycopg.OperationalError as error:
            self._options = _options()  # the next server may be of another version
            if not refuses_options(error):
                raise
            self._takes_options = False
            connection = await self._dial("")
        try:
            if self._migrated:
                await self._set(connection)
            else:
                await self._begin(connection)
            self._options = _options(connection.info.server_version)
            if self._migrates and not self._migrated:
                connection.patience = _ANSWER  # a change of the tables may take long
                await tables.migrate(connection)
                connection.patience = self._patience
                self._migrated = True
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _dial(self, options: str) -> BoundedConnection:
        connection = await BoundedConnection.connect(
            self._url.conninfo,
            autocommit=True,
            connect_timeout=int(waits.DATABASE),
            tcp_user_timeout=10_000,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            options=options,  # never those of PGOPTIONS
            client_encoding="utf8",
            application_name="acp-bridge",
            prepare_threshold=None,  # a pooler may pass each transaction to another server process
        )
        connection.patience = self._patience
        connection.on_answer = self._silence.answered
        return connection

    async def _set(self, connection: BoundedConnection) -> None:
        """Set what was not set by options."""
        if self._is_unset(connection):
            await connection.execute(f"SELECT {_SET}".encode(), _ALL_SET)

    def _is_unset(self, connection: BoundedConnection) -> bool:
        return not self._takes_options or self._options != _options(connection.info.server_version)

    async def _begin(self, connection: BoundedConnection) -> None:
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


def _is_silent(error: psycopg.Error, connection: BoundedConnection | None) -> bool:
    silent = NoAnswer, psycopg.errors.ConnectionTimeout
    return isinstance(error, silent) or (connection is not None and connection.was_silent)
