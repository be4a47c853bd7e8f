"""Connections to a real server, and the tables."""

import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import anyio
import psycopg
import pytest

from acp_bridge.core.journal.errors import (
    DatabaseAway,
    DatabaseRefuses,
    DatabaseSilent,
    JournalError,
    NewerVersion,
)
from acp_bridge.core.settings import DatabaseUrl
from acp_bridge.postgres.connection import ALL, Database
from acp_bridge.postgres.failures import failure
from acp_bridge.postgres.tables import MIGRATIONS
from acp_bridge.postgres.url import parse
from tests.support.postgres import PASSWORD, Cluster


@pytest.fixture(autouse=True)
def without_pg_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)


async def use(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("SELECT 1")


async def test_two_that_migrate_at_once_make_the_tables_once(database: DatabaseUrl) -> None:
    async def migrate() -> None:
        async with Database(database) as opened, opened.connection() as connection:
            cursor = await connection.execute("SELECT version FROM acp_bridge.version")
            assert await cursor.fetchall() == [(len(MIGRATIONS),)]

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(migrate)


async def test_a_database_of_a_newer_version_is_refused(database: DatabaseUrl) -> None:
    with anyio.fail_after(30):
        async with Database(database) as opened, opened.connection() as connection:
            await connection.execute("UPDATE acp_bridge.version SET version = 99")
        with pytest.raises(NewerVersion, match="99"):
            async with Database(database) as later, later.connection():
                pass


async def test_no_connection_of_a_bridge_is_ended_because_it_is_idle(
    database: DatabaseUrl, database_url: str
) -> None:
    name = database_url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as connection:
        if connection.info.server_version < 140_000:
            pytest.skip("this server ends no idle connection")
        connection.execute(f"ALTER DATABASE {name} SET idle_session_timeout = '1s'".encode())
    async with Database(database) as opened, AsyncExitStack() as stack:
        for _ in range(3):
            made = await stack.enter_async_context(opened.connection())
            cursor = await made.execute("SHOW idle_session_timeout")
            assert await cursor.fetchone() == ("0",)


async def test_who_gets_no_connection_more_has_one_that_another_gives_back(
    server: Cluster, database_url: str
) -> None:
    name = database_url.partition("?")[0].rpartition("/")[2]
    database = parse(database_url.replace("user=tester", "user=guest"))
    elsewhere = database_url.replace(name, "postgres")  # a connection there counts for nothing
    with psycopg.connect(elsewhere, autocommit=True) as connection, anyio.fail_after(30):
        connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 1".encode())
        async with Database(database) as opened, anyio.create_task_group() as tasks:
            for _ in range(7):
                tasks.start_soon(use, opened)


@contextmanager
def stopped(server: Cluster, how: str) -> Iterator[None]:
    if how == "kill":
        server.kill()
    else:
        server.stop(how)
    try:
        yield
    finally:
        server.start()


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
async def test_a_server_that_stops_is_away_and_is_used_again_later(
    server: Cluster, database: DatabaseUrl, how: str
) -> None:
    with anyio.fail_after(60):
        async with Database(database) as opened:
            await use(opened)
            with stopped(server, how):
                for _ in range(2):
                    with pytest.raises(DatabaseAway) as caught:
                        await use(opened)
                    assert "/" not in str(caught.value)
            await use(opened)


@pytest.mark.parametrize("how", ["fast", "kill"])
async def test_a_kept_connection_that_the_server_has_closed_is_not_given_out(
    server: Cluster, database: DatabaseUrl, how: str
) -> None:
    with anyio.fail_after(60):
        async with Database(database) as opened:
            async with opened.connection() as one, opened.connection() as other:
                await one.execute("SELECT 1")
                await other.execute("SELECT 1")
            with stopped(server, how):
                pass
            await use(opened)


async def test_a_connection_is_used_again_unless_its_use_has_failed(database: DatabaseUrl) -> None:
    with anyio.fail_after(30):
        async with Database(database) as opened:
            async with opened.connection() as first:
                pass
            with pytest.raises(JournalError, match="SyntaxError"):
                async with opened.connection() as second:
                    await second.execute("SELEKT 1")
            async with opened.connection() as third:
                pass
            assert first is second
            assert third is not second


@pytest.mark.parametrize("given", [None, "another"])
async def test_a_refused_login_says_where_the_password_comes_from(
    tcp_server: Cluster, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    url = parse(tcp_server.over_tcp(tcp_server.new_database()))
    if given is not None:
        monkeypatch.setenv("PGPASSWORD", given)
    await refused(url, r"refused the login: look at \.pgpass or PGPASSWORD")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with anyio.fail_after(30):
        async with Database(url) as opened:
            await use(opened)


async def test_a_user_that_the_server_does_not_know_is_a_refused_login(
    tcp_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tcp_server.new_database()
    await refused(parse(url.replace("tester", "stranger")), "refused the login")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    await refused(parse(tcp_server.over_tcp(url, "stranger")), "refused the login")


async def test_a_database_that_does_not_exist_is_named_as_what_to_make(database_url: str) -> None:
    url = parse(database_url.replace("postgresql:///d", "postgresql:///not_d"))
    await refused(url, "there is no such database: make it first")


async def test_a_way_less_safe_than_the_url_asks_for_is_refused(tcp_server: Cluster) -> None:
    url = tcp_server.over_tcp(tcp_server.new_database())
    await refused(parse(f"{url}?sslmode=require"), "not as safe as sslmode asks")


async def test_a_database_that_is_not_of_utf_8_is_refused(server: Cluster) -> None:
    url = server.new_database("ENCODING SQL_ASCII TEMPLATE template0")
    await refused(parse(url), "does not keep text as UTF-8")


async def test_a_server_with_too_many_connections_is_away(
    server: Cluster, database: DatabaseUrl, database_url: str
) -> None:
    name = database_url.partition("?")[0].rpartition("/")[2]
    with anyio.fail_after(30):
        async with Database(database) as opened, opened.connection() as connection:
            await connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0".encode())
            await connection.execute(b"GRANT ALL ON SCHEMA acp_bridge TO guest")
            async with Database(parse(database_url.replace("tester", "guest"))) as guest:
                with pytest.raises(DatabaseAway, match="no room"):
                    await use(guest)


async def refused(url: DatabaseUrl, why: str) -> None:
    """A login is refused for good, and the words have nothing of the server's."""
    with anyio.fail_after(30):
        async with Database(url) as opened:
            with pytest.raises(JournalError, match=why) as caught:
                await use(opened)
    assert not isinstance(caught.value, DatabaseAway)
    assert not any(word in str(caught.value) for word in ("127.0.0.1", "FATAL", "guest", "/"))


async def test_what_is_told_is_on_the_disk_though_the_database_would_not_wait_for_that(
    database: DatabaseUrl, database_url: str
) -> None:
    name = database_url.partition("?")[0].rpartition("/")[2]
    with anyio.fail_after(30):
        async with Database(database) as opened, opened.connection() as connection:
            await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        async with Database(database) as opened, opened.connection() as connection:
            cursor = await connection.execute("SHOW synchronous_commit")
            assert await cursor.fetchone() == ("on",)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('server certificate for "a" does not match host name "b"', "is for another name"),
        ("SSL error: certificate verify failed", "can't be verified: sslrootcert"),
        ('root certificate file "/home/me/root.crt" does not exist', "can't be verified"),
        ("server does not support SSL, but SSL was required", "not as safe as sslmode asks for"),
        ('FATAL:  no such database: "d"', "there is no such database"),
        ("FATAL:  SASL authentication failed", "refused the login"),
        ("FATAL:  connection requires a valid client certificate", "refused the login"),
        ('FATAL:  certificate authentication failed for user "u"', "refused the login"),
        ('FATAL:  permission denied for database "d"', "the database's user may not do this"),
        ("FATAL:  unsupported startup parameter: geqo", "a pooler before the database"),
        (
            'FATAL:  database "d" is not currently accepting connections',
            "the database takes no connections",
        ),
        ("session is read-only", "the database can only be read"),
    ],
)
def test_what_libpq_says_without_a_state_is_told_as_what_it_is(said: str, why: str) -> None:
    told = failure(psycopg.OperationalError(said))
    assert isinstance(told, DatabaseRefuses)
    assert why in str(told)
    assert "/" not in str(told)


@pytest.mark.parametrize("host", ["certificate.example.org", "root.crt", "SSL error"])
def test_a_word_in_the_name_of_a_host_is_not_taken_for_a_reason(host: str) -> None:
    said = f'connection to server at "{host}", port 5432 failed: Connection refused'
    assert "can't be reached" in str(failure(psycopg.OperationalError(said)))


#: seconds.
SHORT = 0.3


async def transfer(database: Database) -> None:
    copy = "COPY (SELECT 1) TO STDOUT"
    async with (
        database.connection() as connection,
        connection.transaction(),
        connection.cursor().copy(copy) as rows,
    ):
        async for _ in rows:
            pass


async def keeps(database: Database, count: int) -> None:
    """Until the database has so many connections that nobody uses."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(database.connection())


async def test_a_server_that_stands_still_is_waited_for_once_and_used_when_it_goes_on(
    server: Cluster, database: DatabaseUrl
) -> None:
    with anyio.fail_after(30):
        async with Database(database, SHORT) as opened:
            await keeps(opened, 8)
            refused: list[JournalError] = []

            async def one() -> None:
                with pytest.raises(DatabaseAway) as caught:
                    await use(opened)
                refused.append(caught.value)

            with server.standing_still():
                async with anyio.create_task_group() as tasks:
                    for _ in range(30):  # more than there are connections
                        tasks.start_soon(one)
                async with anyio.create_task_group() as tasks:
                    for _ in range(30):
                        tasks.start_soon(one)
            assert {str(error) for error in refused} == {
                "the journal failed: the database does not answer"
            }
            await use(opened)


async def test_a_transfer_that_gets_no_answer_is_told_as_a_database_that_does_not_answer(
    server: Cluster, database: DatabaseUrl
) -> None:
    with anyio.fail_after(30):
        async with Database(database, SHORT) as opened:
            await keeps(opened, 1)
            with server.standing_still(), pytest.raises(DatabaseSilent):
                await transfer(opened)
            await transfer(opened)


async def test_who_waits_for_a_place_is_refused_in_time_unless_it_transfers_a_session(
    database: DatabaseUrl,
) -> None:
    with anyio.fail_after(30):
        async with Database(database, SHORT) as opened:
            transferred = anyio.Event()

            async def transfer() -> None:
                async with opened.connection(ALL) as connection:
                    await connection.execute("SELECT 1")
                transferred.set()

            async with anyio.create_task_group() as tasks:
                async with AsyncExitStack() as stack:
                    for _ in range(8):
                        await stack.enter_async_context(opened.connection())
                    tasks.start_soon(transfer)
                    with pytest.raises(DatabaseAway):
                        await use(opened)
                    assert not transferred.is_set()
                await transferred.wait()
