"""Errors of the database while a session runs: it is away for that time, and nothing is lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import psycopg
import pytest

from tests.support.client import RecordingClient
from tests.support.faults import Faults, drawn
from tests.support.postgres import Cluster
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped
from tests.whole.test_database import Two, load
from tests.whole.test_database_failover import in_a_turn, without_notices

pytestmark = pytest.mark.process


class Site(Two):
    """Two machines whose bridges log in as the user who owns the database, and is nobody else."""

    def __init__(self, world: World, url: str) -> None:
        super().__init__(world, url.replace("user=tester", "user=guest"))
        self.own_url, self.name = url, url.partition("?")[0].rpartition("/")[2]
        self._all = url.replace(self.name, "postgres")

    def rule(self, *statements: str) -> None:
        """Execute statements in another database, as the superuser, and end all connections."""
        end = (
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            f" WHERE datname LIKE '{self.name}%'"
        )
        with psycopg.connect(self._all, autocommit=True) as connection:
            for sql in (end, *statements):
                for each in sql.split("; "):
                    connection.execute(each.encode())
                    connection.execute(end.encode())
            # A connection that was being made has what was set before, and nobody can see it yet.
            connection.execute("SELECT pg_sleep(0.3)")
            connection.execute(end.encode())

    def own(self, sql: str) -> None:
        """Execute a statement in the database as the superuser."""
        with psycopg.connect(self.own_url, autocommit=True) as connection:
            connection.execute(sql.encode())


@pytest.fixture
def site(world: World, server: Cluster) -> Site:
    made = Site(world, server.new_database())
    made.here.lease = 24  # of which half has passed before an unknown write is given up
    return made


def by(*ways: tuple[str, str, str]) -> dict[str, Any]:
    return {name: (begin, end) for name, begin, end in ways}


#: statements that begin and end an error that the server has by itself: in another database, or
#: (those of the schema) in this one. `THIS` is that of the database.
RULED = by(
    (
        "only to be read",
        "ALTER DATABASE THIS SET default_transaction_read_only = on",
        "ALTER DATABASE THIS RESET default_transaction_read_only",
    ),
    ("no login", "ALTER ROLE guest NOLOGIN", "ALTER ROLE guest LOGIN"),
    (
        "closed",
        "ALTER DATABASE THIS ALLOW_CONNECTIONS false",
        "ALTER DATABASE THIS ALLOW_CONNECTIONS true",
    ),
    (
        "renamed database",
        # One that takes no connections is in use by nobody who comes back in between.
        "ALTER DATABASE THIS ALLOW_CONNECTIONS false; ALTER DATABASE THIS RENAME TO THIS_x;"
        " ALTER DATABASE THIS_x ALLOW_CONNECTIONS true",
        "ALTER DATABASE THIS_x ALLOW_CONNECTIONS false; ALTER DATABASE THIS_x RENAME TO THIS;"
        " ALTER DATABASE THIS ALLOW_CONNECTIONS true",
    ),
    (
        "no room",
        "ALTER DATABASE THIS CONNECTION LIMIT 0",
        "ALTER DATABASE THIS CONNECTION LIMIT -1",
    ),
)
OWN = by(
    (
        "renamed schema",
        "ALTER SCHEMA acp_bridge RENAME TO x",
        "ALTER SCHEMA x RENAME TO acp_bridge",
    ),
    (
        "no right to write",
        "REVOKE ALL ON acp_bridge.writes FROM guest",
        "GRANT ALL ON acp_bridge.writes TO guest",
    ),
    (
        "no right in the schema",
        "REVOKE ALL ON SCHEMA acp_bridge FROM guest",
        "GRANT ALL ON SCHEMA acp_bridge TO guest",
    ),
)
DRAWN = drawn(4, seed=3838)


@contextmanager
def an_error(site: Site, name: str) -> Iterator[None]:
    if name in DRAWN:
        faults = Faults(site.own_url, leases=True)
        with faults.lasting(name):
            yield
        return
    begin, end = {**RULED, **OWN}[name]
    execute: Callable[[str], None] = site.rule if name in RULED else site.own
    execute(begin.replace("THIS", site.name))
    try:
        yield
    finally:
        execute(end.replace("THIS", site.name))


errors = pytest.mark.parametrize("error", [*RULED, *OWN, *DRAWN])


@pytest.mark.hazard("N4", "Q5", "Q13", "K1", "T2", "V1")
@errors
async def test_an_error_in_a_turn_loses_no_word_and_the_prompt_that_waits_runs(
    site: Site, world: World, error: str
) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        asked, waits = await in_a_turn(client, world)
        with an_error(site, error):
            world.gates.open("g")
            await world.gates.reached("h")
            await client.logged("journal.failed", within=15)
            refused = await client.answer_to(client.send_prompt("say never"), within=15)
            assert "not taken" in refused["error"]["message"]
            assert "another machine" not in refused["error"]["message"]
        await client.logged("journal.caught_up", within=15)
        world.gates.open("h")
        assert await stopped(client, asked, within=15) == "end_turn"
        assert await stopped(client, waits, within=15) == "end_turn"
        assert without_notices(client) == "beforeonetwothreefour"
        session_id = client.session_id
    async with site.there.inside(session=False) as client:
        await load(client, world, session_id)
        assert without_notices(client) == "beforeonetwothreefour"
    assert not [*site.here.world.home.glob("databases/*/sessions/*.lost-*")]


@pytest.mark.hazard("N4", "Q5", "K1")
@errors
async def test_a_prompt_whose_turn_comes_in_an_error_runs_once_when_that_is_over(
    site: Site, world: World, error: str
) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        waits = client.send_prompt("say four")
        await accepted(client, waits)
        with an_error(site, error):
            world.gates.open("g")
            assert "result" in await client.answer_to(asked, within=15)
            refused = await client.answer_to(client.send_prompt("say never"), within=15)
            assert "not taken" in refused["error"]["message"]
            assert client.recording.answers(waits) == []
        assert await stopped(client, waits, within=15) == "end_turn"
        assert without_notices(client) == "onefour"


@pytest.mark.hazard("N4.1")
async def test_an_error_at_rest_refuses_prompts_until_it_is_over(site: Site, world: World) -> None:
    world.repeats = True
    async with site.here.inside() as client:
        await client.prompt("say before")
        for error in (*RULED, *OWN):
            with an_error(site, error):
                sentence = "can only be read" if error == "only to be read" else "not taken: "
                await refused(client, sentence)
            await ready(client)
        session_id, seen = client.session_id, without_notices(client)
    async with site.there.inside(session=False) as client:
        await load(client, world, session_id)
        assert without_notices(client) == seen
        assert seen.replace("never", "") == "before" + "again" * len([*RULED, *OWN])


async def refused(client: RecordingClient, sentence: str) -> None:
    """Until a prompt is refused with a sentence: the error takes hold with the next connection."""
    with anyio.fail_after(15):
        answer: Any = {}
        while sentence not in answer.get("error", {}).get("message", ""):
            answer = await client.answer_to(client.send_prompt("say never"), within=15)
            assert "result" in answer or "not taken: " in answer["error"]["message"]


async def ready(client: RecordingClient) -> None:
    """Until the database takes prompts again, which one prompt of them tells."""
    with anyio.fail_after(15):
        while "result" not in await client.answer_to(client.send_prompt("say again"), within=15):
            pass


@pytest.mark.hazard("N3", "N4")
async def test_a_session_that_another_machine_has_tells_its_clients_once_and_keeps_all_aside(
    site: Site, world: World
) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked = client.send_prompt("say one; gate g; say two; gate h; say three")
        await world.gates.reached("g")
        await client.until_recorded(lambda: "one" in client.text())
        site.own("UPDATE acp_bridge.sessions SET owner = 'another', fence = fence + 1")
        world.gates.open("g")
        await client.logged("journal.lost", within=15)
        world.gates.open("h")
        await client.answer_to(asked, within=15)
        refused = await client.answer_to(client.send_prompt("say never"), within=15)
        assert "another machine" in refused["error"]["message"]
        assert client.text().count("can't go on here") == 1
        shown = without_notices(client)
    (aside,) = site.here.world.home.glob("databases/*/sessions/*.lost-*")
    said = aside.read_bytes()
    assert all(word.encode() in said for word in ("one", "two", "three") if word in shown)
