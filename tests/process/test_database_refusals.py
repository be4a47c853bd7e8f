"""A database that refuses a bridge for good: the editor and `doctor` say why, in one sentence."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from anyio import fail_after, run_process

from tests.process.bridge_support import World
from tests.process.test_database import Machine
from tests.support.fixture_agents import fixture_command
from tests.support.postgres import PASSWORD, Cluster, cluster
from tests.support.recording import RpcError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def tcp_server() -> Iterator[Cluster]:
    """A running cluster that listens on the loopback, too, and asks for a password there."""
    with cluster(tcp=True) as made:
        yield made


def name_in(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def execute(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


def wrong_password(server: Cluster) -> tuple[str, dict[str, str]]:
    return server.over_tcp(server.new_database()), {"PGPASSWORD": "another"}


def no_such_database(server: Cluster) -> tuple[str, dict[str, str]]:
    return server.new_database().replace("postgresql:///d", "postgresql:///not_d"), {}


def no_right(server: Cluster) -> tuple[str, dict[str, str]]:
    url = server.new_database()
    execute(url, f"ALTER DATABASE {name_in(url)} OWNER TO tester")
    return server.over_tcp(url), {"PGPASSWORD": PASSWORD}


def read_only(server: Cluster) -> tuple[str, dict[str, str]]:
    url = server.new_database()
    execute(url, f"ALTER DATABASE {name_in(url)} SET default_transaction_read_only = on")
    return url, {}


def not_safe(server: Cluster) -> tuple[str, dict[str, str]]:
    return f"{server.over_tcp(server.new_database())}?sslmode=require", {"PGPASSWORD": PASSWORD}


def latin_1(server: Cluster) -> tuple[str, dict[str, str]]:
    more = "ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    return server.new_database(more), {}


def newer_tables(server: Cluster) -> tuple[str, dict[str, str]]:
    url = server.new_database()
    execute(url, "CREATE SCHEMA acp_bridge CREATE TABLE version(version integer NOT NULL)")
    execute(url, "INSERT INTO acp_bridge.version VALUES (99)")
    return url, {}


async def doctor(machine: Machine, env: dict[str, str]) -> tuple[int, str]:
    """The exit code of `doctor` on a machine, and what it says, on one line."""
    options = ("--home", str(machine.world.home), *machine.options, "--", *fixture_command())
    with fail_after(60):
        done = await run_process(
            [sys.executable, "-m", "acp_bridge", "doctor", *options],
            env={**os.environ, **machine.world.env, **env},
            check=False,
        )
    return done.returncode, " ".join(done.stdout.decode().split())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (wrong_password, "the database refused the login: look at .pgpass or PGPASSWORD"),
        (no_such_database, "there is no such database: make it first"),
        (no_right, "the database's user may not do this"),
        (read_only, "the database can only be read"),
        (not_safe, "the way to the database is not as safe as sslmode asks for"),
        (latin_1, "the database does not keep text as UTF-8"),
        (newer_tables, "a newer acp-bridge made the tables of the database (version 99"),
    ],
)
async def test_the_editor_and_doctor_are_told_why_no_session_can_be_opened(
    world: World, tcp_server: Cluster, make: Any, why: str
) -> None:
    url, env = make(tcp_server)
    machine = Machine(world, url, "here")
    async with machine.bridge(session=False, env=env) as client:
        with pytest.raises(RpcError) as refused:
            await client.new_session(world.cwd)
        assert why in refused.value.message
        assert "ACP_BRIDGE_HOME" not in refused.value.message
    status, said = await doctor(machine, env)
    assert status == 2
    assert why in said


async def test_doctor_says_that_the_database_is_well_and_makes_nothing_there(
    world: World, tcp_server: Cluster
) -> None:
    url = tcp_server.new_database()
    machine = Machine(world, url, "here")
    for said in ("the first bridge makes the tables", "it can be read and written"):
        assert said in (await doctor(machine, {}))[1]
        async with machine.bridge():
            pass
