"""A newer acp-bridge brings the tables up to date under a bridge that runs."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from acp_bridge.postgres.tables import MIGRATIONS
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped
from tests.whole.test_database import Two, load, two
from tests.whole.test_database_failover import in_a_turn, without_notices

__all__ = ["two"]
pytestmark = pytest.mark.process
SENTENCE = "update acp-bridge on this machine"


def set_version(two: Two, version: int) -> None:
    two.execute(f"UPDATE acp_bridge.version SET version = {version}")


def rows(two: Two) -> list[Any]:
    """All that a bridge could have changed, as text."""
    tables = ("listing", "bridges", "sessions", "bases", "writes", "memories")
    return [sorted(map(repr, two.execute(f"SELECT * FROM acp_bridge.{one}"))) for one in tables]


def said_aside(two: Two) -> str:
    """The text of all updates in the only file that was set aside."""
    (aside,) = two.here.world.home.glob("databases/*/sessions/*.lost-*")
    with closing(sqlite3.connect(aside)) as db:
        return b"".join(lines for (lines,) in db.execute("SELECT lines FROM updates")).decode()


@pytest.mark.hazard("N4", "Q5", "K1")
async def test_a_bridge_writes_nothing_into_newer_tables_and_says_that_it_must_be_updated(
    two: Two, world: World
) -> None:
    async with two.here.inside(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        asked, _ = await in_a_turn(client, world)
        before = rows(two)
        set_version(two, len(MIGRATIONS) + 1)
        world.gates.open("g")
        await world.gates.reached("h")
        await client.logged("journal.failed")
        new = {"cwd": str(world.cwd), "mcpServers": []}
        for request in (
            client.send_prompt("say never"),
            client.send_request("session/list", {}),
            client.send_request("session/new", new),
        ):
            refused = await client.answer_to(request)
            assert SENTENCE in refused["error"]["message"]
        world.gates.open("h")
        assert await stopped(client, asked) == "end_turn"
        assert client.text().count(SENTENCE) == 1
        session_id = client.session_id
        await client.request("session/close", {"sessionId": session_id})
    assert rows(two) == before
    said = said_aside(two)
    assert all(f'"{word}"' in said for word in ("one", "two", "three"))


@pytest.mark.hazard("N4", "Q5", "K1")
async def test_a_session_at_rest_goes_on_when_the_tables_are_known_again(
    two: Two, world: World
) -> None:
    async with two.here.inside(capabilities=TELL_ACCEPTED) as client:
        await client.prompt("say before")
        asked, waits = await in_a_turn(client, world)
        set_version(two, len(MIGRATIONS) + 1)
        world.gates.open("g")
        await world.gates.reached("h")
        await client.logged("journal.failed")
        set_version(two, len(MIGRATIONS))  # the tables were put back to those of before
        await client.logged("journal.caught_up")
        world.gates.open("h")
        assert await stopped(client, asked) == "end_turn"
        assert await stopped(client, waits) == "end_turn"
        session_id = client.session_id
    async with two.there.inside(session=False) as client:
        await load(client, world, session_id)
        assert without_notices(client) == "beforeonetwothreefour"


async def test_the_turn_of_a_bridge_that_is_too_old_ends_with_its_lease(
    two: Two, world: World
) -> None:
    async with two.here.inside(capabilities=TELL_ACCEPTED) as client:
        asked = client.send_prompt("say one; gate g; say two")
        await accepted(client, asked)
        await world.gates.reached("g")
        set_version(two, len(MIGRATIONS) + 1)
        told = "database of this session"
        await client.until_recorded(lambda: told in client.text(), 15)
        assert "SIGKILL" in (await client.answer_to(asked, within=15))["error"]["message"]
        refused = await client.answer_to(client.send_prompt("say never"))
        assert SENTENCE in refused["error"]["message"]
