"""Subagents of an agent process, behind a bridge process that is killed."""

import pytest

from tests.whole.bridge_support import World
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

HAS_ONE = """
CAN = {"loadSession": True}

def session_load(id, params):
    return {}

def session_prompt(id, params):
    update("s", sessionUpdate="subagent_update", sessionId="kid", title="Look around",
           state={"state": "running"}, capabilities={"cancel": {}})
    update("kid", **text("half of it\\n"))
"""


@pytest.mark.hazard("X1", "C16", "R1")
async def test_subagents_whose_bridge_was_killed_have_an_end_for_every_client(
    world: World,
) -> None:
    command = tiny_agent(world.cwd, HAS_ONE)
    shows: dict[str, object] = {"subagents": {}}
    async with world.bridge(command=command, capabilities=shows, exits=-9) as client:
        session_id = client.session_id
        client.send_prompt("go")
        await client.until(lambda m: "half of it" in str(m))
        (told,) = [u for u in client.updates() if u["sessionUpdate"] == "subagent_update"]
        assert told["sessionId"] == f"{session_id}:1"
        client.kill()
    async with world.bridge(command=command, capabilities=shows, session=False) as client:
        await client.load_session(session_id, world.cwd)
        states = [u["state"] for u in client.updates() if u["sessionUpdate"] == "subagent_update"]
        assert states == [{"state": "running"}, {"state": "idle", "stopReason": "cancelled"}]
        assert "half of it" in client.text()
    async with world.bridge(command=command, session=False) as client:
        await client.load_session(session_id, world.cwd)
        cards = [update for update in client.updates() if "toolCallId" in update]
        assert (cards[0]["title"], cards[-1]["status"]) == ("Look around", "failed")
        assert f"{session_id}:1" not in str(client.updates())
