"""`--home` of the bridge is the built-in agent's data folder too."""

import sys
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.processes import MARK

pytestmark = [pytest.mark.process, pytest.mark.slow]


async def test_a_folder_given_to_the_bridge_holds_the_agents_conversations_and_keys(
    tmp_path: Path, cwd: Path, mark: str
) -> None:
    home = tmp_path / "given"
    home.mkdir()
    (home / "keys.env").write_text("OPENAI_API_KEY=sk-made-up-0123456789\n")
    words = ["-m", "acp_bridge", "--home", str(home), "--model", "openai/gpt-4o"]
    env = {MARK: mark, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "elsewhere")}
    async with RecordingClient.start([sys.executable, *words], env=env) as client:
        await client.initialize({}, within=20)
        await client.new_session(cwd)  # refused without a key
    assert list((home / "agent").glob("*.jsonl"))
    assert not (tmp_path / "elsewhere").exists()
