"""A login, providers and other settings of the agent as a whole reach all of its processes."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.client import RecordingClient
from tests.support.recording import RpcError
from tests.whole.bridge_support import World, refused
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("R14")]

GATEWAY: dict[str, Any] = {"methodId": "gateway", "_meta": {"gateway": {"baseUrl": "https://x"}}}
BROWSER = {"methodId": "browser"}
PROVIDER = {"providerId": "main", "apiType": "openai", "baseUrl": "https://x"}

#: logs what it is asked; after `expire` it wants a login before it takes a prompt.
AGENT = """
CAN = {"loadSession": True}
heard = open(os.path.join(os.path.dirname(__file__), f"heard-{time.monotonic_ns()}"), "w")
wants = deaf = False
def hear(method):
    print(method, file=heard, flush=True)
def initialize(id, params):
    hear("initialize")
    return {"protocolVersion": 1, "agentCapabilities": CAN}
def authenticate(id, params):
    global wants
    hear("authenticate " + params["methodId"])
    wants = False
    return {}
def logout(id, params):
    hear("logout")
    return {}
def providers_set(id, params):
    hear("providers/set " + params["providerId"])
    return None if deaf else {}
def providers_list(id, params):
    hear("providers/list")
    return {"providers": []}
def _x_note(id, params):
    hear("_x/note")
def session_new(id, params):
    hear("session/new")
    return {"sessionId": f"s{time.monotonic_ns()}"}
def session_load(id, params):
    hear("session/load")
    return {}
def session_prompt(id, params):
    global wants, deaf
    words = params["prompt"][0]["text"]
    hear(words)
    deaf = words == "deaf"
    if words.startswith("die"):
        os._exit(1)
    if words == "expire":
        wants = True
    if wants:
        return {"error": {"code": -32000, "message": "your login has expired"}}
    return {"stopReason": "end_turn"}
"""


def heard(folder: Path) -> list[list[str]]:
    """What each process was asked, the oldest process first."""
    return [path.read_text().splitlines() for path in sorted(folder.glob("heard-*"))]


async def second_session(client: RecordingClient, world: World) -> tuple[str, str]:
    first = client.session_id
    return first, await client.new_session(world.cwd)


@pytest.mark.hazard("R14.3")
@pytest.mark.parametrize("login", [BROWSER, GATEWAY])
async def test_a_login_that_expired_is_renewed_in_the_process_of_the_session_that_asked(
    world: World, login: dict[str, Any]
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, AGENT)) as client:
        assert await client.prompt("hello") == {"stopReason": "end_turn"}
        error = await refused(client, "expire")
        assert (error.code, error.message) == (-32000, "your login has expired")
        assert await client.request("authenticate", login) == {}
        assert await client.prompt("again") == {"stopReason": "end_turn"}
    method = "authenticate " + login["methodId"]
    (only,) = heard(world.cwd)
    assert only == ["initialize", "session/new", "hello", "expire", method, "again"]


@pytest.mark.hazard("R14.3")
async def test_every_session_whose_login_expired_gets_the_new_one_and_no_other_is_asked(
    world: World,
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, AGENT)) as client:
        first, second = await second_session(client, world)
        third = await client.new_session(world.cwd)
        world.repeats = True
        for session_id in (first, second):
            await client.answer_to(client.send_prompt("expire", session_id))
        await client.request("authenticate", BROWSER)
        for session_id in (first, second, third):
            assert await client.prompt("again", session_id) == {"stopReason": "end_turn"}
    logins = [process.count("authenticate browser") for process in heard(world.cwd)]
    assert logins == [1, 1, 0]


@pytest.mark.hazard("R14.1", "R14.2")
async def test_credentials_and_providers_reach_every_process_that_lives_and_each_later_one_first(
    world: World,
) -> None:
    async with world.inside(command=tiny_agent(world.cwd, AGENT)) as client:
        first, second = await second_session(client, world)
        await client.request("authenticate", GATEWAY)
        await client.request("providers/set", PROVIDER)
        await client.request("providers/list", {})
        client.notify("_x/note", {})
        for session_id in (first, second):
            await client.prompt("hello " + session_id, session_id)
        await client.answer_to(client.send_prompt("die", first))
        await client.prompt("after", first)
        await client.new_session(world.cwd)
        await client.request("logout", {})
        await client.prompt("last", first)
        await client.answer_to(client.send_prompt("die again", first))
        await client.prompt("at last", first)
    told = ["authenticate gateway", "providers/set main"]
    one, two, reloaded, third, last = heard(world.cwd)
    for process in (one, two):
        assert [line for line in process if line in (*told, "_x/note")] == [*told, "_x/note"]
    assert sum("providers/list" in process for process in heard(world.cwd)) == 1
    assert reloaded == ["initialize", *told, "session/load", "after", "logout", "last", "die again"]
    assert third == ["initialize", *told, "session/new", "logout"]
    assert last == ["initialize", "providers/set main", "session/load", "at last"]


@pytest.mark.hazard("P6")
async def test_a_process_that_does_not_answer_holds_up_neither_the_others_nor_the_client(
    world: World,
) -> None:
    agent = tiny_agent(world.cwd, AGENT)
    async with world.inside(command=agent, request_timeout=1) as client:
        first, second = await second_session(client, world)
        await client.prompt("deaf", first)
        assert await client.request("providers/set", PROVIDER, within=0.9) == {}
        await client.prompt("deaf", second)  # the newest one is asked
        with pytest.raises(RpcError, match="did not answer providers/set within 1 s"):
            await client.request("providers/set", {**PROVIDER, "providerId": "other"})
        await client.new_session(world.cwd)
    assert heard(world.cwd)[2] == ["initialize", "providers/set main", "session/new"]
