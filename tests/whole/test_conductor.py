"""With a conductor: the bridge in front of a chain of proxies, and as the last link of one."""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.whole.bridge_support import ROOT, World, kill_agent, stopped

pytestmark = pytest.mark.process

_CONDUCTOR = [sys.executable, str(Path(__file__).with_name("conductor.py"))]
_PROXY = shlex.join([*_CONDUCTOR, "--proxy", "say proxied ; "])


async def test_in_front_of_a_conductor_it_queues_stops_and_starts_the_whole_chain_again(
    world: World,
) -> None:
    command = [*_CONDUCTOR, _PROXY, _PROXY, shlex.join(fixture_command())]
    async with world.bridge(command=command) as client:
        ids = [client.send_prompt(f"say {word}") for word in ("one", "two")]
        assert [await stopped(client, each) for each in ids] == ["end_turn"] * 2
        assert client.text() == "proxiedproxiedoneproxiedproxiedtwo"
        running = client.send_prompt("say begun; gate never")
        await client.until_text("begun")
        client.cancel()
        assert await stopped(client, running) == "cancelled"
        await kill_agent(world, client)
        since = client.mark()
        assert await stopped(client, client.send_prompt("say three; history")) == "end_turn"
        assert "proxied" in client.text(since=since)
        assert "say two" in client.text(since=since)


async def test_as_the_last_link_of_a_conductor_it_queues_stops_and_starts_its_agent_again(
    world: World,
) -> None:
    bridge = shlex.join([sys.executable, "-m", "acp_bridge", "--", *fixture_command()])
    own = {"ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    command = [*_CONDUCTOR, _PROXY, bridge]
    async with RecordingClient.start(command, env={**world.env, **own}) as client:
        await client.initialize()
        await client.new_session(world.cwd)
        ids = [client.send_prompt(f"say {word}") for word in ("one", "two")]
        assert [await stopped(client, each) for each in ids] == ["end_turn"] * 2
        assert client.text() == "proxiedoneproxiedtwo"
        running = client.send_prompt("say begun; gate never")
        await client.until_text("begun")
        client.cancel()
        assert await stopped(client, running) == "cancelled"
        running = client.send_prompt("say again; gate never")
        await client.until_text("again")
        os.kill(world.log.pids()[-1], signal.SIGKILL)
        assert await stopped(client, running) == -32603
        since = client.mark()
        assert await stopped(client, client.send_prompt("say three; history")) == "end_turn"
        assert "say two" in client.text(since=since)
        client.close_stdin()
        await client.wait(within=10)
