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
#: seconds for a scenario: its processes start on a machine that may be busy.
LIMIT = 60


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
    """Runs a scenario to its good end; the methods that crossed the pipe."""

    async def run(
        scenario: str, agent: Agent, script: str = "sdk_scenarios.mjs", **more: str
    ) -> set[str]:
        node = shutil.which("node")
        assert node, "there is no node"
        command = tape.command(*agent.command)
        given = {"command": command, "tape": str(tape.path), "cwd": str(folder), **agent.language}
        env = {**client_env, "GIVEN": json.dumps(given), "ACP_BRIDGE_DRAIN_TIMEOUT": "0.3", **more}
        words = [node, str(HERE / script), scenario]
        with anyio.fail_after(LIMIT):
            done = await anyio.run_process(words, env=env, check=False, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout.decode()
        return tape.judge().methods

    return run


@each_agent
async def test_three_prompts_at_once_run_one_after_the_other(run: Run, agent: Agent) -> None:
    assert await run("three-prompts-at-once", agent) >= {"session/prompt", "session/update"}


@each_agent
async def test_a_cancel_mid_stream_is_answered_and_what_is_queued_goes_on(
    run: Run, agent: Agent
) -> None:
    assert "session/cancel" in await run("cancel-mid-stream", agent)


@each_agent
async def test_one_request_that_is_given_up_takes_no_other_with_it(run: Run, agent: Agent) -> None:
    assert "$/cancel_request" in await run("cancel-of-one-request", agent)


@each_agent
async def test_permissions_are_given_refused_and_called_back(run: Run, agent: Agent) -> None:
    assert "session/request_permission" in await run("permission-round-trip", agent)


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
    assert await run("your-rules", agent, ACP_BRIDGE_RULES=str(rules))


@each_agent
async def test_mode_and_options_are_set(run: Run, agent: Agent) -> None:
    methods = await run("mode-and-options", agent)
    assert methods >= {"session/set_mode", "session/set_config_option"}


@each_agent
async def test_a_session_outlives_its_bridge_until_it_is_deleted(run: Run, agent: Agent) -> None:
    methods = await run("load-after-the-bridge-was-killed", agent)
    about = ("list", "load", "resume", "close", "delete")
    assert methods >= {f"session/{name}" for name in about}


async def test_an_agent_that_ignores_cancel_is_replaced_and_remembers(
    run: Run, agent_log: FixtureLog
) -> None:
    await run("an-agent-that-ignores-cancel", _fixture("ignores-cancel"))
    assert len(agent_log.pids()) == 2


async def test_files_terminals_and_questions_reach_the_client(run: Run) -> None:
    methods = await run("files-terminals-and-questions", FIXTURE)
    terminal = {f"terminal/{name}" for name in ("create", "output", "kill", "release")}
    assert methods >= terminal | {"terminal/wait_for_exit", "elicitation/create"}
    assert methods >= {"fs/read_text_file", "fs/write_text_file", "_fixture/echo"}


async def test_an_agent_that_wants_authentication_gets_it(run: Run) -> None:
    assert await run("authentication", _fixture("needs-auth")) >= {"authenticate", "logout"}


def _fixture(behaviour: str) -> Agent:
    return Agent(tuple(fixture_command(behaviour)), FIXTURE.language)


# --- version 2 of the protocol ------------------------------------------------------------------

V2 = "sdk_v2.mjs"
#: the language of the agent of version 2.
V2_LANGUAGE = {**FIXTURE.language, "mode": "plan", "decided": ["[allow]", "[reject]"]}


@pytest.mark.usefixtures("second_version")
@each_agent
@pytest.mark.parametrize(
    "scenario",
    [
        "three-prompts-at-once",
        "cancel",
        "cancel-of-one-request",
        "permission",
        "options",
        "load-after-the-bridge-was-killed",
        "a-session-of-another-bridge",
    ],
)
async def test_a_client_of_version_2_has_what_one_of_version_1_has(
    run: Run, agent: Agent, scenario: str
) -> None:
    assert await run(scenario, agent, V2) >= {"session/prompt", "session/update"}


@pytest.mark.usefixtures("second_version")
@pytest.mark.parametrize("scenario", ["three-prompts-at-once", "permission", "options"])
async def test_client_and_agent_may_both_speak_version_2(run: Run, scenario: str) -> None:
    file = HERE.parents[1] / "fixtures" / "agents" / "v2_agent.py"
    agent = Agent((sys.executable, "-I", "-S", str(file)), V2_LANGUAGE)
    assert await run(scenario, agent, V2) >= {"session/prompt", "session/update"}


@pytest.mark.usefixtures("second_version")
async def test_an_agent_that_ignores_cancel_is_replaced_for_version_2_too(
    run: Run, agent_log: FixtureLog
) -> None:
    await run("an-agent-that-ignores-cancel", _fixture("ignores-cancel"), V2)
    assert len(agent_log.pids()) == 2


@pytest.mark.usefixtures("second_version")
async def test_the_death_of_the_agent_ends_the_turn_with_an_error(run: Run) -> None:
    await run("an-agent-that-dies", FIXTURE, V2)
