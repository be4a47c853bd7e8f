"""A disk that is full for a while: what was answered then is answered for good (invariant Q13)."""

import pytest

from tests.support.client import RecordingClient
from tests.whole.bridge_support import (
    TELL_ACCEPTED,
    World,
    accepted,
    fails,
    full_disk,
    refused,
    shown,
    stopped,
)

pytestmark = [pytest.mark.process, pytest.mark.hazard("Q13", "Q5", "Q6", "R12")]


async def two_turns_on_a_full_disk(world: World, client: RecordingClient) -> None:
    """A turn that ends while nothing can be written, and one that also begins then."""
    running = client.send_prompt("say one; gate g; tool t; tool-done t; say two")
    await world.gates.reached("g")
    waiting = client.send_prompt("say three")
    await accepted(client, waiting)
    with full_disk(client):
        world.gates.open("g")
        assert await stopped(client, running) == "end_turn"
        assert await stopped(client, waiting) == "end_turn"
        assert client.text().count("this session is not recorded") == 1
        error = await refused(client, "say never")
        assert error.code == -32603
        folder = world.home / "sessions"
        assert f"the prompt was not taken: the disk fails: {folder} can't be written" in str(error)
        assert ", on the disk at /" in str(error)
        setup = {"sessionId": client.session_id, "cwd": str(world.cwd), "mcpServers": []}
        seen = client.mark()
        await client.request("session/load", setup)
        assert [text for text in client.texts(since=seen) if len(text) < 9] == [
            "one",
            "two",
            "three",
        ]
        assert "this session is not recorded" in client.text(since=seen)


async def everything_is_there_and_nothing_is_held(world: World, session_id: str) -> None:
    async with world.inside(session=False) as client:
        loaded = await client.load_session(session_id, world.cwd)
        assert "held" not in loaded["_meta"]["acp_bridge"]
        assert client.texts()[:3] == ["one", "two", "three"]
        assert "Interrupted" not in client.text()
        users = [u for u in shown(client) if u["sessionUpdate"] == "user_message_chunk"]
        assert len(users) >= 2
        await client.prompt("/queue run")
        assert client.text().count("Nothing is left over") == 1
    assert "say never" not in world.log.prompts()
    assert world.log.prompts().count("say three") == 1


@pytest.mark.hazard("Q13.2")
async def test_what_could_not_be_written_is_written_with_the_next_prompt(world: World) -> None:
    async with world.bridge(capabilities=TELL_ACCEPTED, exits=-9) as client:
        await two_turns_on_a_full_disk(world, client)
        assert await client.prompt("say four") == {"stopReason": "end_turn"}
        client.kill()
        await client.wait()
    await everything_is_there_and_nothing_is_held(world, client.session_id)


@pytest.mark.hazard("Q13.3")
async def test_what_could_not_be_written_is_written_though_nobody_says_anything_more(
    world: World,
) -> None:
    async with world.bridge(capabilities=TELL_ACCEPTED, exits=-9) as client:
        await two_turns_on_a_full_disk(world, client)
        await client.logged("journal.caught_up")
        client.kill()
        await client.wait()
    await everything_is_there_and_nothing_is_held(world, client.session_id)


@pytest.mark.hazard("Q13.3")
async def test_what_could_not_be_written_is_written_at_the_end(world: World) -> None:
    async with world.bridge(capabilities=TELL_ACCEPTED) as client:
        await two_turns_on_a_full_disk(world, client)
        client.close_stdin()
        assert await client.wait(within=3) == 0
    await everything_is_there_and_nothing_is_held(world, client.session_id)


@pytest.mark.hazard("Q13.9")
async def test_killed_while_nothing_can_be_written_it_has_forgotten_no_answer(world: World) -> None:
    async with world.bridge(capabilities=TELL_ACCEPTED, exits=-9) as client:
        running = client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        waiting = [client.send_prompt(f"say {text}") for text in ("three", "four", "five; gate h")]
        await accepted(client, waiting[-1])
        with full_disk(client):
            client.notify("$/cancel_request", {"requestId": waiting[1]})
            assert await stopped(client, waiting[1]) == "cancelled"
            world.gates.open("g")
            assert await stopped(client, running) == "end_turn"
            assert await stopped(client, waiting[0]) == "end_turn"
            await world.gates.reached("h")
            client.kill()
            await client.wait()
    session_id = client.session_id
    async with world.inside(session=False) as client:
        loaded = await client.load_session(session_id, world.cwd)
        assert "held" not in loaded["_meta"]["acp_bridge"]
        users = [u for u in shown(client) if u["sessionUpdate"] == "user_message_chunk"]
        assert [u["content"]["text"] for u in users] == [
            "say one; gate g; say two",
            "say three",
            "say five; gate h",
        ]
        lost = [text.split()[1] for text in client.texts() if "[acp-bridge]" in text]
        assert lost == ["The", "The", "Interrupted:"]  # the journal could not be written
        await client.prompt("/queue run")
        assert client.text().count("Nothing is left over") == 1
    assert world.log.prompts().count("say three") == 1
    assert "say four" not in world.log.prompts()


async def test_a_session_that_could_not_be_deleted_is_whole(world: World) -> None:
    async with world.bridge(capabilities=TELL_ACCEPTED) as client:
        await two_turns_on_a_full_disk(world, client)
        with full_disk(client):
            error = await fails(client, "session/delete", -32603, sessionId=client.session_id)
            assert "not deleted" in error.message
        seen = client.mark()
        loaded = await client.load_session(client.session_id, world.cwd)
        assert "held" not in loaded["_meta"]["acp_bridge"]
        assert client.texts(since=seen) == ["one", "two", "three"]
        await client.request("session/delete", {"sessionId": client.session_id})
        assert [*(world.home / "sessions").iterdir()] == []


async def test_a_session_that_was_closed_meanwhile_is_whole_when_it_is_loaded_again(
    world: World,
) -> None:
    async with world.bridge(capabilities=TELL_ACCEPTED) as client:
        await two_turns_on_a_full_disk(world, client)
        with full_disk(client):
            await client.request("session/close", {"sessionId": client.session_id})
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        assert client.texts(since=seen) == ["one", "two", "three"]
    await everything_is_there_and_nothing_is_held(world, client.session_id)
