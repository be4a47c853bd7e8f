"""The agent does not know the session any more, or will not load it: what is lost, and said."""

import pytest

from tests.support.client import RecordingClient
from tests.whole.bridge_support import World, refused, stopped
from tests.whole.tiny_agent import tiny_agent

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


@pytest.mark.hazard("R10.1")
@pytest.mark.parametrize("first", ["fail", "wait"])
async def test_a_session_whose_only_turns_failed_or_were_cancelled_goes_on_after_a_death(
    world: World, first: str
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, FORGETFUL)) as client:
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


#: loads nothing while there is a file `refuse`; says what it was given.
STUBBORN = """
CAN = {"loadSession": True}
folder = os.path.dirname(__file__)
said = []
def session_new(id, params):
    said.clear()
    return {"sessionId": f"s{time.monotonic_ns()}"}
def session_load(id, params):
    if os.path.exists(os.path.join(folder, "refuse")):
        data = {"details": "Invalid session identifier"}
        return {"error": {"code": -32603, "message": "Internal error", "data": data}}
    return {}
def session_prompt(id, params):
    if params["prompt"][-1]["text"].startswith("die"):
        os._exit(1)
    heard = [block["text"] for block in params["prompt"]]
    update(params["sessionId"], **text(f"{len(heard)} blocks"))
    if len(heard) > 1:
        open(os.path.join(folder, "heard"), "a").write(heard[0])
    return {"stopReason": "end_turn"}
"""


@pytest.mark.hazard("R15.1")
async def test_a_session_that_was_not_loaded_is_tried_again_with_each_prompt_and_the_reason_told(
    world: World,
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, STUBBORN)) as client:
        await client.prompt("hello")
        (world.cwd / "refuse").touch()
        await refused(client, "die")
        error = await refused(client, "say never")
        for words in ("Internal error: Invalid session identifier", "`/queue memory new`"):
            assert words in error.message
        await client.logged("Invalid session identifier")
        (world.cwd / "refuse").unlink()
        assert await client.prompt("again") == {"stopReason": "end_turn"}
        assert await client.prompt("/queue memory new") == {"stopReason": "end_turn"}
        assert "Memory lost, as you said" in client.text()


@pytest.mark.hazard("R15.5")
async def test_an_agent_that_loads_a_session_and_repeats_nothing_of_it_may_have_lost_it(
    world: World,
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, STUBBORN)) as client:
        await client.prompt("hello")
        await refused(client, "die")
        seen = client.mark()
        await client.prompt("again")
        assert client.text(since=seen).count("may not remember what was said before") == 1
        await client.prompt("/queue memory restore")
        seen = client.mark()
        await client.prompt("and on")
        await client.prompt("and on")
        blocks = [text for text in client.texts(since=seen) if "block" in text]
        assert blocks == ["2 blocks", "1 blocks"]
        assert "may not remember" not in client.text(since=seen)


@pytest.mark.hazard("R15.2")
@pytest.mark.parametrize("how", ["new", "restore"])
@pytest.mark.parametrize("other_bridge", [False, True])
async def test_the_user_may_go_on_with_a_new_session_of_the_agent_behind_the_same_id(
    world: World, how: str, other_bridge: bool
) -> None:
    agent, heard = tiny_agent(world.cwd, STUBBORN), world.cwd / "heard"
    async with world.inside(command=agent) as client:
        await client.prompt("the first words")
        (world.cwd / "refuse").touch()
        await refused(client, "die")
        await refused(client, "say never")
        seen = client.mark()
        assert await client.prompt(f"/queue memory {how}") == {"stopReason": "end_turn"}
        assert "Memory lost" in client.text(since=seen)
        assert ("transcript" in client.text(since=seen)) == (how == "restore")
        session_id = client.session_id
        if not other_bridge:
            await go_on(client, how)
    if other_bridge:
        async with world.inside(command=agent, session=False) as client:
            await client.load_session(session_id, world.cwd)
            await go_on(client, how)
    assert heard.exists() == (how == "restore")
    if heard.exists():
        for words in ("User: the first words", "Agent: 1 blocks", "None of it is to be done again"):
            assert heard.read_text().count(words) == 1
        assert "/queue" not in heard.read_text()


async def go_on(client: RecordingClient, how: str) -> None:
    """The next prompts run, the first of them with the transcript if that was wanted."""
    seen = client.mark()
    await client.prompt("/compact")  # a command stands first in its prompt
    await client.prompt("and on")
    blocks = [text for text in client.texts(since=seen) if text.endswith("blocks")]
    assert blocks == ["1 blocks", "2 blocks" if how == "restore" else "1 blocks"]
    assert ("went to the agent" in client.text(since=seen)) == (how == "restore")
    await client.prompt("and again")
    assert client.texts()[-1] == "1 blocks"


@pytest.mark.hazard("R15.1")
async def test_a_session_that_is_not_loaded_with_no_prompt_waiting_says_so_and_how_to_go_on(
    world: World,
) -> None:
    agent = tiny_agent(world.cwd, STUBBORN)
    async with world.inside(command=agent) as client:
        await client.prompt("hello")
        session_id = client.session_id
    (world.cwd / "refuse").touch()
    async with world.inside(command=agent, session=False) as client:
        await client.load_session(session_id, world.cwd)
        await client.logged("session.not_loaded", 3)
        # It is said when the client speaks (invariant C23).
        assert await client.prompt("/queue") == {"stopReason": "end_turn"}
        await client.until_text("`/queue memory restore`")
        assert "Invalid session identifier" in client.text()
