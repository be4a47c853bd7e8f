"""A bridge that may open few files, and agents that get the limit which the bridge was given."""

import os
import resource
import sys
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.recording import Message
from tests.whole.bridge_support import World, fails, kill_agent, stopped

pytestmark = pytest.mark.process

#: sets the soft limit of open files and becomes the rest
LIMITED = """
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), hard))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def limit(client: RecordingClient, files: int) -> None:
    assert client.process is not None
    resource.prlimit(client.process.pid, resource.RLIMIT_NOFILE, (files, files))


def soft_limit(pid: int) -> int:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(int(line.split()[3]) for line in lines if line.startswith("Max open files"))


def setup(world: World) -> Message:
    return {"cwd": str(world.cwd), "mcpServers": []}


async def full(world: World, client: RecordingClient) -> list[str]:
    """Open sessions until one is refused; returns their ids."""
    opened = [client.session_id]
    while True:
        answer = await client.answer_to(client.send_request("session/new", setup(world)))
        if "error" in answer:
            assert answer["error"]["code"] == -32603
            assert "close a session first" in answer["error"]["message"]
            return opened
        opened.append(answer["result"]["sessionId"])


@pytest.mark.hazard("P6.3", "K1", "Q9")
async def test_a_bridge_without_room_refuses_sessions_and_goes_on_with_those_it_has(
    world: World,
) -> None:
    async with world.bridge() as client:
        limit(client, 90)
        opened = await full(world, client)
        assert len(opened) > 2
        for method in ("session/load", "session/resume"):  # an unknown one would need room, too
            error = await fails(client, method, -32603, **setup(world), sessionId="x")
            assert "files open" in error.message
        prompts = [client.send_prompt("say one", session) for session in opened]
        for prompt in prompts:
            assert await stopped(client, prompt) == "end_turn"
        await kill_agent(world, client)
        prompts = [client.send_prompt("say two", session) for session in opened]
        for prompt in prompts:
            assert await stopped(client, prompt) == "end_turn"
        await client.load_session(opened[0], world.cwd)
        assert len((await client.request("session/list", {}))["sessions"]) == len(opened)
        await client.request("session/close", {"sessionId": opened.pop()})
        opened.append(await client.new_session(world.cwd))
        assert len(await full(world, client)) == 1  # the one that there was before
    async with world.inside(session=False) as client:
        for session in opened[:-1]:
            await client.load_session(session, world.cwd)
            assert client.texts(session) == ["one", "two"]


@pytest.mark.hazard("P6.3", "Q9")
async def test_many_sessions_that_are_asked_for_at_once_take_nothing_from_others(
    world: World,
) -> None:
    async with world.bridge() as client:
        limit(client, 90)
        asked = [client.send_request("session/new", setup(world)) for _ in range(30)]
        answers = [await client.answer_to(request, within=20) for request in asked]
        refused = [answer["error"]["message"] for answer in answers if "error" in answer]
        assert 0 < len(refused) < 30
        assert all("close a session first" in message for message in refused)
        assert await stopped(client, client.send_prompt("say one")) == "end_turn"


@pytest.mark.hazard("P6", "K1", "Q9")
async def test_a_bridge_that_can_open_nothing_takes_prompts_and_ends_in_order(
    world: World,
) -> None:
    async with world.bridge() as client:
        await client.prompt("say one")
        limit(client, 3)
        for _ in range(2):
            error = await fails(client, "session/new", -32603, **setup(world))
            assert "files open" in error.message
        assert await stopped(client, client.send_prompt("say two")) == "end_turn"
        assert "sessions.full limit=3" in client.stderr.decode()
        session = client.session_id
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd)
        assert client.texts() == ["one", "two"]


@pytest.mark.hazard("P6")
async def test_a_bridge_opens_as_many_files_as_it_may_and_its_agents_as_many_as_it_was_given(
    world: World,
) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    words = [sys.executable, "-c", LIMITED, "100", "-m", "acp_bridge", "--", *fixture_command()]
    env = {**world.env, "ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": os.getcwd()}
    async with RecordingClient.start(words, env=env) as client:
        await client.initialize()
        await client.new_session(world.cwd)
        assert client.process is not None
        assert soft_limit(client.process.pid) == min(hard, 65536)
        assert [soft_limit(pid) for pid in world.log.pids()] == [100]
