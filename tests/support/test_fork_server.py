"""A forked process is, for tests, the same as one with an interpreter of its own."""

import os
import signal
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import anyio
import pytest

from tests.core.agents.guard_support import parent_of
from tests.support import fork_server, processes
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.processes import MARK, marked

pytestmark = pytest.mark.process

BRIDGE, AGENT = [*fork_server.BRIDGE], [*fork_server.AGENT]
WORDS = (
    [*BRIDGE, "--no-such-option"],
    [*BRIDGE, "sessions", "--json"],
    [*BRIDGE, "ps", "--help"],
    [*AGENT, "--no-such-option"],
    [*AGENT, "--help"],
    [*AGENT, "--model", "scripted:/no/such/file"],
)


def starts(*, forked: bool) -> AbstractContextManager[None]:
    return nullcontext() if forked else fork_server.whole_starts()


@pytest.mark.parametrize("command", WORDS, ids=lambda words: " ".join(words[2:4]))
async def test_a_command_says_the_same_and_ends_with_the_same_code(
    command: list[str], tmp_path: Path
) -> None:
    said = []
    for forked in (True, False):
        with anyio.fail_after(20), starts(forked=forked):
            done = await processes.run(command, {"ACP_BRIDGE_HOME": str(tmp_path)}, tmp_path)
            said.append((done.returncode, done.stdout, done.stderr))
    assert said[0] == said[1]


async def test_it_has_its_own_session_folder_descriptors_mark_and_environment(
    tmp_path: Path, agent_env: dict[str, str], mark: str
) -> None:
    env = {**agent_env, "ACP_BRIDGE_HOME": str(tmp_path / "home"), "ANY": "thing"}
    seen = []
    for forked in (True, False):
        with starts(forked=forked):
            command = [*BRIDGE, "--", *fixture_command()]
            async with RecordingClient.start(command, env=env, cwd=tmp_path) as client:
                await client.initialize()
                assert client.process
                pid = client.process.pid
                assert isinstance(client.process, fork_server.Forked) is forked
                assert os.getsid(pid) == pid
                assert pid in marked(mark)
                proc = Path(f"/proc/{pid}")
                agents = [
                    each for each in marked(mark) if b"fixture_agent" in told(each, "cmdline")
                ]
                environ = told(agents[-1], "environ").split(b"\0")
                assert {b"ANY=thing", f"{MARK}={mark}".encode()} <= set(environ)
                seen.append((proc / "cwd").resolve())
                assert not (forked and streams(pid) & streams(parent_of(pid)))
                client.terminate(signal.SIGKILL)
                assert await client.wait() == -signal.SIGKILL
    assert seen[0] == seen[1]


def streams(pid: int) -> set[str]:
    """The pipes and sockets that a process has."""
    folder = f"/proc/{pid}/fd"
    found = set[str]()
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"{folder}/{name}"))
    return {each for each in found if each.startswith(("pipe:", "socket:"))}


def told(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()
