"""Whoever starts an agent that does not come to a session is told why, in the same words."""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.process.bridge_support import World
from tests.support.broken_agents import BROKEN, Broken
from tests.support.person import person

pytestmark = [pytest.mark.process, pytest.mark.hazard("U1")]
_SECONDS = 40
each = pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())


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
    assert error["message"] in (told[0], "Internal error", "no config")


@pytest.mark.slow
@each
async def test_run_chat_and_doctor_say_the_same(
    tmp_path: Path, agent_env: dict[str, str], broken: Broken
) -> None:
    command = agent_of(broken, tmp_path)
    env = {**os.environ, **agent_env, **env_of(broken, tmp_path / "home")}
    ours = [sys.executable, "-m", "acp_bridge"]
    told = broken.details(command)
    with anyio.fail_after(_SECONDS):
        ran = await anyio.run_process(
            [*ours, "run", "hello", "--", *command], env=env, cwd=tmp_path, check=False
        )
        assert (ran.returncode, ran.stdout) == (6, b"")
        assert ran.stderr.decode().splitlines() == [f"acp-bridge: {line}" for line in told]
        if not broken.later:  # the doctor asks for no session
            looked = await anyio.run_process(
                [*ours, "doctor", "--", *command], env=env, cwd=tmp_path, check=False
            )
            words = " ".join(looked.stdout.decode().replace("-> ", "").split())
            assert looked.returncode == 2
            assert " ".join(" ".join(told).split()) in words
        async with person(["chat", "--", *command], tmp_path, env) as there:
            await there.until(lambda: "".join(told[-1].split()) in "".join(there.seen.split()))
            assert await there.process.wait() == 6
            assert "".join("".join(told).split()) in "".join(there.seen.split())
