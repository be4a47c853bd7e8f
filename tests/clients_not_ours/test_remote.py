"""The TypeScript SDK's client comes to `acp-bridge serve` over its own WebSocket stream."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.clients_not_ours.conftest import HERE
from tests.process.bridge_support import World
from tests.process.conftest import world as world
from tests.process.test_serve import serving

pytestmark = pytest.mark.process
#: seconds
LIMIT = 60


async def test_two_editors_of_the_typescript_sdk_have_one_session_over_websocket(
    modules: Path, world: World, tmp_path: Path
) -> None:
    node = shutil.which("node")
    assert node, "there is no node"
    async with serving(world, tmp_path) as it:
        given = {"url": it.url, "token": it.secret, "cwd": str(world.cwd)}
        # Node 20 has a WebSocket only when asked for it.
        words = [node, "--experimental-websocket", "--no-warnings", str(HERE / "sdk_remote.mjs")]
        env = {**os.environ, "GIVEN": json.dumps(given)}
        with anyio.fail_after(LIMIT):
            done = await anyio.run_process(words, env=env, check=False, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout.decode() + it.said
