"""A whole bridge without a client on stdin, with an agent's process behind it, told to end."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.bridge.bridge import Bridge
from acp_bridge.core.clients.rights import May, Rights
from acp_bridge.core.settings import Settings
from acp_bridge.serving import KEEP, serve_remote
from tests.core.sessions.bench import HELLO, Served
from tests.support.fixture_agents import fixture_command
from tests.whole.bridge_support import World

pytestmark = pytest.mark.process


async def test_it_serves_who_is_let_in_and_ends_at_a_signal(world: World, tmp_path: Path) -> None:
    command = tuple(fixture_command())
    settings = Settings(command, "fixture", world.home, listen=False)
    for name, value in world.env.items():
        world.monkeypatch.setenv(name, value)
    client, ended, cancelled = Served(), [], anyio.Event()

    async def let_in(bridge: Bridge) -> None:
        assert bridge._settings.keep == KEEP
        try:
            rights = Rights(May.ALL, "laptop", (str(world.cwd),), "token")
            await bridge.join_remote(client.read, client.way, rights)
        finally:
            cancelled.set()

    async def serve() -> None:
        await serve_remote(settings, let_in, lambda: ended.append("begun"))
        ended.append("over")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await client.ask("initialize", HELLO)
            answer = await client.ask("session/new", {"cwd": str(world.cwd), "mcpServers": []})
            prompt = client.prompt(answer["sessionId"], "hello")
            assert await client.stop_reason(prompt) == "end_turn"
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended == ["begun", "over"]
    assert cancelled.is_set()
