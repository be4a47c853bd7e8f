"""Bridges of two versions with one database, and migrations at every bad moment."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import AsyncConnection

from acp_bridge.core.journal.errors import DatabaseAway, DatabaseRefuses, JournalError
from acp_bridge.core.journal.file import Write
from acp_bridge.core.records import replace
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres import listing, log, tables
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.index import CopiedIndex
from acp_bridge.postgres.lease import Lease
from acp_bridge.postgres.memory import Memories, Saved
from tests.postgres.session_files import INFO, SESSION, made
from tests.support.waiting import until

#: what a newer version adds; it waits for a lock that the test holds.
GATE = 77
NEWER = (
    *tables.MIGRATIONS,
    "ALTER TABLE acp_bridge.writes ADD COLUMN more text;"
    f" SELECT pg_advisory_xact_lock({GATE}); CREATE TABLE acp_bridge.more()",
)
VERSION = "SELECT max(version), to_regclass('acp_bridge.more') IS NOT NULL FROM acp_bridge.version"
SENTENCE = "update acp-bridge on this machine"


class Site:
    """A database with its tables, and a connection of the test's own."""

    def __init__(self, url: str) -> None:
        self._own = psycopg.connect(url, autocommit=True)
        self._url = url

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self._own.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    async def newer(self) -> None:
        """Migrate as a newer version does."""
        async with await AsyncConnection.connect(
            self._url, autocommit=True, application_name="newer"
        ) as connection:
            await tables.migrate(connection, NEWER)

    async def waits(self, count: int = 1) -> None:
        """Wait until this many statements wait for a lock."""
        sql = "SELECT 1 FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM"
        sql += " pg_database WHERE datname = current_database())"
        await until(lambda: len(self.execute(sql)) == count, 10)

    def all(self) -> list[list[tuple[Any, ...]]]:
        """All rows of all tables."""
        names = ("listing", "bridges", "sessions", "bases", "writes", "memories", "version")
        return [
            self.execute(f"SELECT * FROM acp_bridge.{name} ORDER BY 1, 2")
            if name not in ("listing", "version")
            else self.execute(f"SELECT * FROM acp_bridge.{name}")
            for name in names
        ]

    def close(self) -> None:
        self._own.close()


@pytest.fixture
async def site(database: DatabaseUrl, database_url: str) -> Any:
    async with Database(database) as opened, opened.connection():
        pass
    made = Site(database_url)
    yield made
    made.close()


class Older:
    """What a bridge of this version does with the database."""

    def __init__(self, database: Database, home: Path) -> None:
        self.database = database
        self.path = made(home / "sessions" / "s.db")
        self.lease = Lease(database, home, 60)
        self.index = CopiedIndex(home / "index.db", database, self.lease.owners)
        self.memories = Memories(home / "agent")
        (home / "agent").mkdir()
        (home / "agent" / "a.jsonl").write_text("remembered")
        self.fence = 0

    async def begin(self) -> None:
        await self.lease.begin()
        async with self.database.connection() as connection:
            await log.store(connection, INFO, self.path, self.lease.owner)
        self.fence = (await self.lease.claim(SESSION)).fence

    async def use(self, how: Callable[[log.Connection], Awaitable[Any]]) -> None:
        async with self.database.connection() as connection:
            await how(connection)

    @property
    def owned(self) -> tuple[str, int]:
        return self.lease.owner, self.fence

    async def put(self, *, prompted: bool = False) -> None:
        rows = [log.row_of(1, Write((), 1, (b"{}",)))]
        await self.use(
            lambda c: log.put(c, SESSION, *self.owned, rows, sure=True, prompted=prompted)
        )

    async def prompt(self) -> None:
        await self.put(prompted=True)

    async def store(self) -> None:
        other = replace(INFO, session_id="other")
        path = made(self.path.with_name("other.db"), info=other)
        await self.use(lambda c: log.store(c, other, path, self.lease.owner))

    async def store_long(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "_ONE_STATEMENT", 0)
            await self.store()

    async def rebase(self) -> None:
        await self.use(lambda c: log.rebase(c, SESSION, self.path, *self.owned))

    async def refence(self) -> None:
        await self.use(lambda c: log.fence(c, SESSION, self.lease.owners))

    async def fetch(self) -> None:
        await self.use(lambda c: log.fetch(c, SESSION, self.path.with_name("fetched.db")))

    async def save(self) -> None:
        await self.use(lambda c: self.memories.save(c, SESSION, "a", Saved(), self.owned))

    async def bury(self) -> None:
        await self.use(lambda c: listing.bury(c, replace(INFO, session_id="buried")))

    async def claim(self) -> None:
        await self.lease.claim(SESSION)

    async def renew(self) -> None:
        self.lease.until = 0
        await self.lease.begin()

    async def begin_anew(self) -> None:
        lease = Lease(self.database, self.path.parent, 60)
        await lease.begin()

    async def index_put(self) -> None:
        await self.index.put(replace(INFO, updated_at="2027-01-01"))

    async def remove(self) -> None:
        await self.index.remove(SESSION, known=True, agent="an-agent")

    async def set_aside(self) -> None:
        await self.index.set_aside(SESSION)

    async def list(self) -> None:
        await self.index.page(None, None, None)


