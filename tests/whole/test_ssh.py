"""A bridge at the other end of ssh, as docs/remote.md has it: the line is cut, the turn goes on.

A real sshd on the loopback, of the user who runs the tests. Where there is none, it is skipped.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.waiting import until
from tests.whole.bridge_support import ROOT, World
from tests.whole.test_bridge_keep import ended, kept_bridge

pytestmark = pytest.mark.process

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def key(path: Path) -> Path:
    """Make a key without a password."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def answers(port: int) -> bool:
    """True when somebody listens there."""
    with socket.socket() as talk:
        return talk.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[str]]:
    """The command that runs what follows it over a real sshd on the loopback."""
    if SSHD is None or not shutil.which("ssh"):
        pytest.skip("there is no sshd here (Debian: openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    host, mine = key(tmp_path / "host"), key(tmp_path / "mine")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = [
        *("ListenAddress=127.0.0.1", f"Port={port}", f"HostKey={host}", "StrictModes=no"),
        *(f"AuthorizedKeysFile={mine}.pub", "PidFile=none", "PermitRootLogin=prohibit-password"),
    ]
    options = [word for each in settings for word in ("-o", each)]
    command = [SSHD, "-D", "-e", "-f", os.devnull, *options]
    daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    yield [
        *("ssh", "-F", os.devnull, "-T", "-i", str(mine), "-p", str(port)),
        *("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={tmp_path / 'known'}"),
        *("-o", "LogLevel=ERROR", "-o", f"User={_user()}", "127.0.0.1"),
    ]
    daemon.terminate()
    daemon.wait()


def _user() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


@asynccontextmanager
async def over(ssh: list[str], world: World, *options: str) -> AsyncIterator[RecordingClient]:
    """A client whose bridge is at the other end."""
    port = int(ssh[ssh.index("-p") + 1])
    await until(lambda: answers(port))
    env = {**world.env, "ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    words = ["env", *(f"{name}={value}" for name, value in env.items())]
    words += [sys.executable, "-m", "acp_bridge", *options, "--", *fixture_command()]
    async with RecordingClient.start([*ssh, shlex.join(words)]) as client:
        await client.initialize()
        yield client


@pytest.mark.slow
@pytest.mark.hazard("V7")
async def test_a_turn_outlives_the_line_and_the_next_connection_has_it(
    ssh: list[str], world: World
) -> None:
    async with over(ssh, world, "--keep", "1h") as client:
        await client.new_session(world.cwd)
        client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        client.kill()  # ssh: what is at the other end learns of it when sshd does
        await client.wait()
    async with over(ssh, world, "--keep", "1h") as again:
        await again.load_session(client.session_id, world.cwd)
        world.gates.open("g")
        await again.until_text("two")
        assert again.texts()[0] == "one"
        await again.request("session/close", {"sessionId": client.session_id})
    await ended(world)


async def test_without_keep_the_bridge_ends_with_the_line(ssh: list[str], world: World) -> None:
    async with over(ssh, world) as client:
        await client.new_session(world.cwd)
        await kept_bridge(world)
        client.kill()
        await client.wait()
    await ended(world)
