"""The agent starts while the bridge still imports the rest: wanted or not, startable or not."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.processes import all_gone, kill_marked, marked
from tests.support.recording import RpcError
from tests.support.waiting import until
from tests.whole.bridge_support import ROOT, World

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("whole_starts")]

#: a bridge that waits at the named pipe before it imports what serves
HELD = """
import sys
from acp_bridge.__main__ import main

class Held:
    def find_spec(self, name, path=None, target=None):
        if name == "acp_bridge.serving":
            open(gate, "rb").close()

gate = sys.argv.pop(1)
sys.meta_path.insert(0, Held())
sys.exit(main())
"""


@asynccontextmanager
async def importing(
    world: World, tmp_path: Path, *options: str
) -> AsyncIterator[tuple[RecordingClient, Path]]:
    """A bridge that has not imported what serves, and the pipe at which it waits."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    words = [sys.executable, "-c", HELD, str(gate), *options, "--", *fixture_command()]
    own = {"ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    async with RecordingClient.start(words, env={**world.env, **own}) as client:
        yield client, gate


async def let_through(gate: Path) -> None:
    """Let the bridge go on when it has come to the pipe."""
    with anyio.fail_after(20):
        await anyio.to_thread.run_sync(lambda: gate.open("wb").close(), abandon_on_cancel=True)


def alive_beside(client: RecordingClient, world: World) -> int:
    """How many processes there are beside the bridge."""
    assert client.process is not None
    return len(set(marked(world.mark)) - {client.process.pid})


async def test_the_agent_starts_while_the_bridge_imports_and_serves_the_first_session(
    world: World, tmp_path: Path
) -> None:
    async with importing(world, tmp_path) as (client, gate):
        await until(world.log.pids, within=20)
        await let_through(gate)
        await client.initialize()
        await client.new_session(world.cwd)
        assert await client.prompt("say hello") == {"stopReason": "end_turn"}
        assert len(world.log.pids()) == 1


@pytest.mark.hazard("P1.3")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_bridge_that_is_killed_while_it_imports_leaves_no_agent(
    world: World, tmp_path: Path, number: signal.Signals
) -> None:
    async with importing(world, tmp_path) as (client, _):
        await until(world.log.pids, within=20)
        client.terminate(number)
        await client.wait(within=3)
        await all_gone(world.mark)


@pytest.mark.hazard("P1.3")
async def test_an_agent_that_nobody_wants_is_ended_and_the_log_says_so(
    world: World, tmp_path: Path
) -> None:
    async with importing(world, tmp_path) as (client, gate):
        client.close_stdin()
        await until(world.log.pids, within=20)
        await let_through(gate)
        assert await client.wait(within=20) == 0
        await all_gone(world.mark)
    assert "agent.unwanted" in (world.home / "bridge.log").read_text()
    assert not world.log.received("initialize")


async def test_a_kept_bridge_starts_its_agent_early_too(world: World, tmp_path: Path) -> None:
    async with importing(world, tmp_path, "--keep", "1h") as (client, gate):
        await until(world.log.pids, within=20)
        await let_through(gate)
        await client.initialize()
        assert len(world.log.pids()) == 1
        kill_marked(world.mark)


async def test_the_built_in_agent_is_not_started_before_it_is_asked_for(
    world: World, tmp_path: Path
) -> None:
    async with world.bridge(command=[], options=["--model", "demo"], initialized=False) as client:
        await client.logged("bridge.started")
        assert alive_beside(client, world) == 0


async def test_an_agent_that_can_not_be_started_early_is_told_as_ever_and_tried_again(
    world: World, tmp_path: Path
) -> None:
    agent = tmp_path / "agent"
    async with world.bridge(command=[str(agent)], initialized=False) as client:
        with pytest.raises(RpcError, match="is not there"):
            await client.initialize()
        command = " ".join(f"'{word}'" for word in fixture_command())
        agent.write_text(f"#!/bin/sh\nexec {command}\n")
        agent.chmod(0o700)
        await client.initialize()
