"""The TypeScript SDK's client over WebSocket, in front of a bridge that serves elsewhere."""

import json
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.clients_not_ours.conftest import HERE
from tests.clients_not_ours.far import served
from tests.clients_not_ours.test_typescript_sdk import FIXTURE, LIMIT, Agent, each_agent
from tests.support.fixture_agents import fixture_command

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("modules")]

IGNORES_CANCEL = Agent(tuple(fixture_command("ignores-cancel")), FIXTURE.language)
NEEDS_AUTH = Agent(tuple(fixture_command("needs-auth")), FIXTURE.language)


async def scenario(name: str, agent: Agent, folder: Path, env: dict[str, str]) -> None:
    """Run a scenario of sdk_scenarios.mjs to its good end."""
    node = shutil.which("node")
    assert node, "there is no node"
    env = {**env, "ACP_BRIDGE_DRAIN_TIMEOUT": "0.3"}
    async with served(folder, env, *agent.command) as far:
        given = {"url": far.url, "token": far.token, "cwd": str(folder), **agent.language}
        words = [node, str(HERE / "sdk_scenarios.mjs"), name]
        with anyio.fail_after(LIMIT):
            done = await anyio.run_process(
                words,
                env={**env, "GIVEN": json.dumps(given)},
                check=False,
                stderr=subprocess.STDOUT,
            )
        assert done.returncode == 0, done.stdout.decode()


@each_agent
@pytest.mark.parametrize(
    "name",
    [
        "three-prompts-at-once",
        "cancel-mid-stream",
        "cancel-of-one-request",
        "permission-round-trip",
        "mode-and-options",
    ],
)
async def test_over_websocket_a_client_has_what_it_has_over_a_pipe(
    name: str, agent: Agent, folder: Path, client_env: dict[str, str]
) -> None:
    await scenario(name, agent, folder, client_env)


async def test_a_deaf_agent_is_replaced_for_a_client_from_elsewhere_too(
    folder: Path, client_env: dict[str, str]
) -> None:
    await scenario("an-agent-that-ignores-cancel", IGNORES_CANCEL, folder, client_env)


async def test_a_client_from_elsewhere_logs_in_at_the_agent(
    folder: Path, client_env: dict[str, str]
) -> None:
    await scenario("authentication", NEEDS_AUTH, folder, client_env)
