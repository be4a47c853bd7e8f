"""The environment that a process is executed with, which others can read until it is private."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from tests.support.client import RecordingClient

pytestmark = pytest.mark.process

KEY = "sk-made-up-0123456789"
#: for what starts several interpreters
_SECONDS = 40.0
#: starts acp-bridge so that all that it starts of Python's is started by another program.
_BY = "import sys; sys.executable = sys.argv.pop(1); from acp_bridge.__main__ import main; main()"


class Starts:
    """A program in Python's place, which notes what it was started with."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "python"
        self._noted = folder / "noted"
        self._noted.mkdir()
        at = f"{self._noted}/$$"
        note = f'{{ echo "$*"; env; }} > {at}.new\nmv {at}.new {at}'
        self.program.write_text(f'#!/bin/sh\n{note}\nexec {sys.executable} "$@"\n')
        self.program.chmod(0o755)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", _BY, str(self.program), *words]

    def noted(self) -> list[str]:
        """Of each start the arguments and the environment."""
        return [file.read_text() for file in self._noted.iterdir() if not file.suffix]


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    return Starts(tmp_path)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.getenv("PYTHONPATH")]))
    home = str(tmp_path / "home")
    return {"ANTHROPIC_API_KEY": KEY, "ACP_BRIDGE_HOME": home, "PYTHONPATH": path}


@pytest.mark.hazard("K7.4")
async def test_no_process_of_a_bridge_is_started_with_a_key_in_its_environment_and_all_have_it(
    starts: Starts, env: dict[str, str], tmp_path: Path
) -> None:
    """The second session's agent is executed while the first one's parent loads."""
    async with RecordingClient.start(starts.command(), env=env) as client:
        await client.initialize(within=_SECONDS)
        setup = {"cwd": str(tmp_path), "mcpServers": []}
        asked = [client.send_request("session/new", setup) for _ in range(2)]
        for request in asked:
            answer = await client.answer_to(request, _SECONDS)
            assert "anthropic/" in answer["result"]["configOptions"][0]["currentValue"]
    begun = starts.noted()
    assert any("agent.fork_parent" in each for each in begun)
    assert any("-m agent" in each.splitlines()[0] for each in begun)
    assert [each for each in begun if KEY in each] == []


@pytest.mark.hazard("K7.4")
async def test_a_command_starts_its_bridge_without_a_key_in_its_environment(
    starts: Starts, env: dict[str, str], tmp_path: Path
) -> None:
    with anyio.fail_after(_SECONDS):
        words = starts.command("run", "--model", "demo", "hello")
        done = await anyio.run_process(words, env={**os.environ, **env}, cwd=tmp_path)
    assert done.stdout
    begun = starts.noted()
    assert any("-m acp_bridge" in each for each in begun)
    assert [each for each in begun if KEY in each] == []
