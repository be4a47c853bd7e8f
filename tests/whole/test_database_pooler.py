"""A pooler before the database: with transactions or sessions of its own, or with neither."""

import re
from pathlib import Path

import psycopg
import pytest

from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import Cluster
from tests.support.recording import RpcError
from tests.whole.bridge_support import World, stopped
from tests.whole.test_database import Machine, load

pytestmark = pytest.mark.process


def through(url: str, folder: Path) -> str:
    """The URL of the same database through the pooler of a folder."""
    return re.sub(r"host=[^&]*", f"host={folder}", url).replace("port=5432", "port=6432")


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("more", ["", "ignore_startup_parameters = options"])
async def test_sessions_of_two_machines_go_on_through_a_pooler(
    world: World, server: Cluster, mode: str, more: str
) -> None:
    own = server.new_database()
    with pgbouncer(server, mode, more) as folder:
        here, there = (Machine(world, through(own, folder), name) for name in ("here", "there"))
        async with here.inside() as client:
            for number in range(12):  # a statement is prepared when it is used often
                asked = client.send_prompt(f"say {number}")
                assert await stopped(client, asked, within=10) == "end_turn"
            session_id, seen = client.session_id, client.text()
        async with there.inside(session=False) as client:
            await load(client, world, session_id)
            assert client.text() == seen == "".join(map(str, range(12)))
            assert await stopped(client, client.send_prompt("say on")) == "end_turn"


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_the_isolation_that_a_database_has_set_refuses_no_prompt_through_a_pooler(
    world: World, server: Cluster, mode: str
) -> None:
    own = server.new_database()
    name = own.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(own, autocommit=True) as connection:
        setting = f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"
        connection.execute(setting.encode())
    world.repeats = True
    with pgbouncer(server, mode) as folder:
        machine = Machine(world, through(own, folder), "here")
        async with machine.inside() as client:
            sessions = [await client.new_session(world.cwd) for _ in range(6)]
            for number in range(5):
                asked = [client.send_prompt(f"say {number}", session) for session in sessions]
                for each in asked:
                    assert await stopped(client, each, within=10) == "end_turn"


@pytest.mark.parametrize("size", [1, 2, 4])
async def test_a_pooler_that_gives_a_bridge_few_connections_refuses_nothing_and_lives_on(
    world: World, server: Cluster, size: int
) -> None:
    world.repeats = True
    new = {"cwd": str(world.cwd), "mcpServers": []}
    with pgbouncer(server, "session", f"default_pool_size = {size}") as folder:
        machine = Machine(world, through(server.new_database(), folder), "here")
        async with machine.inside(session=False) as client:
            opened = [client.send_request("session/new", new) for _ in range(4)]
            answers = [await client.answer_to(each, 20) for each in opened]
            sessions = [each["result"]["sessionId"] for each in answers]
            for number in range(10):
                asked = [client.send_prompt(f"say {number}", session) for session in sessions]
                for each in asked:
                    assert await stopped(client, each, within=10) == "end_turn"


async def test_a_pooler_that_allows_no_transactions_is_refused_with_a_sentence(
    world: World, server: Cluster
) -> None:
    with pgbouncer(server, "statement") as folder:
        machine = Machine(world, through(server.new_database(), folder), "here")
        async with machine.inside(session=False) as client:
            with pytest.raises(RpcError, match="pool_mode must be session or transaction"):
                await client.new_session(world.cwd)
