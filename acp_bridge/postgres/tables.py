"""The tables of a journal in PostgreSQL; brings a database up to date.

Invariants
- A bridge writes nothing into tables of a newer version. Every statement that changes something has
  the condition `KNOWN`, or follows one that has it in the same transaction.
- A migration is one transaction, under a lock that each such statement waits for. A statement that
  has begun ends first, and one that comes later finds the new version.

A session is a row of the listing, a base (the bytes of its SQLite file as that was after one write)
and the writes behind the base, in order. Its key is the name of its file, since an id may be too
long for an index. Scripts are only ever added at the end.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from acp_bridge.core.journal.errors import DatabaseRefuses, NewerVersion

_LOCK: Final = 0x6163705F62726964  # "acp_brid"
#: `listing` has one row: whoever changes what is listed counts it up, so changes come in its order.
#: `address` of a bridge: the origin under which other machines reach it, if they do.
#: `base` is the number of the write that the base goes up to, `applied` that of the last write. A
#: row that is `dropped` is there for other machines alone, which had it in their listings before.
#: `used`, `pieces` and `words` sum the session up (`summary`) as it was after write `summary_of`.
MIGRATIONS: Final = (
    """
    CREATE TABLE acp_bridge.listing(changes bigint NOT NULL);
    INSERT INTO acp_bridge.listing VALUES (0);
    CREATE TABLE acp_bridge.bridges(
        owner text COLLATE "C" PRIMARY KEY, machine text NOT NULL, host text NOT NULL,
        until timestamptz NOT NULL
    );
    CREATE TABLE acp_bridge.sessions(
        name text COLLATE "C" PRIMARY KEY, session_id text NOT NULL, cwd text NOT NULL,
        agent text NOT NULL, agent_session_id text, title text, updated_at text NOT NULL,
        agent_info text, prompted boolean NOT NULL, deleted boolean NOT NULL DEFAULT false,
        dropped boolean NOT NULL DEFAULT false, changed bigint NOT NULL,
        base bigint NOT NULL DEFAULT 0, applied bigint NOT NULL DEFAULT 0,
        owner text, fence bigint NOT NULL DEFAULT 0
    );
    CREATE INDEX changed ON acp_bridge.sessions(changed);
    CREATE TABLE acp_bridge.bases(
        name text COLLATE "C" REFERENCES acp_bridge.sessions ON DELETE CASCADE,
        part integer, data bytea NOT NULL, PRIMARY KEY (name, part)
    );
    CREATE TABLE acp_bridge.writes(
        name text COLLATE "C" REFERENCES acp_bridge.sessions ON DELETE CASCADE,
        n bigint, statements text NOT NULL, turn bigint NOT NULL, lines bytea,
        PRIMARY KEY (name, n)
    );
    CREATE TABLE acp_bridge.memories(
        name text COLLATE "C" REFERENCES acp_bridge.sessions ON DELETE CASCADE,
        agent_session_id text NOT NULL, at bigint, data bytea NOT NULL, PRIMARY KEY (name, at)
    );
    """,
    "ALTER TABLE acp_bridge.bridges ADD COLUMN address text",
    """
    ALTER TABLE acp_bridge.sessions ADD COLUMN summary_of bigint, ADD COLUMN summary_form integer,
        ADD COLUMN used text, ADD COLUMN pieces text[], ADD COLUMN words text[] COLLATE "C"
    """,
)


_NEWER: Final = "is the version of newer tables"
#: an SQL condition: an error if a newer version has made the tables, else true. PostgreSQL has no
#: expression that raises an error, but it can't read this text as a boolean.
KNOWN: Final = (
    f"(SELECT CASE WHEN max(version) > {len(MIGRATIONS)}"
    f" THEN (max(version) || ' {_NEWER}')::boolean ELSE true END FROM acp_bridge.version)"
)
_IN_ERROR: Final = re.compile(rf"(\d+) {_NEWER}")

#: SQL for whether the database is read-only, has the tables, and lets the user use or make them.
_STATE: Final = """
SELECT current_setting('transaction_read_only') = 'on', made.at IS NOT NULL,
  CASE WHEN made.at IS NULL
    THEN has_database_privilege(current_database(), 'CREATE')
    ELSE has_schema_privilege('acp_bridge', 'USAGE') AND (
      SELECT bool_and(has_table_privilege(c.oid, one))
      FROM pg_class AS c, unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS one
      WHERE relnamespace = made.at AND relkind = 'r'
    )
  END
