"""A user who may have no more processes, and a data folder that can't be used."""

import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.support.rights import for_commoner, without_rights
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

#: for what starts several interpreters
_SECONDS = 30.0

#: executes its arguments with `ulimit -u` so that the user can start N - 1 processes or threads.
_WITH_FEW = r"""
import os, resource, sys
left, *command = sys.argv[1:]
used = 0
for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
    try:
        if os.stat(f"/proc/{name}").st_uid == os.getuid():
            used += len(os.listdir(f"/proc/{name}/task"))
    except OSError:
        pass
resource.setrlimit(resource.RLIMIT_NPROC, (used + int(left),) * 2)
os.execv(command[0], command)
"""


@asynccontextmanager
async def bridge(home: Path, *agent: str, few: int | None = None) -> AsyncIterator[RecordingClient]:
    """A bridge of an ordinary user whose HOME is `home`."""
    limit = [sys.executable, "-c", _WITH_FEW, str(few)] if few is not None else []
    command = [sys.executable, "-m", "acp_bridge", *(agent or ("--model", "demo"))]
    env = {"HOME": str(home), "XDG_DATA_HOME": "", "ACP_BRIDGE_HOME": ""}
    async with RecordingClient.start([*without_rights(), *limit, *command], env=env) as client:
        yield client
        client.close_stdin()
        assert await client.wait() == 0
    assert "Traceback" not in client.stderr.decode()


async def opened(client: RecordingClient, cwd: Path) -> Message:
    """What is answered to `session/new`, or to `initialize` if that is an error."""
    hello = {"protocolVersion": 1, "clientCapabilities": {}}
    answer = await client.answer_to(client.send_request("initialize", hello), _SECONDS)
    if "error" in answer:
        return answer
    setup = {"cwd": str(cwd), "mcpServers": []}
    return await client.answer_to(client.send_request("session/new", setup), _SECONDS)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that an ordinary user can reach."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.mark.parametrize(("few", "own"), [(0, True), (2, False), (5, True)])
@pytest.mark.hazard("P16.5", "P6")
async def test_a_user_with_few_processes_left_gets_a_session_or_is_told_the_limit(
    place: Path, few: int, own: bool
) -> None:
    folder = for_commoner(place)
    agent = () if own else ("--", *tiny_agent(place, ""))
    async with bridge(folder, *agent, few=few) as client:
        answer = await opened(client, folder)
    told = json.dumps(answer.get("error"))
    assert "result" in answer or "ulimit -u" in told
    assert "log" not in told


@pytest.mark.parametrize(("home", "own"), [("read-only", True), ("missing", False), ("file", True)])
@pytest.mark.hazard("P16.4")
async def test_a_home_that_can_not_be_used_is_named_with_the_reason(
    place: Path, home: str, own: bool
) -> None:
    agent = () if own else ("--", *tiny_agent(place, ""))
    folder, why = for_commoner(place) / "folder", "Permission denied"
    folder.mkdir()
    folder.chmod(0o555)
    where = folder / "none" if home == "missing" else folder
    if home == "file":
        where, why = place / "file", "Not a directory"
        where.touch()
    async with bridge(where, *agent) as client:
        answer = await opened(client, place)
    told = answer["error"]["message"]
    assert f"can't be written in {where}" in told
    assert why in told
    assert "`acp-bridge doctor`" in told
