"""Pause and hold by a user's hand: the built-in agent behind a bridge, and an agent that can't."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.updates import notices
from tests.support.client import RecordingClient
from tests.support.recording import Message, RpcError
from tests.whole.bridge_support import ROOT, TELL_ACCEPTED, World, accepted, stopped
from tests.whole.judge import judge

pytestmark = pytest.mark.process

#: A command that runs until the test opens the pipe `go`, then another one.
WORK = """
when: work
text: first words
call: shell {"command": "echo one >>did; cat go"}
call: shell {"command": "echo two >>did"}
---
text: All done.

turn
echo
"""


@asynccontextmanager
async def built_in(world: World, folder: Path) -> AsyncIterator[RecordingClient]:
    """A session of the built-in agent on a scripted model, which may run what it wants."""
    dialogue = folder / "dialogue.txt"
    dialogue.write_text(WORK)
    os.mkfifo(world.cwd / "go")
    words = [sys.executable, "-m", "acp_bridge", "--model", f"scripted:{dialogue}"]
    own = {"ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    async with RecordingClient.start(words, env={**world.env, **own}) as client:
        await client.initialize(TELL_ACCEPTED)
        await client.new_session(world.cwd, within=20)
        client.side.permission = "allow"
        yield client
        client.close_stdin()
        assert await client.wait(within=3) == 0
    judge(client.recording, client.stderr.decode())


def pauses(client: RecordingClient, since: int = 0) -> list[str]:
    """The states that the client was told."""
    told = [m["params"] for m in client.recording.incoming(since) if "method" in m]
    own = [params.get("_meta", {}).get("acp_bridge", {}) for params in told]
    return [each["pause"]["state"] for each in own if "pause" in each]


async def says(client: RecordingClient, method: str) -> Message:
    params = {"sessionId": client.session_id}
    result: Message = await client.request(f"_acp_bridge/{method}", params)
    return result


async def paused_at_work(world: World, client: RecordingClient) -> Any:
    """A turn that was paused while its first command ran."""
    seen = client.mark()
    turn = client.send_prompt("work")
    await client.until_recorded(lambda: "in_progress" in str(client.updates(since=seen)), within=20)
    assert await says(client, "pause") == {"state": "pausing"}
    assert pauses(client, seen) == ["pausing"]
    with (world.cwd / "go").open("w"):  # the command may end
        pass
    await client.until_recorded(lambda: pauses(client, seen) == ["pausing", "paused"])
    return turn


def did(world: World) -> list[str]:
    return (world.cwd / "did").read_text().split()


@pytest.mark.hazard("C3", "C5", "C11", "C17")
async def test_a_turn_waits_when_its_command_has_ended_until_go_or_stop(
    world: World, tmp_path: Path
) -> None:
    async with built_in(world, tmp_path) as client:
        turn = await paused_at_work(world, client)
        assert did(world) == ["one"]
        later = client.send_prompt("later")
        await accepted(client, later)
        assert await client.prompt("/queue go") == {"stopReason": "end_turn"}
        assert await stopped(client, turn, within=10) == "end_turn"
        assert await stopped(client, later) == "end_turn"
        assert did(world) == ["one", "two"]
        assert client.text().rstrip().endswith("later")
        # and the other way out, by the same session
        again = await paused_at_work(world, client)
        client.cancel()
        assert await stopped(client, again) == "cancelled"
        assert did(world) == ["one", "two", "one"]
        assert await client.prompt("hello") == {"stopReason": "end_turn"}
        assert await says(client, "go") == {"state": "open"}


@pytest.mark.hazard("Q6.1", "R12")
async def test_a_killed_bridge_interrupts_a_paused_turn_and_its_session_is_not_paused_again(
    world: World, tmp_path: Path
) -> None:
    async with world.bridge(exits=-9, capabilities=TELL_ACCEPTED) as client:
        session = client.session_id
        turn = client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        assert await says(client, "hold") == {"state": "held"}
        await accepted(client, client.send_prompt("say two"))
        client.kill()
        assert turn not in [m.get("id") for m in client.recording.incoming()]
    async with world.inside(session=False) as client:
        loaded = await client.load_session(session, world.cwd)
        own = loaded["_meta"]["acp_bridge"]
        assert ("pause" not in own, len(own["held"])) == (True, 1)
        assert await client.prompt("say three") == {"stopReason": "end_turn"}


async def test_an_agent_that_cannot_pause_is_held_instead(world: World) -> None:
    async with world.inside(capabilities=TELL_ACCEPTED) as client:
        with pytest.raises(RpcError, match="hold") as caught:
            await says(client, "pause")
        assert caught.value.code == -32601
        first, second = (client.send_prompt(f"say {n}; gate {n}") for n in ("one", "two"))
        await world.gates.reached("one")
        assert await client.prompt("/queue pause") == {"stopReason": "end_turn"}
        assert notices.CANNOT_PAUSE in client.text()
        assert await client.prompt("/queue hold") == {"stopReason": "end_turn"}
        world.gates.open("one")
        assert await stopped(client, first) == "end_turn"
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
        assert world.gates.times_reached("two") == 0
        assert await client.prompt("/queue go") == {"stopReason": "end_turn"}
        await world.gates.reached("two")
        world.gates.open("two")
        assert await stopped(client, second) == "end_turn"


async def test_the_methods_and_the_commands_that_are_offered_are_those_of_the_agent(
    world: World, tmp_path: Path
) -> None:
    async with world.inside(initialized=False, session=False) as client:
        told = await client.initialize()
        own = told["agentCapabilities"]["_meta"]["acp_bridge"]
        assert "_acp_bridge/pause" not in own["methods"]
        assert {"_acp_bridge/hold", "_acp_bridge/go"} <= set(own["methods"])
    async with built_in(world, tmp_path) as client:
        await client.until_recorded(lambda: "available_commands_update" in str(client.updates()))
        (queue,) = [
            command
            for update in client.updates()[:1]
            for command in update["availableCommands"]
            if command["name"] == "queue"
        ]
        assert queue["input"]["hint"].startswith("pause | ")
