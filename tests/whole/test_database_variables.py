"""What agents and hooks of a bridge have of the variables by which its database is reached."""

import os
import sys

import anyio
import pytest

from tests.support.postgres import Cluster
from tests.whole.bridge_support import ROOT, World
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("K7")]

AGENT = """
def session_prompt(id, params):
    update("s", **text("agent: " + " ".join(name for name in os.environ if name[:2] == "PG")))
    return {"stopReason": "end_turn"}
"""
VARIABLES = {"PGPASSWORD": "hunter2", "PGPASSFILE": "/x", "PGHOST": "db"}
URL = "postgresql://db/sessions"


@pytest.mark.hazard("K7.7")
@pytest.mark.parametrize(
    ("how", "handed"),
    [("none", "PGHOST PGPASSFILE PGPASSWORD"), ("by option", ""), ("by variable", "")],
)
async def test_with_a_database_as_the_journal_no_agent_and_no_hook_has_one(
    world: World, server: Cluster, how: str, handed: str
) -> None:
    url = server.new_database()
    options = ("--journal", url) if how == "by option" else ()
    env = {"ACP_BRIDGE_JOURNAL": url} if how == "by variable" else {}
    world.home.mkdir(exist_ok=True)
    shown = world.cwd / "shown"
    hook = f"env | grep -o ^PG[A-Z]* >{shown}; true"
    (world.home / "hooks.toml").write_text(f"[[UserPromptSubmit]]\ncommand = '''{hook}'''\n")
    agent = tiny_agent(world.cwd, AGENT)
    async with world.bridge(command=agent, options=options, env=VARIABLES | env) as client:
        await client.prompt("what do you have?")
        said = [u["content"]["text"] for u in client.updates() if "agent: " in str(u)]
    assert [" ".join(sorted(each.split()[1:])) for each in said] == [handed]
    assert shown.read_text().split() == (["PGHOST"] if handed else [])  # it has no secret ever
    assert not {"PGHOST", "PGPASSWORD"} & os.environ.keys()


async def test_an_agent_that_doctor_tries_has_none(world: World) -> None:
    shown = world.cwd / "shown"
    agent = ["sh", "-c", f"env >{shown}"]
    words = [sys.executable, "-m", "acp_bridge", "doctor", "--journal", URL, "--", *agent]
    env = {**os.environ, **VARIABLES, "PYTHONPATH": str(ROOT), "ACP_BRIDGE_HOME": str(world.home)}
    with anyio.fail_after(20):
        await anyio.run_process(words, env=env, check=False)
    assert [line for line in shown.read_text().splitlines() if line.startswith("PG")] == []
