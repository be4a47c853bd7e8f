"""A row of the log is missing in the database: nothing is replayed around it, and the user is told.

A row may be deleted by hand, or lost by a bad copy of the database.
"""

import sys
from typing import Any

import pytest
from anyio import fail_after, run_process

from tests.support.recording import RpcError
from tests.whole.bridge_support import World, stopped
from tests.whole.test_database import Two, load, two

__all__ = ["two"]
pytestmark = pytest.mark.process
LOST = "the database has lost a part of this session"
HOLES = {
    "the first write": "DELETE FROM acp_bridge.writes WHERE n = 1",
    "one in the middle": "DELETE FROM acp_bridge.writes WHERE n = 4",
    "the last": "DELETE FROM acp_bridge.writes WHERE n = (SELECT max(n) FROM acp_bridge.writes)",
    "all writes": "DELETE FROM acp_bridge.writes",
    "the base": "DELETE FROM acp_bridge.bases",
    "the end of the base": "UPDATE acp_bridge.bases SET data = substr(data, 1, 9000)",
    "the first part of the base": "UPDATE acp_bridge.bases SET part = part + 1",
}


def stored(two: Two, name: str) -> list[Any]:
    """All that the database has of a session's log."""
    tables = ("writes", "bases")
    return [
        two.execute(f"SELECT * FROM acp_bridge.{one} WHERE {name} ORDER BY 1, 2") for one in tables
    ]


async def command(*words: str) -> tuple[int, str]:
    """The exit code of a command, and all that it says."""
    with fail_after(30):
        done = await run_process([sys.executable, "-m", "acp_bridge", *words], check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).decode().split())


@pytest.mark.hazard("K1", "K2")
@pytest.mark.parametrize("hole", HOLES)
async def test_a_session_of_which_a_part_was_lost_is_refused_and_goes_on_when_that_is_back(
    two: Two, world: World, hole: str
) -> None:
    async with two.here.bridge() as client:
        for word in ("one", "two"):
            await client.prompt(f"say {word}")
        session_id = client.session_id
    async with two.here.bridge() as client:
        await client.prompt("say another")
        another = client.session_id
    two.execute("CREATE TABLE w AS SELECT * FROM acp_bridge.writes")
    two.execute("CREATE TABLE b AS SELECT * FROM acp_bridge.bases")
    name = f"name = (SELECT name FROM acp_bridge.sessions WHERE session_id = '{session_id}')"
    two.execute(f"{HOLES[hole]} {'AND' if 'WHERE' in HOLES[hole] else 'WHERE'} {name}")
    before = stored(two, name)
    place = ("--home", str(two.there.world.home), "--journal", two.url)
    for machine in (two.here, two.there):
        async with machine.bridge(session=False) as client:
            with pytest.raises(RpcError, match=LOST):
                await load(client, world, session_id)
            await load(client, world, another)
            assert client.text() == "another"
    status, said = await command("show", session_id, *place)
    assert status
    assert LOST in said
    _, said = await command("sessions", "--json", "--search", "another", *place)
    assert another in said
    assert stored(two, name) == before
    (copies,) = two.here.world.home.glob("databases/*")
    _, said = await command("show", session_id, "--home", str(copies))
    assert "one" in said
    assert "two" in said
    for table, kept in (("writes", "w"), ("bases", "b")):
        two.execute(f"DELETE FROM acp_bridge.{table} WHERE {name}")
        two.execute(f"INSERT INTO acp_bridge.{table} SELECT * FROM {kept} WHERE {name}")
    async with two.there.bridge(session=False) as client:
        await load(client, world, session_id)
        assert client.text() == "onetwo"
        assert await stopped(client, client.send_prompt("say three")) == "end_turn"
