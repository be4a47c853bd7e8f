"""A database that is far away: what a session costs there, in round trips."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.bridge_support import World, stopped
from tests.process.test_database import Machine
from tests.support.line import line
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import PASSWORD, Cluster, cluster

pytestmark = pytest.mark.process
#: the most round trips until a session is made, with all that it takes to connect.
MOST = 10
LOGIN = {"PGPASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def tcp_server() -> Iterator[Cluster]:
    """A running cluster that asks for a password."""
    with cluster(tcp=True) as made:
        yield made


async def costs(world: World, server: Path | int, url: str, user: str) -> list[int]:
    """The round trips of each of three sessions, of a bridge that was just started."""
    counts = []
    with line(server, 0.02) as far:  # what begins after the answer gets no further
        machine = Machine(world, far.url(url, user), "here")
        async with machine.bridge(session=False, env=LOGIN) as client:
            for _ in range(3):
                before = far.trips
                await client.new_session(world.cwd)
                counts.append(far.trips - before)
                assert await stopped(client, client.send_prompt("say on")) == "end_turn"
    return counts


async def test_a_new_session_takes_few_round_trips_also_with_the_connection(
    world: World, tcp_server: Cluster
) -> None:
    url = tcp_server.new_database()
    async with Machine(world, tcp_server.over_tcp(url), "there").bridge(env=LOGIN):
        pass  # the tables are made
    for _ in range(2):  # with a new data folder, and with one that has sessions
        counts = await costs(world, tcp_server.port, url, "guest")
        assert max(counts) <= MOST, counts


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_so_it_does_through_a_pooler(world: World, server: Cluster, mode: str) -> None:
    url = server.new_database()
    async with Machine(world, url, "there").bridge():
        pass
    with pgbouncer(server, mode) as folder:
        counts = await costs(world, folder / ".s.PGSQL.6432", url, "tester")
        assert max(counts) <= MOST, counts
