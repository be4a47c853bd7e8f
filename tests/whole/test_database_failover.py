"""A database that dies in the middle of a turn, and a copy of it that takes its place.

What a copy lacks is on the disk of the machine that had the session: a bridge that lives puts it
back, and one that died with the database leaves it there.
"""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.postgres import Cluster, cluster
from tests.support.waiting import until
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped
from tests.whole.test_database import Two, load

pytestmark = pytest.mark.process


class Failover(Two):
    """A database, its copy, and two machines whose bridges know both."""

    def __init__(self, world: World, first: Cluster, copy: Cluster) -> None:
        self.first, self.copy = first, copy
        self._url = first.new_database()
        super().__init__(world, first.or_copy(self._url, copy))

    async def copied(self) -> None:
        """Until the copy has all that the database has."""
        behind = "SELECT replay_lsn < pg_current_wal_lsn() FROM pg_stat_replication"
        self.execute("SELECT pg_switch_wal()")  # which writes what was not waited for
        await until(lambda: self.execute(behind) == [(False,)])

    async def falls_behind(self) -> None:
        """From now on the copy gets nothing any more."""
        await self.copied()
        self.copy.stop()

    def fails_over(self) -> None:
        """The database is gone, and its copy is the database."""
        if self.first.runs:
            self.first.kill()
        if not self.copy.runs:
            self.copy.start()
        self.copy.promote()


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    with cluster() as first, cluster(copies=first) as copy:
        yield first, copy


@pytest.fixture
def asynchronous(world: World, pair: tuple[Cluster, Cluster]) -> Failover:
    return Failover(world, *pair)


@pytest.fixture
def synchronous(world: World, pair: tuple[Cluster, Cluster]) -> Failover:
    pair[0].wait_for_copy()
    return Failover(world, *pair)


def without_notices(client: RecordingClient) -> str:
    """What the agent said."""
    told = client.recording.incoming()
    shown = [each["params"] for each in told if each.get("method") == "session/update"]
    return "".join(
        params["update"]["content"]["text"]
        for params in shown
        if params["update"]["sessionUpdate"] == "agent_message_chunk"
        and not params.get("_meta", {}).get("acp_bridge", {}).get("notice")
    )


async def in_a_turn(client: RecordingClient, world: World) -> tuple[Any, Any]:
    """A turn that has said one word and waits, and a prompt behind it."""
    asked = client.send_prompt("say one; gate g; say two; gate h; say three")
    await accepted(client, asked)
    await world.gates.reached("g")
    await client.until_recorded(lambda: "one" in client.text())
    waits = client.send_prompt("say four")
    await accepted(client, waits)
    return asked, waits


async def goes_through(
    failover: Failover, client: RecordingClient, world: World, turn: tuple[Any, Any]
) -> None:
    """The database dies in the turn; another machine has all of it afterwards."""
    asked, waits = turn
    failover.first.kill()
    world.gates.open("g")
    await world.gates.reached("h")
    failover.fails_over()
    await client.logged("journal.caught_up", within=10)
    world.gates.open("h")
    assert await stopped(client, asked, within=10) == "end_turn"
    assert await stopped(client, waits, within=10) == "end_turn"
    assert without_notices(client) == "beforeonetwothreefour"


async def is_whole_elsewhere(failover: Failover, world: World, session_id: str) -> None:
    async with failover.there.inside(session=False) as client:
        await load(client, world, session_id)
        assert without_notices(client) == "beforeonetwothreefour"


async def test_with_a_synchronous_copy_a_turn_goes_through_the_failover_and_nothing_is_lost(
    synchronous: Failover, world: World
) -> None:
    async with synchronous.here.inside(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        await goes_through(synchronous, client, world, await in_a_turn(client, world))
        session_id = client.session_id
    await is_whole_elsewhere(synchronous, world, session_id)


async def test_what_an_asynchronous_copy_lacks_is_put_back_by_the_bridge_that_has_the_session(
    asynchronous: Failover, world: World
) -> None:
    async with asynchronous.here.inside(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        await asynchronous.falls_behind()
        await goes_through(asynchronous, client, world, await in_a_turn(client, world))
        session_id = client.session_id
    await is_whole_elsewhere(asynchronous, world, session_id)


async def test_what_was_accepted_outlives_the_death_of_the_bridge_and_its_database_at_once(
    synchronous: Failover, world: World
) -> None:
    exits = -signal.SIGKILL
    async with synchronous.here.bridge(capabilities=TELL_ACCEPTED, exits=exits) as client:
        await client.prompt("say before")
        await in_a_turn(client, world)
        synchronous.first.kill()
        client.terminate(signal.SIGKILL)
        await client.wait()
        session_id = client.session_id
    synchronous.fails_over()
    synchronous.lease_ends()
    async with synchronous.there.inside(session=False) as other:
        loaded = await load(other, world, session_id)
        assert loaded["_meta"]["acp_bridge"]["held"] == [[{"type": "text", "text": "say four"}]]
        assert without_notices(other).startswith("before")
        assert "Interrupted" in other.text()


async def test_what_an_asynchronous_copy_lacks_of_a_dead_bridge_is_in_a_file_of_its_machine(
    asynchronous: Failover, world: World
) -> None:
    exits = -signal.SIGKILL
    async with asynchronous.here.bridge(capabilities=TELL_ACCEPTED, exits=exits) as client:
        await client.prompt("say before")
        await asynchronous.falls_behind()
        await in_a_turn(client, world)
        asynchronous.first.kill()
        client.terminate(signal.SIGKILL)
        await client.wait()
        session_id = client.session_id
    asynchronous.fails_over()
    asynchronous.lease_ends()
    async with asynchronous.here.inside(session=False) as client:
        await load(client, world, session_id)
        assert without_notices(client) == "before"
        await client.logged("journal.set_aside")
    (aside,) = asynchronous.here.world.home.glob("databases/*/sessions/*.lost-*")
    assert aside.name in client.stderr.decode()


async def test_a_session_that_an_asynchronous_copy_does_not_know_is_lost_and_kept_aside(
    asynchronous: Failover, world: World
) -> None:
    async with asynchronous.here.inside(capabilities=TELL_ACCEPTED) as client:
        await asynchronous.falls_behind()
        await client.new_session(world.cwd)
        asked = client.send_prompt("say one; gate g; say two")
        await accepted(client, asked)
        await world.gates.reached("g")
        asynchronous.fails_over()
        world.gates.open("g")
        await client.logged("journal.set_aside", within=10)
        assert (await client.answer_to(client.send_prompt("say never")))["error"]
    (aside,) = asynchronous.here.world.home.glob("databases/*/sessions/*.lost-*")
    assert aside.name in client.stderr.decode()
