"""A database that refuses a bridge for good: the editor and `doctor` say why, in one sentence."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from anyio import fail_after

from acp_bridge.postgres.tables import MIGRATIONS
from tests.remote.serve.certificate import certificate
from tests.support import processes
from tests.support.fixture_agents import fixture_command
from tests.support.postgres import PASSWORD, Cluster, cluster
from tests.support.recording import RpcError
from tests.support.rights import for_commoner
from tests.whole.bridge_support import World
from tests.whole.test_database import Machine

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


def no_version(server: Cluster) -> tuple[str, dict[str, str]]:
    url = server.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(b"CREATE SCHEMA acp_bridge")
        for script in MIGRATIONS:
            connection.execute(script.encode())
        connection.execute(b"CREATE TABLE acp_bridge.version(version integer NOT NULL)")
    return url, {}


def closed(server: Cluster) -> tuple[str, dict[str, str]]:
    url, other = server.new_database(), server.new_database()
    execute(other, f"ALTER DATABASE {name_in(url)} ALLOW_CONNECTIONS false")
    return url, {}


@pytest.fixture(scope="module")
def tls_server() -> Iterator[tuple[Cluster, Path]]:
    """A running cluster that offers TLS as `other.example`, and its certificate."""
    with TemporaryDirectory(prefix="tls-") as made:
        folder = for_commoner(Path(made))
        cert, key = certificate(folder, "DNS:other.example")
        for_commoner(Path(key))
        settings = ("ssl=on", f"ssl_cert_file={cert}", f"ssl_key_file={key}")
        with cluster(tcp=True, settings=settings) as server:
            yield server, Path(cert)


def verified(server: Cluster, mode: str, root: Path) -> str:
    where = server.over_tcp(server.new_database())
    return f"{where}?sslmode={mode}&sslrootcert={root}"


def other_name(server: Cluster, cert: Path) -> str:
    return verified(server, "verify-full", cert)


def signed_by_another(server: Cluster, cert: Path) -> str:
    folder = cert.parent / "another"
    folder.mkdir(exist_ok=True)
    return verified(server, "verify-full", Path(certificate(folder, "IP:127.0.0.1")[0]))


def signed_by_unknown(server: Cluster, cert: Path) -> str:
    return verified(server, "verify-ca", cert.parent / "not_there.pem")


async def doctor(machine: Machine, env: dict[str, str]) -> tuple[int, str]:
    """The exit code of `doctor` on a machine, and what it says, on one line."""
    options = ("--home", str(machine.world.home), *machine.options, "--", *fixture_command())
    with fail_after(60):
        command = [sys.executable, "-m", "acp_bridge", "doctor", *options]
        done = await processes.run(command, {**machine.world.env, **env})
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
        (no_version, "the tables of the journal are there without their version"),
        (closed, "the database takes no connections: an administrator can allow them"),
    ],
)
async def test_the_editor_is_told_why_no_session_can_be_opened(
    world: World, tcp_server: Cluster, make: Any, why: str
) -> None:
    url, env = make(tcp_server)
    await editor_says(Machine(world, url, "here"), env, why)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (wrong_password, "the database refused the login: look at .pgpass or PGPASSWORD"),
        (newer_tables, "a newer acp-bridge made the tables of the database (version 99"),
    ],
)
async def test_doctor_says_so_too(world: World, tcp_server: Cluster, make: Any, why: str) -> None:
    """The login is refused, or all that follows it, in the words that the editor has."""
    url, env = make(tcp_server)
    status, said = await doctor(Machine(world, url, "here"), env)
    assert status == 2
    assert why in said


async def editor_says(machine: Machine, env: dict[str, str], why: str) -> None:
    """The error of `session/new`."""
    for name, value in env.items():
        machine.world.monkeypatch.setenv(name, value)
    async with machine.inside(session=False) as client:
        with pytest.raises(RpcError) as refused:
            await client.new_session(machine.world.cwd)
        assert why in refused.value.message
        assert "ACP_BRIDGE_HOME" not in refused.value.message


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (other_name, "the server's certificate is for another name"),
        (signed_by_another, "the server's certificate can't be verified: sslrootcert must name"),
        (signed_by_unknown, "the server's certificate can't be verified: sslrootcert must name"),
    ],
)
async def test_the_editor_is_told_what_is_wrong_with_the_certificate(
    world: World, tls_server: tuple[Cluster, Path], make: Any, why: str
) -> None:
    machine, env = Machine(world, make(*tls_server), "here"), {"PGPASSWORD": PASSWORD}
    await editor_says(machine, env, why)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_a_certificate_that_is_known_is_enough_where_its_name_is_not_asked(
    world: World, tls_server: tuple[Cluster, Path]
) -> None:
    machine = Machine(world, verified(tls_server[0], "verify-ca", tls_server[1]), "here")
    world.monkeypatch.setenv("PGPASSWORD", PASSWORD)
    async with machine.inside() as client:
        assert (await client.prompt("say one"))["stopReason"] == "end_turn"


async def test_doctor_says_that_the_database_is_well_and_makes_nothing_there(
    world: World, tcp_server: Cluster
) -> None:
    url = tcp_server.new_database()
    machine = Machine(world, url, "here")
    for said in ("the first bridge makes the tables", "it can be read and written"):
        assert said in (await doctor(machine, {}))[1]
        async with machine.inside():
            pass