USES = [
    name
    for name in vars(Older)
    if not name.startswith("_") and name not in ("begin", "use", "owned")
]


@pytest.mark.parametrize("use", USES)
async def test_no_statement_of_a_bridge_changes_newer_tables_or_reads_them_as_its_own(
    site: Site, database: DatabaseUrl, tmp_path: Path, use: str
) -> None:
    with anyio.fail_after(30):
        async with Database(database) as opened:
            older = Older(opened, tmp_path / "home")
            await older.begin()
            await getattr(older, use)()
        async with Database(database) as opened:
            site.execute("TRUNCATE acp_bridge.sessions, acp_bridge.bridges CASCADE")
            older = Older(opened, tmp_path / "again")
            await older.begin()
            site.execute("UPDATE acp_bridge.version SET version = version + 1")
            before = site.all()
            with pytest.raises(JournalError, match=SENTENCE) as refused:
                await getattr(older, use)()
            assert isinstance(
                refused.value.__cause__ or refused.value, DatabaseRefuses | psycopg.Error
            )
            await older.lease.release(SESSION, older.fence)
            await older.lease.end()
            assert site.all() == before
            await older.index.close()


async def test_what_has_begun_before_a_migration_ends_first_and_what_comes_in_it_finds_newer_tables(
    site: Site, database: DatabaseUrl, tmp_path: Path
) -> None:
    found: list[str] = []

    async def late(older: Older) -> None:
        with pytest.raises(JournalError, match=SENTENCE) as refused:
            await older.put()
        found.append(str(refused.value))

    async def opens() -> None:
        with pytest.raises(JournalError, match=SENTENCE) as refused:
            async with Database(database) as other, other.connection():
                pass
        found.append(str(refused.value))

    with anyio.fail_after(30):
        async with Database(database) as opened, AsyncExitStack() as began:
            older = Older(opened, tmp_path / "home")
            await older.begin()
            site.execute(f"SELECT pg_advisory_lock({GATE})")
            async with anyio.create_task_group() as tasks:
                connection = await began.enter_async_context(opened.connection())
                await began.enter_async_context(connection.transaction())
                assert await log.head(connection, SESSION)
                tasks.start_soon(site.newer)
                await site.waits()  # for what has begun
                rows = [log.row_of(1, Write((), 1, (b"{}",)))]
                assert await log.put(
                    connection, SESSION, *older.owned, rows, sure=True, prompted=False
                )
                await began.aclose()
                await site.waits()  # at the gate, in the middle of the migration
                tasks.start_soon(late, older)
                tasks.start_soon(opens)
                await site.waits(3)
                site.execute(f"SELECT pg_advisory_unlock({GATE})")
    assert len(found) == 2
    assert site.execute("SELECT n FROM acp_bridge.writes") == [(1,)]


@pytest.mark.parametrize("how", ["its connection ends", "it is cancelled"])
async def test_a_migration_that_dies_in_the_middle_has_changed_nothing_and_the_next_one_makes_it(
    site: Site, database: DatabaseUrl, tmp_path: Path, how: str
) -> None:
    with anyio.fail_after(30):
        async with Database(database) as opened:
            older = Older(opened, tmp_path / "home")
            await older.begin()
            before = site.all()
            site.execute(f"SELECT pg_advisory_lock({GATE})")
            async with anyio.create_task_group() as tasks:

                async def dies() -> None:
                    with pytest.raises(psycopg.OperationalError):
                        await site.newer()

                tasks.start_soon(dies)
                await site.waits()
                kills = "pg_terminate_backend" if "ends" in how else "pg_cancel_backend"
                site.execute(
                    f"SELECT {kills}(pid) FROM pg_stat_activity WHERE application_name = 'newer'"
                )
            assert site.all() == before
            assert site.execute(VERSION) == [(len(tables.MIGRATIONS), False)]
            await older.put()
            site.execute(f"SELECT pg_advisory_unlock({GATE})")
            await site.newer()
            assert site.execute(VERSION) == [(len(NEWER), True)]
            with pytest.raises(JournalError, match=SENTENCE):
                await older.put()


async def test_newer_versions_that_migrate_at_the_same_time_do_it_once(site: Site) -> None:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(site.newer)
    assert site.execute(VERSION) == [(len(NEWER), True)]


async def test_a_migration_that_waits_for_too_long_is_tried_again_later(
    site: Site, database: DatabaseUrl, tmp_path: Path
) -> None:
    with anyio.fail_after(30):
        async with Database(database) as opened:
            older = Older(opened, tmp_path / "home")
            await older.begin()
            site.execute(f"SELECT pg_advisory_lock({GATE})")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(site.newer)
                await site.waits()
                with pytest.raises(DatabaseAway, match="held by another"):
                    await older.put()
                site.execute(f"SELECT pg_advisory_unlock({GATE})")
