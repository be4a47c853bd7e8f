"""The agent on a pair of pipes before a server on the loopback, all in this process."""

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.openhands import conversation, live_feed, server, turn
from agent.secrets import Secrets
from agent.serve.sdk_transport import SdkTransport
from tests.agent.openhands.agent_server import KEY, FakeServer
from tests.support.client import RecordingClient

Adapt = Callable[..., AbstractAsyncContextManager[RecordingClient]]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits between two tries are short; how long anything may take stays."""
    monkeypatch.setattr(live_feed, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(live_feed, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(live_feed, "_SUBSCRIBED", 0.3)
    monkeypatch.setattr(turn, "_PAUSE", 0.02)
    monkeypatch.setattr(server, "_READ_AGAIN", (0.01, 0.02))
    monkeypatch.setattr(conversation, "_SILENCE", 0.4)


@pytest.fixture
async def fake(cwd: Path, quick: None) -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.folders.add(str(cwd))
        yield server


@pytest.fixture
def adapt(fake: FakeServer, cwd: Path) -> Adapt:
    """`async with adapt() as client`: initialized, with a new session unless `opens` is False."""
    from agent.openhands.acp_agent import OpenHandsAgent
    from agent.openhands.server import Server
    from agent.openhands.settings import ServerSettings
    from agent.serve.sdk_connection import serve_agent

    @contextlib.asynccontextmanager
    async def adapt(
        *, opens: bool = True, key: str | None = KEY, profile: str | None = None, url: str = ""
    ) -> AsyncGenerator[RecordingClient]:
        settings = ServerSettings(url or fake.url, key, profile)
        secrets = Secrets([key] if key else [])
        agent_in, client_out = os.pipe()
        client_in, agent_out = os.pipe()
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                rest = Server(settings.url, settings.key, secrets.mask)
                async with SdkTransport(agent_in, agent_out) as transport:

                    def make(wire: Any) -> OpenHandsAgent:
                        return OpenHandsAgent(rest, settings, wire)

                    await serve_agent(transport, make, secrets.mask)
                await rest.aclose()

            tasks.start_soon(run)
            async with RecordingClient(client_in, client_out) as client:
                await client.initialize()
                if opens:
                    await client.new_session(cwd)
                yield client
                client.close_stdin()
                with anyio.fail_after(5):
                    await client.closed.wait()

    return adapt
