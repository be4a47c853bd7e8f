"""The TypeScript SDK's client against the bridge, with the built-in agent and with another one.

What the client does and expects stands in sdk_scenarios.mjs.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clients_not_ours.conftest import HERE, Tape
from tests.support.fixture_agents import FixtureLog, fixture_command

pytestmark = pytest.mark.process
#: seconds for all scenarios of a test; sdk_play.mjs has the bound of each.
LIMIT = 180


@dataclass(frozen=True, slots=True)
class Agent:
    command: tuple[str, ...]
    #: the language of its prompts, for the scenarios.
    language: dict[str, Any]


BUILT_IN = Agent(
    (),
    {
        "words": {tag: f"BENCH n=20 gap=0 tag={tag}" for tag in "ABC"},
        "forever": "BENCH n=1000000 gap=5 tag=X",
        "permission": "BENCH n=1 gap=0 tag=P tool=1",
        "decided": ["P0"],
        "mode": "auto",
        "option": {"configId": "mode", "value": "ask"},
    },
)
FIXTURE = Agent(
    tuple(fixture_command()),
    {
        "words": {tag: f"say {' '.join(f'{tag}{i}' for i in range(20))}" for tag in "ABC"},
        "forever": "stream 1000000 5",
        "permission": "permission",
        "decided": ["[permission allow]", "[permission reject]"],
        "mode": "edit",
        "option": {"configId": "effort", "value": "high"},
    },
)
each_agent = pytest.mark.parametrize("agent", [BUILT_IN, FIXTURE], ids=["built-in", "fixture"])
Run = Callable[..., Awaitable[set[str]]]


@pytest.fixture
def run(modules: Path, tape: Tape, folder: Path, client_env: dict[str, str]) -> Run:
    """Plays scenarios in one bridge to their good end; the methods that crossed the pipe."""

    async def run(
        *scenarios: str, agent: Agent, script: str = "sdk_scenarios.mjs", **more: str
    ) -> set[str]:
        node = shutil.which("node")
        assert node, "there is no node"
        command = tape.command(*agent.command)
        given = {"command": command, "tape": str(tape.path), "cwd": str(folder), **agent.language}
        env = {**client_env, "GIVEN": json.dumps(given), "ACP_BRIDGE_DRAIN_TIMEOUT": "0.3", **more}
        words = [node, str(HERE / script), *scenarios]
        with anyio.fail_after(LIMIT):
            done = await anyio.run_process(words, env=env, check=False, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout.decode()
        return tape.judge().methods

    return run


#: What a client has in front of a bridge, and of a server that is elsewhere.
SCENARIOS = (
    "three-prompts-at-once",
    "cancel-mid-stream",
    "cancel-of-one-request",
    "permission-round-trip",
    "mode-and-options",
)


@each_agent
async def test_prompts_cancels_permissions_modes_and_a_killed_bridge_are_as_the_client_expects(
    run: Run, agent: Agent
) -> None:
    methods = await run(*SCENARIOS, "load-after-the-bridge-was-killed", agent=agent)
    session = ("prompt", "update", "cancel", "request_permission", "set_mode", "set_config_option")
    about = (*session, "list", "load", "resume", "close", "delete")
    assert methods >= {"$/cancel_request", *(f"session/{name}" for name in about)}


@pytest.mark.hazard("A1")
async def test_the_users_rules_decide_and_the_client_is_asked_what_they_leave(
    run: Run, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'deny = ["Bash(rm *)"]\nask = ["Bash(git push *)"]\nallow = ["Bash(git status)"]\n'
    )
    decisions = [
        ("git status", "allow"),
        ("rm -rf x", "deny"),
        ("git status && rm x", "deny"),
        ("git push origin", "ask"),
        ("git status && make", "ask"),
        ("git status > out", "ask"),
    ]
    agent = Agent(FIXTURE.command, {"decisions": decisions})
    assert await run("your-rules", agent=agent, ACP_BRIDGE_RULES=str(rules))


async def test_an_agent_that_ignores_cancel_is_replaced_and_remembers(
    run: Run, agent_log: FixtureLog
) -> None:
    await run("an-agent-that-ignores-cancel", agent=_fixture("ignores-cancel"))
    assert len(agent_log.pids()) == 2


async def test_files_terminals_and_questions_reach_the_client(run: Run) -> None:
    methods = await run("files-terminals-and-questions", agent=FIXTURE)
    terminal = {f"terminal/{name}" for name in ("create", "output", "kill", "release")}
    assert methods >= terminal | {"terminal/wait_for_exit", "elicitation/create"}
    assert methods >= {"fs/read_text_file", "fs/write_text_file", "_fixture/echo"}


async def test_an_agent_that_wants_authentication_gets_it(run: Run) -> None:
    methods = await run("authentication", agent=_fixture("needs-auth"))
    assert methods >= {"authenticate", "logout"}


def _fixture(behaviour: str) -> Agent:
    return Agent(tuple(fixture_command(behaviour)), FIXTURE.language)


# --- version 2 of the protocol ------------------------------------------------------------------

V2 = "sdk_v2.mjs"
#: the language of the agent of version 2.
V2_LANGUAGE = {**FIXTURE.language, "mode": "plan", "decided": ["[allow]", "[reject]"]}


@pytest.mark.usefixtures("second_version")
@each_agent
async def test_a_client_of_version_2_has_what_one_of_version_1_has(run: Run, agent: Agent) -> None:
    alone = ("three-prompts-at-once", "cancel", "cancel-of-one-request", "permission", "options")
    others = ("a-session-of-another-bridge", "load-after-the-bridge-was-killed")
    methods = await run(*alone, *others, agent=agent, script=V2)
    assert methods >= {"session/prompt", "session/update"}


@pytest.mark.usefixtures("second_version")
async def test_client_and_agent_may_both_speak_version_2(run: Run) -> None:
    file = HERE.parents[1] / "fixtures" / "agents" / "v2_agent.py"
    agent = Agent((sys.executable, "-I", "-S", str(file)), V2_LANGUAGE)
    scenarios = ("three-prompts-at-once", "permission", "options")
    methods = await run(*scenarios, agent=agent, script=V2)
    assert methods >= {"session/prompt", "session/update"}


@pytest.mark.usefixtures("second_version")
async def test_an_agent_that_ignores_cancel_is_replaced_for_version_2_too(
    run: Run, agent_log: FixtureLog
) -> None:
    await run("an-agent-that-ignores-cancel", agent=_fixture("ignores-cancel"), script=V2)
    assert len(agent_log.pids()) == 2


@pytest.mark.usefixtures("second_version")
async def test_the_death_of_the_agent_ends_the_turn_with_an_error(run: Run) -> None:
    await run("an-agent-that-dies", agent=FIXTURE, script=V2)
