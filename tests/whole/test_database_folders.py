"""The repository of a session's folder, as the last turn left it on another machine, and now."""

import os

import pytest

from tests.support.git import Repository
from tests.support.postgres import Cluster
from tests.support.waiting import until
from tests.whole.bridge_support import World, stopped
from tests.whole.test_database import Machine, Two, load

pytestmark = pytest.mark.process

#: what the session says of it begins so.
OTHERWISE = "stands otherwise"


@pytest.fixture
def two(world: World, server: Cluster) -> Two:
    return Two(world, server.new_database())


@pytest.fixture
def checkout(world: World) -> Repository:
    """The working folder as a repository; both machines have it under the same name."""
    return Repository(world.cwd)


async def turned(two: Two, commit: str) -> str:
    """Run a turn here; returns the session when it is kept at which commit that ended."""
    kept = f"SELECT 1 FROM acp_bridge.writes WHERE position('{commit}' in statements) > 0"
    async with two.here.inside() as client:
        assert await stopped(client, client.send_prompt("say one")) == "end_turn"
        await until(lambda: two.execute(kept), 10)
        return client.session_id


async def said(machine: Machine, world: World, session_id: str, *, resume: bool = False) -> str:
    """What the session says when it is opened on a machine."""
    async with machine.inside(session=False) as client:
        if resume:
            params = {"sessionId": session_id, "cwd": str(world.cwd), "mcpServers": []}
            await client.request("session/resume", params)
            return client.text(session_id)
        await load(client, world, session_id)
        return client.text()


@pytest.mark.parametrize("resume", [False, True])
async def test_a_folder_that_stands_otherwise_at_another_machine_is_told_of_there_once(
    two: Two, world: World, checkout: Repository, resume: bool
) -> None:
    before = checkout.commit
    session_id = await turned(two, before)
    checkout.git("checkout", "-q", "-b", "aside")
    checkout.write("two")
    checkout.add()
    checkout.write("three")
    told = await said(two.there, world, session_id, resume=resume)
    assert told.count(OTHERWISE) == 1
    assert f"ended on `{os.uname().nodename}`" in told
    assert f"There: commit `{before[:12]}` on branch `main`, no tracked file changed." in told
    here = f"commit `{checkout.commit[:12]}` on branch `aside`, tracked files changed"
    assert f"Here: {here}." in told
    assert OTHERWISE not in await said(two.there, world, session_id, resume=resume)


async def test_nothing_is_said_at_another_machine_where_it_stands_the_same(
    two: Two, world: World, checkout: Repository
) -> None:
    session_id = await turned(two, checkout.commit)
    assert OTHERWISE not in await said(two.there, world, session_id)


async def test_nothing_is_said_on_the_machine_of_the_last_turn(
    two: Two, world: World, checkout: Repository
) -> None:
    session_id = await turned(two, checkout.commit)
    checkout.write("two")
    assert OTHERWISE not in await said(two.here, world, session_id)
    assert OTHERWISE in await said(two.there, world, session_id)
    assert OTHERWISE not in await said(two.here, world, session_id)


async def test_a_session_of_files_alone_keeps_nothing_of_it(
    world: World, checkout: Repository
) -> None:
    async with world.bridge() as client:
        await client.prompt("say one")
        await client.prompt("say two")
    kept = b"".join(path.read_bytes() for path in world.home.rglob("*") if path.is_file())
    assert checkout.commit.encode() not in kept
