"""Clients that are not ours, in front of a bridge that serves elsewhere.

The TypeScript SDK's client comes over WebSocket by itself; it and acpx also start `acp-bridge
connect` as their agent. What the first does and expects stands in sdk_scenarios.mjs.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clients_not_ours.conftest import HERE, Tape
from tests.clients_not_ours.far import connected, served
from tests.clients_not_ours.test_acpx import acpx_home, opened
from tests.clients_not_ours.test_typescript_sdk import FIXTURE, LIMIT, SCENARIOS, Agent, each_agent
from tests.support.fixture_agents import fixture_command

__all__ = ["acpx_home"]

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("modules")]

IGNORES_CANCEL = Agent(tuple(fixture_command("ignores-cancel")), FIXTURE.language)
NEEDS_AUTH = Agent(tuple(fixture_command("needs-auth")), FIXTURE.language)


async def play(*names: str, agent: Agent, env: dict[str, str], **given: Any) -> None:
    """Run scenarios of sdk_scenarios.mjs, or a script by itself, to their good end."""
    node = shutil.which("node")
    assert node, "there is no node"
    env = {**env, "GIVEN": json.dumps({**given, **agent.language})}
    words = names if names[0].endswith(".mjs") else ("sdk_scenarios.mjs", *names)
    with anyio.fail_after(LIMIT):
        done = await anyio.run_process(
            [node, *words], env=env, cwd=HERE, check=False, stderr=subprocess.STDOUT
        )
    assert done.returncode == 0, done.stdout.decode()


@pytest.fixture
def env(client_env: dict[str, str]) -> dict[str, str]:
    return {**client_env, "ACP_BRIDGE_DRAIN_TIMEOUT": "0.3"}


@each_agent
async def test_over_websocket_a_client_has_what_it_has_over_a_pipe(
    agent: Agent, folder: Path, env: dict[str, str]
) -> None:
    async with served(folder, env, *agent.command) as far:
        given = {"url": far.url, "token": far.token, "cwd": str(folder)}
        await play(*SCENARIOS, agent=agent, env=env, **given)


@pytest.mark.parametrize(
    ("name", "agent"),
    [("an-agent-that-ignores-cancel", IGNORES_CANCEL), ("authentication", NEEDS_AUTH)],
    ids=["deaf", "login"],
)
async def test_a_deaf_agent_is_replaced_and_a_login_taken_from_elsewhere_too(
    name: str, agent: Agent, folder: Path, env: dict[str, str]
) -> None:
    async with served(folder, env, *agent.command) as far:
        given = {"url": far.url, "token": far.token, "cwd": str(folder)}
        await play(name, agent=agent, env=env, **given)


async def test_two_editors_have_one_session_and_one_leaves_and_comes_back(
    folder: Path, env: dict[str, str]
) -> None:
    async with served(folder, env, *FIXTURE.command) as far:
        given = {"url": far.url, "token": far.token, "cwd": str(folder)}
        await play("sdk_remote.mjs", agent=FIXTURE, env=env, **given)


@each_agent
async def test_behind_connect_a_client_has_what_it_has_in_front_of_a_bridge(
    agent: Agent, folder: Path, env: dict[str, str], tape: Tape, tmp_path: Path
) -> None:
    here = {**env, "ACP_BRIDGE_HOME": str(tmp_path / "laptop")}
    async with served(folder, env, *agent.command) as far:
        command = tape.of(*await connected(far, here))
        given = {"command": command, "tape": str(tape.path), "cwd": str(folder)}
        await play(*SCENARIOS, agent=agent, env=here, **given)


async def test_acpx_works_through_connect(
    modules: Path,
    folder: Path,
    env: dict[str, str],
    tape: Tape,
    acpx_home: str,
    tmp_path: Path,
) -> None:
    here = {**env, "ACP_BRIDGE_HOME": str(tmp_path / "laptop"), "HOME": acpx_home}
    async with served(folder, env, *fixture_command()) as far:
        command = tape.of(*await connected(far, here))
        async with opened(modules, command, here, folder) as acpx:
            first = await acpx.run("prompt", "say one two; permission")
            assert first.text == "one two[permission allow]"
            async with acpx.streaming("prompt", "stream 1000000 5") as prompt:
                (cancelled,) = (await acpx.run("cancel")).lines
                assert cancelled["cancelled"] is True
            assert prompt.stop_reason == "cancelled"
