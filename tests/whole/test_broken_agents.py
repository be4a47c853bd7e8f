"""Whoever starts an agent that does not come to a session is told why, in the same words."""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support import processes
from tests.support.broken_agents import BROKEN, Broken
from tests.support.person import person
from tests.whole.bridge_support import World, refused
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("U1")]
_SECONDS = 40
each = pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
#: one of each form of what is told. Commands print what the bridge's error has, whatever that is.
PRINTED = (
    "it ends with a reason",
    "a secret in its last line",
    "no word at all",
    "it refuses a session",
    "bytes that are no text",
)


def agent_of(broken: Broken, folder: Path) -> list[str]:
    (folder / "agents").mkdir()
    return broken.make(folder / "agents")


def env_of(broken: Broken, home: Path) -> dict[str, str]:
    seconds = "1" if broken.silent else "60"
    return {"ACP_BRIDGE_HOME": str(home), "ACP_BRIDGE_START_TIMEOUT": seconds}


@each
async def test_an_editor_is_told_what_happened_the_last_lines_and_what_to_do(
    world: World, tmp_path: Path, broken: Broken
) -> None:
    command = agent_of(broken, tmp_path)
    seconds = 1.0 if broken.silent else 60.0
    told = broken.details(command)
    with anyio.fail_after(_SECONDS):
        async with world.inside(
            command=command, initialized=broken.later, session=False, start_timeout=seconds
        ) as client:
            if broken.later:
                asked = client.send_request("session/new", {"cwd": "/", "mcpServers": []})
            else:
                asked = client.send_request("initialize", {"protocolVersion": 1})
            error: Any = (await client.answer_to(asked, within=30))["error"]
    assert error["data"]["details"].split("\n") == told
    assert error["message"] in told[0]


@pytest.mark.slow
@pytest.mark.parametrize("broken", [BROKEN[name] for name in PRINTED], ids=PRINTED)
async def test_run_chat_and_doctor_say_the_same(
    tmp_path: Path, agent_env: dict[str, str], broken: Broken
) -> None:
    command = agent_of(broken, tmp_path)
    env = {**os.environ, **agent_env, **env_of(broken, tmp_path / "home")}
    ours = [sys.executable, "-m", "acp_bridge"]
    told = broken.details(command)
    with anyio.fail_after(_SECONDS):
        ran = await processes.run([*ours, "run", "hello", "--", *command], env, tmp_path)
        assert (ran.returncode, ran.stdout) == (6, b"")
        assert ran.stderr.decode().splitlines() == [f"acp-bridge: {line}" for line in told]
        looked = await processes.run([*ours, "doctor", "--", *command], env, tmp_path)
        words = " ".join(looked.stdout.decode().replace("-> ", "").split())
        assert looked.returncode == 2
        assert " ".join(" ".join(told).split()) in words
        async with person(["chat", "--", *command], tmp_path, env) as there:
            await there.until(lambda: "".join(told[-1].split()) in "".join(there.seen.split()))
            assert await there.process.wait() == 6
            assert "".join("".join(told).split()) in "".join(there.seen.split())


#: comes to a session, ends at the prompt "die", and then does not take its session up again.
_ENDS_AT_LOAD = """
CAN = {"loadSession": True}
here = os.path.dirname(os.path.abspath(__file__))

def session_prompt(id, params):
    print("what the user says", file=sys.stderr, flush=True)
    if params["prompt"][0]["text"] == "die":
        os._exit(1)
    return {"stopReason": "end_turn"}

def session_load(id, params):
    print("boom", file=sys.stderr, flush=True)
    if os.path.exists(os.path.join(here, "refuses")):
        return {"error": {"code": -32603, "message": "no"}}
    os._exit(4)
"""
_ENDED_AT_LOAD = [
    "the last lines of its stderr:",
    "  boom",
    "run the same command in a terminal, and read what it says",
]


async def test_an_agent_that_ends_while_it_is_given_its_session_again_has_the_same_answer(
    world: World,
) -> None:
    command = tiny_agent(world.cwd, _ENDS_AT_LOAD)
    async with world.inside(command=command) as client:
        await client.prompt("hello")
        await refused(client, "die")
        error = await refused(client, "again")
    what = "tiny_agent.py ended before it answered the request for a session (exit code 4)"
    assert error.message == what
    assert error.data["details"].split("\n") == [what, *_ENDED_AT_LOAD]


async def test_an_agent_that_refuses_its_session_again_is_told_with_its_last_lines(
    world: World,
) -> None:
    command = tiny_agent(world.cwd, _ENDS_AT_LOAD)
    (world.cwd / "refuses").touch()
    async with world.inside(command=command) as client:
        await client.prompt("hello")
        await refused(client, "die")
        error = await refused(client, "again")
    assert "could not be made ready: the agent would not load the session: no." in error.message
    assert error.data["details"].split("\n") == [error.message, *_ENDED_AT_LOAD[:2]]


@pytest.mark.slow
async def test_run_and_chat_tell_of_a_session_that_is_not_taken_up_again(
    tmp_path: Path, agent_env: dict[str, str]
) -> None:
    command = tiny_agent(tmp_path, _ENDS_AT_LOAD)
    env = {**os.environ, **agent_env, "ACP_BRIDGE_HOME": str(tmp_path / "home")}
    ours = [sys.executable, "-m", "acp_bridge"]
    with anyio.fail_after(_SECONDS):
        for words in (["hello"], ["--continue", "hello"]):
            ran = await processes.run([*ours, "run", *words, "--", *command], env, tmp_path)
        assert ran.returncode == 6
        told = [f"acp-bridge: {line}" for line in _ENDED_AT_LOAD]
        assert ran.stderr.decode().splitlines()[-3:] == told
        async with person(["chat", "--resume", "--", *command], tmp_path, env) as there:
            await there.sees("/help lists keys")
            there.type("again\r")
            await there.sees("  boom")
            await there.sees(_ENDED_AT_LOAD[-1])