FROM (SELECT (SELECT oid FROM pg_namespace WHERE nspname = 'acp_bridge') AS at) AS made
"""


class NewerTables(NewerVersion, DatabaseRefuses):
    """A newer acp-bridge has brought the tables of the database up to date."""

    def __init__(self, version: int) -> None:
        """`version`: the version of the tables."""
        super().__init__(
            f"a newer acp-bridge made the tables of the database (version {version}, this one"
            f" knows {len(MIGRATIONS)}): update acp-bridge on this machine"
        )


def newer(error: psycopg.Error) -> NewerTables | None:
    """Return what the error of a statement with `KNOWN` says; None if it is another error."""
    found = None
    if isinstance(error, psycopg.errors.InvalidTextRepresentation):
        found = _IN_ERROR.search(str(error))
    return NewerTables(int(found[1])) if found else None


async def migrate(connection: AsyncConnection[Any], scripts: Sequence[str] = MIGRATIONS) -> None:
    """Bring the database up to date by `scripts`, in one transaction under one lock.

    Raises psycopg.Error, DatabaseRefuses: the database is left as it is.
    """
    check_encoding(connection)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        await connection.execute("CREATE SCHEMA IF NOT EXISTS acp_bridge")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS acp_bridge.version(version integer NOT NULL)"
        )
        version = await _version(connection)
        check_version(version, len(scripts))
        if version < len(scripts):
            await connection.execute("LOCK TABLE acp_bridge.version IN ACCESS EXCLUSIVE MODE")
            for script in scripts[version:]:
                await connection.execute(script.encode())
            await connection.execute("DELETE FROM acp_bridge.version")
            await connection.execute("INSERT INTO acp_bridge.version VALUES (%s)", (len(scripts),))


async def look(connection: AsyncConnection[Any]) -> int:
    """Return the version of the tables, 0 if there are none, for a user who may read and write all.

    Nothing is changed. Raises psycopg.Error, DatabaseRefuses.
    """
    check_encoding(connection)
    cursor = await connection.execute(_STATE)
    row = await cursor.fetchone()
    assert row
    read_only, made, may = row
    if read_only:
        raise psycopg.errors.ReadOnlySqlTransaction
    if not may:
        raise psycopg.errors.InsufficientPrivilege
    if not made:
        return 0
    version = await _version(connection)
    check_version(version)
    return version


async def _version(connection: AsyncConnection[Any]) -> int:
    """Return the version of the tables, 0 if there are none.

    Raises psycopg.Error; DatabaseRefuses if they are there without their version.
    """
    cursor = await connection.execute(
        "SELECT max(version), to_regclass('acp_bridge.listing') IS NOT NULL FROM acp_bridge.version"
    )
    version, made = await cursor.fetchone() or (None, False)
    if made and version is None:
        raise DatabaseRefuses(
            "the tables of the journal are there without their version: restore the row of"
            " acp_bridge.version from a backup. If no newer acp-bridge than this one has used them,"
            f" you can also run INSERT INTO acp_bridge.version VALUES ({len(MIGRATIONS)})"
        )
    return int(version or 0)


def check_encoding(connection: AsyncConnection[Any]) -> None:
    """Raise DatabaseRefuses if the database could not keep every text."""
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise DatabaseRefuses(
            "the database does not keep text as UTF-8: make one with ENCODING UTF8"
        )


def check_version(version: int, known: int = len(MIGRATIONS)) -> None:
    """Raise NewerTables if tables of this version are newer than the version that is known."""
    if version > known:
        raise NewerTables(version)
