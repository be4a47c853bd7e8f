"""What an agent can do from inside of namespaces of its own, by the recipe of SECURITY.md."""

import json
import re
import shutil
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.records import replace
from tests.attacks.field import ATTACKER, Field, told_by
from tests.support.processes import descendants, gone
from tests.support.rights import for_commoner, without_any_right
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.slow]

SECURITY = Path(__file__).parents[2] / "SECURITY.md"

#: looks at all processes, files and sockets, and leaves one process behind.
LOOKING = r"""
import json, os, socket, sys, time
home, sock = sys.argv[1:]
if not os.fork():
    os.setsid()
    os.closerange(0, 64)
    time.sleep(1000)
lines = [open(f"/proc/{name}/cmdline").read() for name in os.listdir("/proc") if name.isdigit()]
talk = socket.socket(socket.AF_UNIX)
try:
    talk.connect(sock)
    said = "connected"
except OSError as error:
    said = error.strerror
print(json.dumps({"seen": lines, "home": os.path.exists(home), "said": said,
                  "own": os.listdir(os.path.expanduser("~"))}))
"""


def recipe(home: Path, own: Path, project: Path, agent: list[str]) -> list[str]:
    """The command behind `acp-bridge --` in SECURITY.md, with these folders and this agent."""
    text = SECURITY.read_text("utf-8")
    found = re.search(r"^ +acp-bridge -- (bwrap .*(?:\n {8}.*)*)", text, re.MULTILINE)
    assert found
    words = found[1].replace("\\\n", " ").split()
    assert words[-1] == "codex-acp"
    places = {"~": str(home), "~/agent-home": str(own), "~/src": str(project)}
    return [*(places.get(word, word) for word in words[:-1]), *agent]


@pytest.mark.hazard("S27")
async def test_an_agent_in_namespaces_sees_nothing_of_ours_and_dies_with_its_session(
    field: Field,
) -> None:
    python = shutil.which("python3", path="/usr/bin")
    if not python or not shutil.which("bwrap"):
        pytest.skip("bwrap, or a Python below /usr, is not installed")
    own = field.folder / "agent-home"
    for folder in (own, field.project):
        folder.mkdir()
        for_commoner(folder)
    (own / "login").touch()
    agent = [python, tiny_agent(field.project, ATTACKER)[1]]
    command = [*without_any_right(), *recipe(field.folder, own, field.project, agent)]
    trial = [*command[: -len(agent)], "true"]
    if (await anyio.run_process(trial, check=False)).returncode:
        pytest.skip("bwrap gets no namespaces without root here")
    async with replace(field, agent=command).bridge() as client:
        there = await field.listening(client)
        prompt = field.tool(LOOKING, str(field.home), there.socket)
        program = shutil.move(prompt.split()[1], field.project)
        await client.prompt(f"do {program} {field.home} {there.socket}")
        said = json.loads(told_by(client))
        assert client.process is not None
        below = descendants(client.process.pid)
    for pid in below:
        await gone(pid)
    assert said["said"] == "No such file or directory"
    assert not said["home"]
    assert set(said["own"]) == {"login", "project"}
    assert len(said["seen"]) == 4
    assert [line for line in said["seen"] if "acp_bridge" in line] == []
