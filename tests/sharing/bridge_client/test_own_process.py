"""A bridge that a command starts: spoken to, told of by its stderr, and ended with the command."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from acp_bridge.sharing.bridge_client import own_process
from acp_bridge.sharing.bridge_client.own_process import BRIDGE, over_process
from acp_bridge.sharing.bridge_client.sent import ConnectionLost
from tests.sharing.bridge_client.fake_bridge import Notes
from tests.support.fixture_agents import fixture_command
from tests.support.processes import MARK, all_gone, marked

pytestmark = pytest.mark.process


async def test_a_prompt_goes_through_a_bridge_of_its_own_which_ends_with_the_block(
    tmp_path: Path, agent_env: Mapping[str, str], mark: str
) -> None:
    notes, told = Notes(), list[str]()
    command = [*BRIDGE, "--home", str(tmp_path / "home"), "--", *fixture_command()]
    env = {**os.environ, **agent_env}
    with anyio.fail_after(30):
        async with over_process(command, notes, told.append, env=env) as connection:
            await connection.initialize("test", within=20)
            new = {"cwd": str(tmp_path), "mcpServers": []}
            session = await connection.request("session/new", new, within=20)
            prompt = {
                "sessionId": session["sessionId"],
                "prompt": [{"type": "text", "text": "hello"}],
            }
            result = await connection.request("session/prompt", prompt, within=20)
            assert result["stopReason"] == "end_turn"
        assert any(
            params["update"]["sessionUpdate"] == "agent_message_chunk"
            for method, params in notes.heard
            if method == "session/update"
        )
        await all_gone(mark)


async def test_what_a_bridge_says_before_it_ends_is_told(tmp_path: Path) -> None:
    told = list[str]()
    with anyio.fail_after(30), pytest.raises(ConnectionLost):
        async with over_process([*BRIDGE, "--odd"], Notes(), told.append) as connection:
            await connection.initialize("test", within=20)
    assert told[0] == "acp-bridge: unknown argument '--odd'"


async def test_a_process_that_does_not_end_with_its_stdin_is_killed(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    monkeypatch.setattr(own_process, "END", 0.1)
    deaf = "import signal, sys; print('up', file=sys.stderr, flush=True); signal.pause()"
    up = anyio.Event()

    def told(line: str) -> None:
        up.set()

    with anyio.fail_after(30):
        command, env = [sys.executable, "-c", deaf], {**os.environ, MARK: mark}
        async with over_process(command, Notes(), told, env=env):
            await up.wait()
            assert marked(mark)
        assert not marked(mark)
