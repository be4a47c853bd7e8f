"""The TypeScript SDK's client in a whole conversation with the built-in agent.

What the client does and expects stands in sdk_coding.mjs; what the model says, in the dialogue.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.clients_not_ours.conftest import CODING, HERE, Tape

pytestmark = pytest.mark.process
#: seconds; its processes start on a machine that may be busy.
LIMIT = 90
CLIENTS_OWN = {
    *("fs/read_text_file", "fs/write_text_file", "session/request_permission"),
    *(f"terminal/{name}" for name in ("create", "output", "wait_for_exit", "kill", "release")),
}


@pytest.mark.parametrize(
    ("program", "commands", "mode"),
    [("acp_bridge", ["compact", "queue"], "auto"), ("agent", ["compact"], "ask")],
)
async def test_a_whole_conversation_with_every_tool(
    program: str,
    commands: list[str],
    mode: str,
    modules: Path,
    tape: Tape,
    folder: Path,
    client_env: dict[str, str],
) -> None:
    node = shutil.which("node")
    assert node, "there is no node"
    given = {
        "command": tape.of(sys.executable, "-m", program),
        "tape": str(tape.path),
        "cwd": str(folder),
        "model": CODING,
        "commands": commands,
        # The agent's own record brings back no mode that asks less; the bridge has the user's word.
        "mode": mode,
        "forever": "BENCH n=1000000 gap=5 tag=X",
    }
    chosen = {"ACP_BRIDGE_MODEL": CODING, "ACP_BRIDGE_MODELS": "demo"}
    env = {**client_env, **chosen, "GIVEN": json.dumps(given)}
    with anyio.fail_after(LIMIT):
        done = await anyio.run_process(
            [node, str(HERE / "sdk_coding.mjs")], env=env, check=False, stderr=subprocess.STDOUT
        )
    assert done.returncode == 0, done.stdout.decode()
    asked = {"session/set_mode", "session/set_config_option", "session/cancel", "session/load"}
    assert tape.judge().methods >= CLIENTS_OWN | asked
