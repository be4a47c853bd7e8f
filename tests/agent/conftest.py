"""What the agent's tests share: the agent on a pair of pipes, in this process."""

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, cast

import anyio
import pytest

from agent.model import Model, Models
from agent.scripted.dialogue import parse_dialogue
from agent.scripted.scripted_model import ScriptedModel
from agent.secrets import Secrets
from agent.serve.sdk_transport import SdkTransport
from agent.settings import Settings
from tests.agent.mcp_servers.recorded_servers import RecordedServers
from tests.agent.support import Fifo, OneModel
from tests.support.client import RecordingClient
from tests.support.gates import Gates


class Talk(Protocol):
    """`async with talk(DIALOGUE) as client`"""

    def __call__(
        self, said: str | Model | Models, **settings: Any
    ) -> AbstractAsyncContextManager[RecordingClient]:
        """`said`: a dialogue, a model, or all models that there are. `settings`: see Settings."""
        ...


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "cwd"
    folder.mkdir()
    return folder


@pytest.fixture
def running(cwd: Path) -> Iterator[Fifo]:
    """`echo >running` in a command of the agent's."""
    fifo = Fifo(cwd / "running")
    yield fifo
    fifo.close()


@pytest.fixture
def mcp_servers(monkeypatch: pytest.MonkeyPatch) -> list[RecordedServers]:
    """Every one that there was; the agent has no others."""
    RecordedServers.made = []
    monkeypatch.setattr("agent.mcp_servers.session_servers.ServerSet", RecordedServers)
    return RecordedServers.made


@pytest.fixture
def talk(tmp_path: Path, gates: Gates, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Serves the dialogue on pipes; the client is not initialized. Transcripts are kept between."""
    from agent.serve.connection import serve  # imports the SDK, which most tests do without

    monkeypatch.setenv("ACP_BRIDGE_GATES", gates.path)

    @contextlib.asynccontextmanager
    async def talk(said: str | Model | Models, **given: Any) -> AsyncGenerator[RecordingClient]:
        models = _models(said)
        settings = Settings(tmp_path / "sessions", tmp_path / "keys.env", **given)
        agent_in, client_out = os.pipe()
        client_in, agent_out = os.pipe()
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                async with SdkTransport(agent_in, agent_out) as transport:
                    await serve(transport, models, settings, Secrets(), os.environ)

            tasks.start_soon(run)
            async with RecordingClient(client_in, client_out) as client:
                yield client
                client.close_stdin()
                with anyio.fail_after(5):
                    await client.closed.wait()

    return talk


def _models(said: str | Model | Models) -> Models:
    if isinstance(said, str):
        return OneModel(ScriptedModel(parse_dialogue(said)))
    return OneModel(cast(Model, said)) if hasattr(said, "complete") else said
