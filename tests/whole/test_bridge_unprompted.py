"""Sessions without a prompt: not listed, not kept, and opened anew under their id."""

import os
from pathlib import Path

import pytest

from acp_bridge.core.agents import lease
from acp_bridge.core.journal import Journal, days_ago
from tests.support.recording import Message
from tests.support.waiting import until
from tests.whole.bridge_support import World, fails, stopped
from tests.whole.test_bridge_list import listed

pytestmark = [pytest.mark.process, pytest.mark.hazard("R2", "K6")]


def files(world: World, session: str = "") -> list[Path]:
    return sorted((world.home / "sessions").glob(f"{session}*"))


async def test_a_session_is_listed_from_its_first_prompt_on_with_words_or_without(
    world: World,
) -> None:
    async with world.inside() as client:
        first = client.session_id
        second = await client.new_session(world.cwd)
        assert await listed(client) == []
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        about: Message = {"sessionId": first, "prompt": [image]}
        assert await client.request("session/prompt", about) == {"stopReason": "end_turn"}
        assert [row["sessionId"] for row in await listed(client)] == [first]
        running = client.send_prompt("say two; gate g", second)
        await world.gates.reached("g")
        await client.logged("prompt.accepted", 2)
        assert {row["sessionId"] for row in await listed(client)} == {first, second}
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"


@pytest.mark.parametrize("end", ["close", "bridge"])
async def test_at_its_end_nothing_is_left_of_it_and_a_load_opens_it_anew(
    world: World, end: str
) -> None:
    async with world.inside() as client:
        session = client.session_id
        if end == "close":
            await client.request("session/close", {"sessionId": session})
            assert files(world) == []
    assert files(world) == []
    async with world.inside(session=False) as client:
        for times in (1, 2):
            loaded = await client.load_session(session, world.cwd)
            assert loaded["modes"]["currentModeId"] == "plan"
            if times == 1:
                await client.request("session/close", {"sessionId": session})
        assert client.texts() == []
        assert await listed(client) == []
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        assert [row["sessionId"] for row in await listed(client)] == [session]
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd)
        assert client.texts() == ["one"]
        await client.request("session/delete", {"sessionId": session})
        setup = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32002, **setup)


async def test_one_that_was_deleted_or_is_another_agents_is_not_opened_anew(world: World) -> None:
    async with world.bridge(options=["--agent-name", "other"]) as client:
        others = client.session_id
    async with world.bridge() as client:
        session = client.session_id
        await client.request("session/delete", {"sessionId": session})
        setup = {"cwd": str(world.cwd), "mcpServers": []}
        await fails(client, "session/load", -32002, sessionId=session, **setup)
        await fails(client, "session/load", -32602, sessionId=others, **setup)


async def test_one_whose_bridge_was_killed_loads_and_is_removed_when_it_is_a_day_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.bridge(exits=-9) as client:
        old = client.session_id
        used = await client.new_session(world.cwd)
        await client.prompt("say one", used)
        client.kill()
        await client.wait()
    async with world.bridge(exits=-9, session=False) as client:
        await client.load_session(old, world.cwd)
        assert await listed(client) != []
        client.kill()
        await client.wait()
    young = files(world, old)
    assert len(young) >= 2
    journal = Journal(world.home)
    long_ago = days_ago(2)
    for session in (old, used):
        # A guard of the killed bridge may still hold it, and who finds it busy passes on.
        os.close(await lease.acquire(journal.lock_path(session), 5))
        opened = await journal.open(session)
        opened.change_info(updated_at=long_ago)
        await journal.index.put(opened.info)
    await journal.close()
    async with world.bridge(options=["--log-level", "debug"]) as client:
        await until(lambda: not files(world, old))
        assert [row["sessionId"] for row in await listed(client)] == [used]
        await client.load_session(used, world.cwd)
        assert client.texts() == ["one"]
        await client.load_session(old, world.cwd)
        assert await client.prompt("say two", old) == {"stopReason": "end_turn"}


async def test_one_that_another_bridge_has_open_is_left_alone(world: World) -> None:
    async with world.inside() as client:
        session = client.session_id
        journal = Journal(world.home)
        await journal.index._run(
            lambda db: db.execute("UPDATE sessions SET updated_at = ?", (days_ago(2),))
        )
        await journal.close()
        async with world.inside() as other:
            assert await other.prompt("say other") == {"stopReason": "end_turn"}
            assert await client.prompt("say one") == {"stopReason": "end_turn"}
            for each in (client, other):  # its own bridge has written the row before it answers
                assert session in [row["sessionId"] for row in await listed(each)]
