"""The trouble of one agent process is no other's, and what it said last is not lost."""

from typing import Any

import anyio
import pytest

from acp_bridge.core.agents import connection
from acp_bridge.core.agents.connection import AgentCommand, Connection
from acp_bridge.core.agents.link import Link
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.wire.peer import Call
from acp_bridge.core.wire.runs import Run
from tests.support.fixture_agents import fixture_command
from tests.support.recording import RpcError
from tests.whole import bridge_support
from tests.whole.bridge_support import World
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process


class Fails:
    """An owner with a bug in whatever it is told."""

    def on_update(self, link: Link, params: dict[str, Any]) -> None:
        raise RuntimeError

    def on_run(self, link: Link, run: Run) -> None:
        raise RuntimeError

    def on_agent_request(self, link: Link, call: Call) -> None:
        raise RuntimeError

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        raise RuntimeError

    def on_batch_end(self, link: Link) -> None:
        raise RuntimeError

    def on_occupied(self, link: Link) -> None:
        raise RuntimeError

    def on_free(self, link: Link) -> None:
        raise RuntimeError

    async def room(self, link: Link) -> None:
        raise RuntimeError

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        raise RuntimeError

    def on_dead(self, link: Link) -> None:
        raise RuntimeError


@pytest.mark.hazard("P6")
async def test_an_owner_that_fails_ends_its_own_process_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = AgentCommand(tuple(fixture_command()), {"protocolVersion": 1})
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            one = Link(Connection(command, "one"), Fails(), "one")
            await one.start(tasks)
            await one.dead.wait()
    assert "RuntimeError" in caplog.text


@pytest.mark.hazard("P3.2", "T2")
async def test_what_an_agent_said_before_it_ended_reaches_a_client_that_was_not_reading(
    world: World,
) -> None:
    async with world.inside(client_limit=1) as client:
        client.pipe.pause_reading()
        prompt = client.send_prompt("big 200000; gate a; say the last words; exit 3")
        await client.logged("client.slow")
        await world.gates.reached("a")
        world.gates.open("a")
        await client.logged("agent.exited")
        client.pipe.resume_reading()
        assert "error" in await client.answer_to(prompt)
        assert client.text().endswith("the last words")


@pytest.mark.hazard("C21")
async def test_an_agent_that_takes_nothing_any_more_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_AGENT_LIMIT", 100_000)
    deaf = "def session_prompt(id, params):\n    time.sleep(1000)\n"
    command = tiny_agent(world.cwd, deaf)
    monkeypatch.setattr(bridge_support, "fixture_command", lambda *names: command)
    async with world.inside() as client:
        prompt = client.send_prompt("hello")
        await client.logged("turn.started")
        for _ in range(20):
            client.notify("_x/y", {"sessionId": client.session_id, "text": "x" * 20_000})
        assert (await client.answer_to(prompt))["error"]["code"] == -32603


@pytest.mark.hazard("P6")
async def test_an_agent_that_talks_without_end_before_it_has_a_session_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_PARKED_LIMIT", 100_000)
    floods = "def session_new(id, params):\n    while True: update('s', **text('x' * 1000))\n"
    command = tiny_agent(world.cwd, floods)
    monkeypatch.setattr(bridge_support, "fixture_command", lambda *names: command)
    async with world.inside(session=False) as client:
        with pytest.raises(RpcError, match="ended before it answered the request for a session"):
            await client.new_session(world.cwd)
