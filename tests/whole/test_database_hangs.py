"""A database that hangs: the way to it takes everything and brings no answer, and nobody is told.

The lease is long, so that nothing here happens because of its end.
"""

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import psycopg
import pytest

from tests.support.client import RecordingClient
from tests.support.forwarder import Forwarder, forwarder
from tests.support.postgres import PASSWORD, Cluster, cluster
from tests.whole.bridge_support import TELL_ACCEPTED, World, stopped
from tests.whole.test_bridge_socket import listening
from tests.whole.test_database import Two, load
from tests.whole.test_database_failover import in_a_turn, without_notices

pytestmark = pytest.mark.process

#: seconds after which a write counts as not made, and some for a busy machine.
GIVEN_UP = 9.0
UNKNOWN = -32601
NO_ANSWER = "does not answer"


@pytest.fixture(scope="module")
def tcp_server() -> Iterator[Cluster]:
    with cluster(tcp=True) as made:
        yield made


class Hanging(Two):
    """Two machines: the way of the first one to the database goes through a forwarder."""

    def __init__(self, world: World, server: Cluster, way: Forwarder) -> None:
        super().__init__(world, server.new_database())
        self.way = way
        server_port = server.over_tcp(self.url).partition("@")[2].partition("/")[0]
        for machine, where in ((self.here, f"127.0.0.1:{way.port}"), (self.there, server_port)):
            machine.over(server.over_tcp(self.url).replace(server_port, where))
            machine.lease = 300


@pytest.fixture
async def site(world: World, tcp_server: Cluster) -> AsyncIterator[Hanging]:
    world.env["PGPASSWORD"] = PASSWORD
    async with forwarder(*tcp_server.listens) as way:
        yield Hanging(world, tcp_server, way)


@asynccontextmanager
async def hangs(site: Hanging, world: World, *, anew: bool = True) -> AsyncIterator[None]:
    """In a turn that says one word more, of which the database does not tell that it has it.

    `anew`: new connections hang, too.
    """
    site.way.hang(anew=anew)
    world.gates.open("g")
    await site.way.asked()
    try:
        yield
    finally:
        site.way.flow()


@asynccontextmanager
async def connected(world: World, editor: RecordingClient) -> AsyncIterator[RecordingClient]:
    """One more client of the editor's bridge."""
    bridge = await listening(world, editor)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(bridge.socket)
        reading, writing = os.dup(connection.fileno()), os.dup(connection.fileno())
    async with RecordingClient(reading, writing) as client:
        yield client
        client.close_stdin()


def at_once(client: RecordingClient) -> None:
    """What was waited for until now came before the write was given up."""
    assert "two" not in without_notices(client)


