"""`session/new`, when the agent dies of it, refuses it, or says odd things beside its answer."""

import pytest

from tests.support.recording import RpcError
from tests.whole.bridge_support import World, fails, stopped
from tests.whole.tiny_agent import tiny_agent

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
    async with world.inside(command=agent, session=False) as client:
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
    async with world.inside(command=agent) as client:
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
    async with world.inside(command=agent, session=False) as client:
        await fails(client, "session/new", -32603, cwd=str(world.cwd), mcpServers=[])
        await client.new_session(world.cwd)
        await client.prompt("hello")
        assert client.text().partition("\n")[0] == "of 2."


@pytest.mark.hazard("P8", "C19", "Q12")
async def test_what_an_agent_asks_before_its_session_is_known_names_the_bridges_and_ends_with_it(
    world: World,
) -> None:
    agent = tiny_agent(
        world.cwd,
        """
def session_new(id, params):
    def ask(id, method, **params):
        send(id=id, method=method, params={"sessionId": "0", **params})
    ask(1, "terminal/create", command="ls")
    ask(2, "fs/read_text_file", path="/a")
    answers = [json.loads(sys.stdin.readline()) for _ in range(2)]
    ask(3, "session/request_permission", toolCall={"toolCallId": "t"}, options=[])
    return {"sessionId": "0", "_meta": {"got": [answer.get("result") for answer in answers]}}

def session_prompt(id, params):
    os._exit(3)
""",
    )
    can = {"terminal": True, "fs": {"readTextFile": True}}
    async with world.inside(command=agent, session=False, capabilities=can) as client:
        client.side.files["/a"] = "text"
        client.side.permission = "never"
        made = await client.request("session/new", {"cwd": str(world.cwd), "mcpServers": []})
        assert made["_meta"]["got"] == [{"terminalId": "term-1"}, {"content": "text"}]
        session_id = made["sessionId"]
        question = await client.until_request("session/request_permission")
        asked = [client.recording.requests(m)[0] for m in ("terminal/create", "fs/read_text_file")]
        assert {m["params"]["sessionId"] for m in [*asked, question]} == {session_id}
        assert await stopped(client, client.send_prompt("hello", session_id)) == -32603
        assert client.side.terminals == []
        called_back = await client.until(lambda m: m.get("method") == "$/cancel_request")
        assert called_back["params"] == {"requestId": question["id"]}


@pytest.mark.hazard("P11")
async def test_a_session_is_made_while_the_process_of_another_one_still_starts(
    world: World,
) -> None:
    agent = tiny_agent(
        world.cwd,
        """
here = os.path.dirname(os.path.abspath(__file__))
def initialize(id, params):
    number = len([name for name in os.listdir(here) if name.startswith("started")])
    open(os.path.join(here, f"started{number}"), "w").close()
    print("starting number", number, file=sys.stderr, flush=True)
    while number == 1 and not os.path.exists(os.path.join(here, "go")):
        time.sleep(0.01)
    return {"protocolVersion": 1, "agentCapabilities": CAN}
""",
    )
    async with world.inside(command=agent) as client:
        setup = {"cwd": str(world.cwd), "mcpServers": []}
        slow = client.send_request("session/new", setup)
        await client.logged("starting number 1")
        await client.request("session/new", setup)
        assert client.recording.answers(slow) == []
        (world.cwd / "go").touch()
        assert "result" in await client.answer_to(slow)
