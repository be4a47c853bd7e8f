"""A database that is far away: what a session costs there, in round trips."""

from collections.abc import Iterator

import pytest

from tests.process.bridge_support import World, stopped
from tests.process.test_database import Machine
from tests.support.line import line
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import PASSWORD, Cluster, cluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def tcp_server() -> Iterator[Cluster]:
    """A running cluster that asks for a password."""
    with cluster(tcp=True) as made:
        yield made


#: the most round trips until a session is made.
MOST = 10


@pytest.mark.parametrize("tables", ["made", "not made"])
async def test_a_new_session_costs_few_round_trips(
    world: World, tcp_server: Cluster, tables: str
) -> None:
    url = tcp_server.new_database()
    if tables == "made":
        async with Machine(world, url, "there").bridge():
            pass
    with line(tcp_server.port) as far:
        machine = Machine(world, far.url(url), "here")
        async with machine.bridge(session=False, env={"PGPASSWORD": PASSWORD}) as client:
            counts = []
            for _ in range(3):
                before = far.trips
                await client.new_session(world.cwd)
                counts.append(far.trips - before)
                assert await stopped(client, client.send_prompt("say on")) == "end_turn"
    assert max(counts[1:] if tables == "not made" else counts) <= MOST, counts
