"""Another version is installed over a bridge that is running: its files are gone, it lives on."""

import shutil
from pathlib import Path

import pytest

from tests.whole.bridge_support import ROOT, World, refused, stopped

pytestmark = pytest.mark.process


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of acp-bridge, for a test to replace."""
    folder = tmp_path / "installed"
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "acp_bridge", folder / "acp_bridge", ignore=left_out)
    return folder


def replace(folder: Path) -> None:
    """Install a version that has its files in other places."""
    shutil.move(folder / "acp_bridge", folder / "other")
    (folder / "acp_bridge").mkdir()
    shutil.move(folder / "other", folder / "acp_bridge" / "other")
    (folder / "acp_bridge" / "__init__.py").write_text('__version__ = "9.0"\n')


@pytest.mark.hazard("C8", "C10")
async def test_a_bridge_whose_files_were_replaced_stops_a_deaf_agent_says_so_and_ends_in_order(
    world: World, installed: Path
) -> None:
    env = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    options = ("--drain-timeout", "0.3")
    async with world.bridge("ignores-cancel", options=options, env=env) as client:
        await client.prompt("say one")
        running = client.send_prompt("gate middle; say never")
        await world.gates.reached("middle")
        replace(installed)
        client.cancel()
        assert await stopped(client, running) == "cancelled"
        told = (await refused(client, "say never either")).message
        assert "another version of acp-bridge was installed" in told
        assert (await client.request("session/list", {}))["sessions"]
        await client.request("session/close", {"sessionId": client.session_id})
    assert world.log.prompts()[0] == "say one"
