"""`authenticate`: which process gets it, when it is repeated, and what waits for it."""

from typing import Any

import pytest

from tests.support.recording import RpcError
from tests.whole.bridge_support import World, kill_agent, refused, stopped
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

TOKEN: dict[str, Any] = {"methodId": "token", "_meta": {"token": "secret-token"}}


async def test_a_session_waits_for_authentication_and_a_later_process_gets_it_again(
    world: World,
) -> None:
    async with world.inside("needs-auth", session=False) as client:
        new = {"cwd": str(world.cwd), "mcpServers": []}
        with pytest.raises(RpcError) as caught:
            await client.request("session/new", new)
        assert caught.value.code == -32000
        with pytest.raises(RpcError, match="wrong token"):
            await client.request("authenticate", {"methodId": "token"})
        assert await client.request("authenticate", TOKEN) == {}
        await client.new_session(world.cwd)
        assert len(world.log.pids()) == 1
        await client.prompt("say one")
        await kill_agent(world, client)
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "say one"]
        # A second session has a process of its own.
        first = client.session_id
        second = await client.new_session(world.cwd)
        sent = world.log.received("authenticate")[1:]
        assert [message["params"] for message in sent] == [TOKEN] * 3
        assert await client.request("logout", {}) == {}
        for session_id in (first, second):  # each has read the logout when it answers this
            await client.request("session/set_mode", {"sessionId": session_id, "modeId": "plan"})
        assert len(world.log.received("logout")) >= 2
        await kill_agent(world, client)
        assert (await refused(client, "say never")).code == -32000


async def test_an_authentication_that_carries_nothing_is_not_repeated(world: World) -> None:
    async with world.inside("needs-auth", session=False) as client:
        browser = {"methodId": "browser"}
        await client.request("authenticate", browser)
        await client.new_session(world.cwd)
        await client.prompt("say one")
        await kill_agent(world, client)
        assert (await refused(client, "say never")).code == -32000
        assert (await refused(client, "say never again")).code == -32000
        assert len(world.log.received("authenticate")) == 1
        # The process that waits gets the client's own, and has the session from then on.
        await client.request("authenticate", browser)
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "say one"]
    assert len(world.log.pids()) == 2


async def test_each_session_that_waits_for_authentication_gets_its_own(world: World) -> None:
    async with world.inside("needs-auth", session=False) as client:
        sessions = []
        for _ in range(2):
            await client.request("authenticate", {"methodId": "browser"})
            await client.new_session(world.cwd)
            await client.prompt("say hello")
            sessions.append(client.session_id)
    world.repeats = True
    async with world.inside("needs-auth", session=False) as client:
        for session_id in sessions:
            await client.load_session(session_id, world.cwd)
        await client.logged("session.auth_needed", 2)
        for _ in sessions:
            await client.request("authenticate", {"methodId": "browser"})
        for session_id in sessions:
            prompt = client.send_prompt("say again", session_id)
            assert await stopped(client, prompt) == "end_turn"


async def test_an_agent_may_ask_the_user_while_it_authenticates(world: World) -> None:
    command = tiny_agent(
        world.cwd,
        """
CAN = {"loadSession": True}
known = None
def session_new(id, params):
    global known
    known = True
    return {"sessionId": "s"}
def session_load(id, params):
    return {} if known else {"error": {"code": -32000, "message": "who are you"}}
def authenticate(id, params):
    global asked
    asked = id
    send(id="q", method="elicitation/create", params={"mode": "form", "requestId": id})
def answer(id, message):
    global known
    known = "result" in message
    send(id=asked, **({"result": {}} if known else {"error": message["error"]}))
def session_prompt(id, params):
    if params["prompt"][0]["text"] == "die":
        os._exit(1)
    return {"stopReason": "end_turn"}
""",
    )
    async with world.inside(command=command) as client:
        await client.prompt("hello")
        await refused(client, "die")
        assert (await refused(client, "again")).code == -32000
        await client.request("authenticate", {"methodId": "form"})
        assert await stopped(client, client.send_prompt("and again")) == "end_turn"