@pytest.mark.hazard("N4", "T2")
async def test_what_tells_of_no_write_is_answered_at_once(site: Hanging, world: World) -> None:
    async with site.here.bridge(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        asked, waits = await in_a_turn(client, world)
        async with hangs(site, world):
            of_session = {"sessionId": client.session_id}
            for method, params in (
                ("no/such", {}),
                ("_acp_bridge/no_such", of_session),
            ):
                answer = await client.answer_to(client.send_request(method, params))
                assert answer["error"]["code"] == UNKNOWN, method
                at_once(client)
            live = await client.request("_acp_bridge/live", {})
            assert [row["sessionId"] for row in live["sessions"]] == [client.session_id]
            async with connected(site.here.world, client) as other:
                await other.initialize({})
                at_once(client)
        world.gates.open("h")
        assert await stopped(client, asked, GIVEN_UP) == "end_turn"
        assert await stopped(client, waits, GIVEN_UP) == "end_turn"
        assert without_notices(client) == "beforeonetwothreefour"


@pytest.mark.hazard("N4", "K1", "Q5", "Q13.11", "T2", "V1")
async def test_a_turn_is_visibly_unrecorded_and_nothing_of_it_is_lost_or_there_twice(
    site: Hanging, world: World
) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        asked, waits = await in_a_turn(client, world)
        async with hangs(site, world):
            await client.until_text("journal can't be written", within=GIVEN_UP)
            await client.until_recorded(lambda: "two" in without_notices(client))
            refused = await client.answer_to(client.send_prompt("say never"), GIVEN_UP)
            assert "not taken" in refused["error"]["message"]
            assert NO_ANSWER in refused["error"]["message"]
            assert client.recording.answers(asked) == client.recording.answers(waits) == []
        await client.logged("journal.caught_up", within=GIVEN_UP)
        world.gates.open("h")
        assert await stopped(client, asked, GIVEN_UP) == "end_turn"
        assert await stopped(client, waits, GIVEN_UP) == "end_turn"
        assert without_notices(client) == "beforeonetwothreefour"
        session_id = client.session_id
    async with site.there.inside(session=False) as client:
        await load(client, world, session_id)
        assert without_notices(client) == "beforeonetwothreefour"


@pytest.mark.hazard("C1", "N4")
async def test_a_stop_is_answered_when_its_agent_has_answered(site: Hanging, world: World) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked, waits = await in_a_turn(client, world)
        async with hangs(site, world):
            client.cancel()
            assert await stopped(client, asked, GIVEN_UP) == "cancelled"
            client.cancel()
            assert await stopped(client, waits, GIVEN_UP) == "cancelled"
        await client.logged("journal.caught_up", within=GIVEN_UP)
        await ready(client)


@pytest.mark.hazard("N4")
async def test_lists_and_sessions_that_need_the_database_are_refused_in_seconds(
    site: Hanging, world: World
) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked, waits = await in_a_turn(client, world)
        another = {"sessionId": "f" * 32, "cwd": str(world.cwd), "mcpServers": []}
        async with hangs(site, world):
            requests = [
                client.send_request("session/list", {}),
                client.send_request("session/new", {"cwd": str(world.cwd), "mcpServers": []}),
                client.send_request("session/load", another),
                # More than there are connections: none waits for the others.
                *(client.send_request("session/list", {}) for _ in range(12)),
            ]
            for request in requests:
                answer = await client.answer_to(request, GIVEN_UP)
                assert NO_ANSWER in answer["error"]["message"]
            await client.until_text("journal can't be written", within=GIVEN_UP)
        await client.logged("journal.caught_up", within=GIVEN_UP)
        world.gates.open("h")
        assert await stopped(client, asked, GIVEN_UP) == "end_turn"
        assert await stopped(client, waits, GIVEN_UP) == "end_turn"
        assert "sessions" in await client.request("session/list", {})


@pytest.mark.hazard("N4")
async def test_a_bridge_that_starts_while_it_hangs_refuses_all_new_sessions_together(
    site: Hanging, world: World
) -> None:
    site.way.hang()
    async with site.here.inside(session=False) as client:
        new = {"cwd": str(world.cwd), "mcpServers": []}
        requests = [client.send_request("session/new", new) for _ in range(5)]
        with anyio.fail_after(GIVEN_UP):
            for request in requests:
                answer = await client.answer_to(request, GIVEN_UP)
                assert NO_ANSWER in answer["error"]["message"]
        site.way.flow()
        await client.new_session(world.cwd)
        assert (await client.prompt("say one"))["stopReason"] == "end_turn"


@pytest.mark.hazard("N4", "T2.5")
async def test_a_session_whose_row_is_locked_holds_nothing_of_another_one_back(
    site: Hanging, world: World
) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked, waits = await in_a_turn(client, world)
        locked = client.session_id
        with psycopg.connect(site.url) as connection:
            row = "SELECT FROM acp_bridge.sessions WHERE session_id = %s FOR UPDATE"
            connection.execute(row, (locked,))
            world.gates.open("g")
            await world.gates.reached("h")
            other = await client.new_session(world.cwd)
            assert (await client.prompt("say other"))["stopReason"] == "end_turn"
            assert client.text(other) == "other"
            at_once(client)
            await client.until_recorded(lambda: "two" in client.text(locked), GIVEN_UP)
        await client.logged("journal.caught_up", within=GIVEN_UP)
        world.gates.open("h")
        assert await stopped(client, asked, GIVEN_UP) == "end_turn"
        assert await stopped(client, waits, GIVEN_UP) == "end_turn"


@pytest.mark.hazard("N4.10", "T2")
async def test_a_database_that_takes_two_seconds_for_each_write_is_slow_and_not_away(
    site: Hanging, world: World
) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        site.execute(
            "CREATE FUNCTION public.late() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(2); RETURN NEW; END $$;"
            " CREATE TRIGGER late BEFORE UPDATE ON acp_bridge.sessions"
            " FOR EACH ROW EXECUTE FUNCTION public.late()"
        )
        asked = [client.send_prompt(f"say {word}") for word in ("one", "two")]
        for each in asked:
            assert await stopped(client, each, 30) == "end_turn"
        assert client.text() == "onetwo"
        assert b"journal.failed" not in client.stderr
        site.execute("DROP TRIGGER late ON acp_bridge.sessions")


@pytest.mark.hazard("N4", "Q13")
async def test_connections_that_hang_are_given_up_for_new_ones(site: Hanging, world: World) -> None:
    async with site.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked, waits = await in_a_turn(client, world)
        lists = [client.send_request("session/list", {}) for _ in range(5)]  # on as many of them
        for each in lists:
            await client.answer_to(each)
        async with hangs(site, world, anew=False):
            await client.logged("journal.caught_up", within=GIVEN_UP)
            assert "sessions" in await client.request("session/list", {})
            world.gates.open("h")
            assert await stopped(client, asked) == "end_turn"
            assert await stopped(client, waits) == "end_turn"
        assert without_notices(client) == "onetwothreefour"


@pytest.mark.hazard("N4", "P1", "Q13")
async def test_a_session_is_closed_and_a_bridge_ends_while_it_hangs(
    site: Hanging, world: World
) -> None:
    async with site.here.bridge(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        closed = client.session_id
        await client.new_session(world.cwd)
        await in_a_turn(client, world)
        site.way.hang()
        world.gates.open("g")
        await site.way.asked()
        await client.answer_to(client.send_request("session/close", {"sessionId": closed}))
        client.close_stdin()
        await client.wait(within=3)
    site.way.flow()


async def ready(client: RecordingClient) -> None:
    """Until the database takes prompts again."""
    while True:
        answer = await client.answer_to(client.send_prompt("say again"), GIVEN_UP)
        if "result" in answer:
            return
        assert "not taken" in answer["error"]["message"]
