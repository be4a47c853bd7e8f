"""The agent does not know the session any more, or will not load it: what is lost, and said."""

import pytest

from tests.process.bridge_support import World, refused, stopped
from tests.process.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

#: keeps a session only once a turn of it has ended well.
FORGETFUL = """
CAN = {"loadSession": True}
kept = os.path.join(os.path.dirname(__file__), "kept")
held = None
def session_load(id, params):
    if not os.path.exists(kept):
        return {"error": {"code": -32002, "message": "no such session"}}
    return {}
def session_prompt(id, params):
    global held
    words = params["prompt"][0]["text"]
    if words == "fail":
        return {"error": {"code": -32603, "message": "the model failed"}}
    if words.startswith("die"):
        os._exit(1)
    if words == "wait":
        held = id
        update("s", **text("waiting"))
        return None
    open(kept, "w").close()
    return {"stopReason": "end_turn"}
def session_cancel(id, params):
    send(id=held, result={"stopReason": "cancelled"})
"""


@pytest.mark.hazard("R10")
@pytest.mark.parametrize("first", ["fail", "wait"])
async def test_a_session_whose_only_turns_failed_or_were_cancelled_goes_on_after_a_death(
    world: World, first: str
) -> None:
    async with world.bridge(command=tiny_agent(world.cwd, FORGETFUL)) as client:
        prompt = client.send_prompt(first)
        if first == "wait":
            await client.until_text("waiting")
            client.cancel()
        assert await stopped(client, prompt) == ("cancelled" if first == "wait" else -32603)
        await refused(client, "die")
        assert await client.prompt("hello") == {"stopReason": "end_turn"}
        assert "The agent did not keep this session" in client.text()
        await refused(client, "die again")
        assert await client.prompt("hello again") == {"stopReason": "end_turn"}
        assert client.text().count("did not keep") == 1
