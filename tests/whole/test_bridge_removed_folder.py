"""What a user meets whose session's files were removed or restored while a bridge lives."""

import shutil
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, refused, stopped

pytestmark = [pytest.mark.process, pytest.mark.hazard("Q13", "K1")]


def copy(home: Path, to: Path) -> None:
    shutil.copytree(home / "sessions", to / "sessions", symlinks=True, dirs_exist_ok=True)


async def load_again(world: World, client: RecordingClient, texts: list[str]) -> None:
    """Close the session and load it, in the same bridge."""
    await client.request("session/close", {"sessionId": client.session_id})
    seen = client.mark()
    await client.load_session(client.session_id, world.cwd)
    assert client.texts(since=seen) == texts


async def test_a_session_whose_wal_was_removed_is_whole_once_it_is_loaded_again_as_is_told(
    world: World,
) -> None:
    async with world.inside() as client:
        running = client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        (world.home / "sessions" / f"{client.session_id}.db-wal").unlink()
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"
        assert "Close the session" in (await refused(client, "say never")).message
        await load_again(world, client, ["one", "two"])
        assert await client.prompt("say three") == {"stopReason": "end_turn"}
    await everything_is_there(world, client, ["one", "two", "three"])


@pytest.mark.hazard("Q13.13")
async def test_a_folder_that_was_restored_meanwhile_gets_nothing_of_the_turn_and_is_used_from_then(
    world: World,
) -> None:
    async with world.inside() as first:
        await first.prompt("say one")
    saved = world.home.with_name("saved")
    copy(world.home, saved)
    async with world.inside(session=False, capabilities=TELL_ACCEPTED) as client:
        await client.load_session(first.session_id, world.cwd)
        running = client.send_prompt("say two; gate g; say three")
        await world.gates.reached("g")
        waiting = client.send_prompt("say four")
        await accepted(client, waiting)
        world.home.rename(world.home.with_name("removed"))
        copy(saved, world.home)
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"
        assert await stopped(client, waiting) == -32603
        await load_again(world, client, ["one"])
        assert await client.prompt("say five") == {"stopReason": "end_turn"}
    await everything_is_there(world, client, ["one", "five"])


async def everything_is_there(world: World, client: RecordingClient, texts: list[str]) -> None:
    async with world.inside(session=False) as later:
        loaded = await later.load_session(client.session_id, world.cwd)
        assert "held" not in loaded["_meta"]["acp_bridge"]
        assert later.texts() == texts
