"""Connections to a real server, and the tables."""

import anyio
import pytest

from acp_bridge.journal.errors import NewerVersion
from acp_bridge.journal.postgres.connection import Database, DatabaseAway
from acp_bridge.journal.postgres.tables import MIGRATIONS
from tests.support.postgres import Cluster


async def test_two_that_migrate_at_once_make_the_tables_once(database_url: str) -> None:
    async def use() -> None:
        async with Database(database_url) as database, database.connection() as connection:
            cursor = await connection.execute("SELECT version FROM acp_bridge.version")
            assert await cursor.fetchall() == [(len(MIGRATIONS),)]

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(use)


async def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    with anyio.fail_after(30):
        async with Database(database_url) as database, database.connection() as connection:
            await connection.execute("UPDATE acp_bridge.version SET version = 99")
        with pytest.raises(NewerVersion, match="99"):
            async with Database(database_url) as later, later.connection():
                pass


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_server_that_stops_is_away_and_is_used_again_later(
    server: Cluster, database_url: str, mode: str
) -> None:
    with anyio.fail_after(60):
        async with Database(database_url) as database:
            async with database.connection():
                pass
            server.stop(mode)
            try:
                for _ in range(2):  # a connection that was kept, then a new one
                    with pytest.raises(DatabaseAway) as caught:
                        async with database.connection() as connection:
                            await connection.execute("SELECT 1")
                    assert "/" not in str(caught.value)
            finally:
                server.start()
            async with database.connection() as connection:
                await connection.execute("SELECT 1")
