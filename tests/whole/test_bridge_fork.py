"""`session/fork`: a session that begins with what another has, in a process of its own."""

from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.whole.bridge_support import World, fails, stopped
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

#: keeps its sessions as files, and says all prompts of a session that it remembers.
AGENT = """
CAN = {"loadSession": True, "sessionCapabilities": {"fork": {}, "close": {}}}
folder = os.path.dirname(__file__)
held = None
def path(session):
    return os.path.join(folder, session + ".session")
def hear(what):
    open(os.path.join(folder, "heard"), "a").write(f"{os.getpid()} {what}\\n")
def session_new(id, params):
    session = f"s{time.monotonic_ns()}"
    open(path(session), "w").close()
    return {"sessionId": session, "modes": {"currentModeId": "ask", "availableModes": []}}
def session_load(id, params):
    hear("load " + params["sessionId"])
    update(params["sessionId"], **text("what was said before"))
    return {"modes": {"currentModeId": "auto", "availableModes": []}}
def session_set_mode(id, params):
    hear("mode " + params["modeId"])
    return {}
def session_fork(id, params):
    if os.path.exists(os.path.join(folder, "refuse")):
        return {"error": {"code": -32603, "message": "not now"}}
    session = f"f{time.monotonic_ns()}"
    open(path(session), "w").write(open(path(params["sessionId"])).read())
    hear(f"fork {session} {params['cwd']}")
    return {"sessionId": session, "modes": {"currentModeId": "ask", "availableModes": []}}
def session_close(id, params):
    hear("close " + params["sessionId"])
    return {}
def session_prompt(id, params):
    global held
    words, session = params["prompt"][0]["text"], params["sessionId"]
    if words == "wait":
        held = id
        update(session, sessionUpdate="tool_call", toolCallId="t", title="t", status="pending")
        return None
    before = open(path(session)).read()
    open(path(session), "a").write(words + ".")
    update(session, **text(before or "nothing", messageId=words))
    return {"stopReason": "end_turn"}
def session_cancel(id, params):
    send(id=held, result={"stopReason": "cancelled"})
"""


async def fork(client: RecordingClient, world: World, source: str, **extra: Any) -> str:
    params = {"sessionId": source, "cwd": str(world.cwd), "mcpServers": [], **extra}
    result = await client.request("session/fork", params)
    assert result["sessionId"] != source
    assert result["_meta"]["acp_bridge"]["agentSessionId"].startswith("f")
    return str(result["sessionId"])


@pytest.mark.hazard("P12", "R9")
async def test_a_fork_remembers_and_goes_its_own_way_in_a_process_of_its_own(
    world: World,
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, AGENT)) as client:
        source = client.session_id
        await client.request("session/set_mode", {"sessionId": source, "modeId": "plan"})
        await client.prompt("one")
        new = await fork(client, world, source)
        assert await client.prompt("two", new) == {"stopReason": "end_turn"}
        assert await client.prompt("three", source) == {"stopReason": "end_turn"}
        assert client.texts(new) == ["one."]
        assert client.texts(source) == ["nothing", "one."]
        listed = await client.request("session/list", {"cwd": str(world.cwd)})
        assert {row["sessionId"]: row["title"] for row in listed["sessions"]} == {
            source: "one",
            new: "one (fork)",
        }
        seen = client.mark()
        await client.load_session(new, world.cwd)
        said = [u["content"]["text"] for u in client.updates(new, seen) if "content" in u]
        assert said == ["one", "nothing", "two", "one."]
    heard = [line.split() for line in (world.cwd / "heard").read_text().splitlines()]
    (forked,) = [words for words in heard if words[1] == "fork"]
    assert ["load", forked[2]] not in [words[1:] for words in heard]
    # The mode that the user chose is in force in the fork, too.
    chosen, again = [words[0] for words in heard if words[1:] == ["mode", "plan"]]
    assert chosen != again == forked[0]


async def test_a_session_that_is_not_open_is_forked_and_not_left_open(world: World) -> None:
    agent = tiny_agent(world.cwd, AGENT)
    async with world.inside(command=agent) as client:
        await client.prompt("one")
        source = client.session_id
    async with world.inside(command=agent, session=False) as client:
        new = await fork(client, world, source)
        await client.prompt("two", new)
        assert client.texts(new) == ["one."]
        block = {"type": "text", "text": "never"}
        await fails(client, "session/prompt", -32002, sessionId=source, prompt=[block])
        await fails(
            client, "session/fork", -32002, sessionId="x", cwd=str(world.cwd), mcpServers=[]
        )


@pytest.mark.hazard("C16.5")
async def test_a_fork_in_the_middle_of_a_turn_has_no_open_card(world: World) -> None:
    async with world.inside(command=tiny_agent(world.cwd, AGENT)) as client:
        source, prompt = client.session_id, client.send_prompt("wait")
        await client.until(lambda m: "tool_call" in str(m))
        new = await fork(client, world, source)
        client.cancel(source)
        assert await stopped(client, prompt) == "cancelled"
        await client.load_session(new, world.cwd)
        cards = [u.get("status") for u in client.updates(new) if "toolCallId" in u]
        assert cards == ["pending", "failed"]


async def test_a_fork_that_the_agent_refuses_leaves_nothing(world: World) -> None:
    async with world.inside(command=tiny_agent(world.cwd, AGENT)) as client:
        (world.cwd / "refuse").touch()
        source = client.session_id
        params = {"sessionId": source, "cwd": str(world.cwd), "mcpServers": []}
        error = await fails(client, "session/fork", -32603, **params)
        assert error.message == "not now"
        assert await client.prompt("one") == {"stopReason": "end_turn"}
        listed = await client.request("session/list", {"cwd": str(world.cwd)})
        assert [row["sessionId"] for row in listed["sessions"]] == [source]


async def test_a_fork_survives_the_bridge_and_is_the_agents_to_remember(world: World) -> None:
    agent = tiny_agent(world.cwd, AGENT)
    async with world.inside(command=agent) as client:
        await client.prompt("one")
        new = await fork(client, world, client.session_id)
    async with world.inside(command=agent, session=False) as client:
        await client.load_session(new, world.cwd)
        await client.prompt("two", new)
        assert client.texts(new)[-1] == "one."
