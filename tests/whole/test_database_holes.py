"""A row of the log is missing in the database: nothing is replayed around it, and the user is told.

A row may be deleted by hand, or lost by a bad copy of the database.
"""

import sys
from typing import Any

import pytest
from anyio import fail_after

from tests.support import processes
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
        done = await processes.run([sys.executable, "-m", "acp_bridge", *words], {})
    return done.returncode, " ".join((done.stdout + done.stderr).decode().split())


@pytest.mark.hazard("K1", "K2")
async def test_a_session_of_which_a_part_was_lost_is_refused_and_goes_on_when_that_is_back(
    two: Two, world: World
) -> None:
    world.repeats = True
    sessions = {}
    async with two.here.bridge(session=False) as client:
        for hole in HOLES:
            sessions[hole] = await client.new_session(world.cwd)
            for word in ("one", "two"):
                await client.prompt(f"say {word}")
        another = await client.new_session(world.cwd)
        await client.prompt("say another")
    two.execute("CREATE TABLE w AS SELECT * FROM acp_bridge.writes")
    two.execute("CREATE TABLE b AS SELECT * FROM acp_bridge.bases")
    for hole, session_id in sessions.items():
        two.execute(
            f"{HOLES[hole]} {'AND' if 'WHERE' in HOLES[hole] else 'WHERE'} {of(session_id)}"
        )
    before = {each: stored(two, of(each)) for each in sessions.values()}
    for machine in (two.here, two.there):
        async with machine.inside(session=False) as client:
            for session_id in sessions.values():
                with pytest.raises(RpcError, match=LOST):
                    await load(client, world, session_id)
            await load(client, world, another)
            assert client.text() == "another"
    await commands_say_so(two, sessions, another)
    assert before == {each: stored(two, of(each)) for each in sessions.values()}
    for table, kept in (("writes", "w"), ("bases", "b")):
        two.execute(f"DELETE FROM acp_bridge.{table}")
        two.execute(f"INSERT INTO acp_bridge.{table} SELECT * FROM {kept}")
    async with two.there.inside(session=False) as client:
        for session_id in sessions.values():
            before_it = client.text()
            await load(client, world, session_id)
            assert client.text() == f"{before_it}onetwo"
            assert await stopped(client, client.send_prompt("say three")) == "end_turn"


def of(session_id: str) -> str:
    """The condition for the rows of a session."""
    return f"name = (SELECT name FROM acp_bridge.sessions WHERE session_id = '{session_id}')"


async def commands_say_so(two: Two, sessions: dict[str, str], another: str) -> None:
    """Commands refuse these sessions, read another one, and read the copies at their machine."""
    place = ("--home", str(two.there.world.home), "--journal", two.url)
    for session_id in sessions.values():
        status, said = await command("show", session_id, *place)
        assert status
        assert LOST in said
    _, said = await command("sessions", "--json", "--search", "another", *place)
    assert another in said
    (copies,) = two.here.world.home.glob("databases/*")
    for session_id in sessions.values():
        _, said = await command("show", session_id, "--home", str(copies))
        assert "one" in said
        assert "two" in said
