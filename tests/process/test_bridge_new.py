"""`session/new`, when the agent dies of it, refuses it, or says odd things beside its answer."""

import pytest

from tests.process.bridge_support import World, fails, stopped
from tests.process.tiny_agent import tiny_agent
from tests.support.recording import RpcError

pytestmark = pytest.mark.process


@pytest.mark.hazard("P3")
async def test_a_session_is_made_after_an_agent_died_of_making_one(world: World) -> None:
    agent = tiny_agent(
        world.cwd,
        """
def session_new(id, params):
    import subprocess
    if not os.path.exists("died"):
        open("died", "w").close()
        os._exit(3)
    return {"sessionId": "s"}
os.chdir(os.path.dirname(os.path.abspath(__file__)))
""",
    )
    async with world.bridge(command=agent, session=False) as client:
        with pytest.raises(RpcError):
            await client.new_session(world.cwd)
        await client.new_session(world.cwd)
        assert await stopped(client, client.send_prompt("hello")) == "end_turn"


@pytest.mark.hazard("P6")
async def test_a_session_is_made_whatever_the_agent_says_of_it_beside_its_id(
    world: World,
) -> None:
    agent = tiny_agent(
        world.cwd,
        """
def session_new(id, params):
    update("s", sessionUpdate=["x"])
    update("s", sessionUpdate="usage_update", used=1, size=2)
    return {"sessionId": "s", "_meta": [1], "modes": 3, "configOptions": "none"}
""",
    )
    async with world.bridge(command=agent) as client:
        await client.until(lambda m: "usage_update" in str(m))
        assert await stopped(client, client.send_prompt("hello")) == "end_turn"


@pytest.mark.hazard("P8", "P13")
async def test_what_was_said_of_a_session_that_came_to_nothing_is_not_shown_in_the_next(
    world: World,
) -> None:
    agent = tiny_agent(
        world.cwd,
        """
made = 0
def session_new(id, params):
    global made
    made += 1
    update(str(made), **text(f"of {made}."))
    if made == 1:
        return {"error": {"code": -32603, "message": "no"}}
    return {"sessionId": str(made)}
""",
    )
    async with world.bridge(command=agent, session=False) as client:
        await fails(client, "session/new", -32603, cwd=str(world.cwd), mcpServers=[])
        await client.new_session(world.cwd)
        await client.prompt("hello")
        assert client.text() == "of 2."
