"""An agent that answers `cancelled` and goes on all the same: caught, and not trusted again."""

import pytest

from tests.support.client import RecordingClient
from tests.whole.bridge_support import World, stopped

pytestmark = pytest.mark.process


async def cancelled(world: World, client: RecordingClient, text: str) -> None:
    before = world.gates.times_reached("g")
    prompt = client.send_prompt(f"{text}; gate g")
    await world.gates.reached("g", before + 1)
    client.cancel()
    assert await stopped(client, prompt) == "cancelled"


@pytest.mark.hazard("C6.1", "C6.3", "C9", "C12.1")
@pytest.mark.parametrize("kind", ["message", "tool", "new-tool"])
async def test_a_leak_between_turns_reaches_nobody_and_the_agent_is_restarted(
    world: World, kind: str
) -> None:
    async with world.inside("leaks") as client:
        await cancelled(world, client, "say one; tool t")
        world.gates.open(f"leak-{kind}")
        await client.logged("agent.unclean")
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "say one; tool t; gate g"]
        assert "leaked" not in str(client.updates())
        assert len(world.log.pids()) == 2
        # From now on no cancel is trusted.
        await cancelled(world, client, "say two")
        assert await client.prompt("say three") == {"stopReason": "end_turn"}
    assert len(world.log.pids()) == 3


@pytest.mark.hazard("C6.1")
async def test_stray_text_between_turns_reaches_nobody_and_is_no_reason_to_kill(
    world: World,
) -> None:
    world.gates.open("leaked-plain")
    async with world.inside("leaks") as client:
        await cancelled(world, client, "say one")
        world.gates.open("leak-plain")
        await world.gates.reached("leaked-plain")
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "say one; gate g"]
    assert len(world.log.pids()) == 1


@pytest.mark.hazard("C6.3", "C19.1")
async def test_a_write_between_turns_is_refused_and_the_agent_is_restarted(world: World) -> None:
    async with world.inside("leaks") as client:
        await cancelled(world, client, "say one")
        world.gates.open("leak-write")
        await client.logged("agent.unclean")
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
        assert client.side.files == {}
        assert client.recording.requests("fs/write_text_file") == []
    assert len(world.log.pids()) == 2


@pytest.mark.hazard("C6.1", "C2")
@pytest.mark.parametrize("kind", ["message", "tool"])
async def test_a_leak_into_the_next_turn_is_dropped_and_that_turn_goes_on(
    world: World, kind: str
) -> None:
    async with world.inside("leaks") as client:
        await cancelled(world, client, "say one; tool t")
        following = client.send_prompt("say two; gate h; say three; history")
        await world.gates.reached("h")
        world.gates.open(f"leak-{kind}")
        await client.logged("agent.unclean")
        assert len(world.log.pids()) == 1
        world.gates.open("h")
        assert await stopped(client, following) == "end_turn"
        assert await client.prompt("say four") == {"stopReason": "end_turn"}
        assert "leaked" not in str(client.updates())
    before, during, after = world.log.turns()
    assert before["pid"] == during["pid"] != after["pid"]
    assert len(after["history"]) == 2


async def test_a_leak_without_an_id_into_the_next_turn_cannot_be_told_from_that_turn(
    world: World,
) -> None:
    async with world.inside("leaks", "no-message-ids") as client:
        await cancelled(world, client, "say one")
        following = client.send_prompt("say two; gate h; say three")
        await world.gates.reached("h")
        world.gates.open("leak-plain")
        await client.until_text("leaked")
        world.gates.open("h")
        assert await stopped(client, following) == "end_turn"
    assert len(world.log.pids()) == 1


@pytest.mark.hazard("C6", "C7")
async def test_an_agent_caught_leaking_in_a_drain_is_killed_though_it_answers(
    world: World,
) -> None:
    async with world.inside("leaks", "slow-cancel") as client:
        world.gates.open("cancel")
        await cancelled(world, client, "say one")
        following = client.send_prompt("say two; gate h")
        await world.gates.reached("h")
        client.cancel()
        await world.gates.reached("cancel", 2)
        world.gates.open("leak-message")
        await client.logged("agent.unclean")
        world.gates.open("cancel")
        assert await stopped(client, following) == "cancelled"
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts()[-1] == "say one; gate g | say two; gate h"
    assert len(world.log.pids()) == 2
