"""The list of sessions is a copy: whatever is wrong with it, sessions are made, loaded and used."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.recording import Message
from tests.whole.bridge_support import World, fails, kill_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("K9")]


def newer(index: Path) -> None:
    with closing(sqlite3.connect(index)) as connection:
        connection.execute("PRAGMA user_version=99")


def a_folder(index: Path) -> None:
    for path in index.parent.glob("index.db*"):
        path.unlink()
    index.mkdir()


#: what was done to the list, and what of it the user is told.
WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "newer": (newer, "written by a newer acp-bridge (version 99, this one knows"),
    "unreadable": (a_folder, "can't be used"),
}


def move_away(index: Path) -> None:
    index.rename(index.with_name("elsewhere"))


@pytest.mark.hazard("K9.5", "K9.6")
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_list_that_cannot_be_used_blocks_no_session_and_says_what_to_do(
    world: World, tmp_path: Path, wrong: str
) -> None:
    spoil, told = WRONG[wrong]
    async with world.inside("no-load-no-resume") as client:
        await client.prompt("say one")
        old = client.session_id
    index = world.home / "index.db"
    spoil(index)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with world.inside("no-load-no-resume", session=False) as client:
        # Another working folder, and an agent that needs a new session of its own.
        await client.load_session(old, elsewhere)
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        new = await client.new_session(world.cwd)
        assert await client.prompt("say three") == {"stopReason": "end_turn"}
        await kill_agent(world, client)
        assert await client.prompt("say four") == {"stopReason": "end_turn"}
        await client.request("session/close", {"sessionId": new})
        await client.load_session(new, world.cwd)
        unknown: Message = {"sessionId": "unknown", "cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32002, **unknown)
        wanted: list[tuple[str, Message]] = [
            ("session/list", {}),
            ("session/delete", {"sessionId": old}),
        ]
        for method, params in wanted:
            refusal = await fails(client, method, -32603, **params)
            assert told in str(refusal)
            assert "move" in str(refusal)
        move_away(index)
        listed = await client.request("session/list", {})
        rows = {row["sessionId"]: row for row in listed["sessions"]}
        assert rows.keys() == {old, new}
        assert rows[old]["cwd"] == str(elsewhere)
        assert rows[new]["title"] == "say three"
        await client.request("session/delete", {"sessionId": old})
    assert "say two" in world.log.prompts()


async def test_a_session_of_a_newer_version_is_named_as_such(world: World) -> None:
    async with world.inside() as client:
        await client.prompt("say one")
        session = client.session_id
    newer(world.home / "sessions" / f"{session}.db")
    async with world.inside(session=False) as client:
        setup = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
        refusal = await fails(client, "session/load", -32603, **setup)
        assert "written by a newer acp-bridge (version 99, this one knows" in str(refusal)
