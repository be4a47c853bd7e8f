"""Subagents of an agent process that speaks version 2, shown to clients of both versions."""

import pytest

from acp_bridge.core.protocol import Json
from tests.support.client import RecordingClient
from tests.support.waiting import until
from tests.whole.bridge_support import World, kill_agent, stopped
from tests.whole.test_bridge_v2_agent import cards, v2_agent
from tests.whole.v2_client import v2_client

pytestmark = pytest.mark.process

SHOWS: Json = {"subagents": {}}
ABOUT = {"title": "Look at kid", "capabilities": {"cancel": {}}}
START: Json = {"replayFrom": {"type": "start"}}


def told(client: RecordingClient, since: int = 0) -> list[Json]:
    """Return the states and announcements of subagents, as version 1 has them."""
    return [u for u in client.updates(since=since) if u["sessionUpdate"] == "subagent_update"]


def states(client: RecordingClient, session_id: str, since: int = 0) -> list[str]:
    """Return the states of a session, as version 2 has them."""
    found = client.recording.updates(session_id, since)
    said = [each for each in found if each["sessionUpdate"] == "state_update"]
    return ["/".join(filter(None, (each["state"], each.get("stopReason")))) for each in said]


# --- a client of version 1 ----------------------------------------------------------------------


@pytest.mark.hazard("X1.11")
async def test_a_client_of_version_1_that_shows_subagents_gets_them_in_its_form(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), capabilities=SHOWS) as client:
        await client.prompt("child kid; ends kid; say done")
        kid = f"{client.session_id}:1"
        assert [
            {k: v for k, v in each.items() if k != "sessionUpdate"} for each in told(client)
        ] == [
            {"sessionId": kid, **ABOUT},
            {"sessionId": kid, "state": {"state": "running"}},
            {"sessionId": kid, "state": {"state": "idle", "stopReason": "end_turn"}},
        ]
        said, call = client.recording.updates(kid)
        assert said["content"]["text"] == "words of kid\n"
        assert (call["sessionUpdate"], call["title"]) == ("tool_call", "read")
        assert client.text(client.session_id) == "done"


@pytest.mark.hazard("X1.12")
async def test_a_client_of_version_1_that_shows_none_gets_a_card_for_each(world: World) -> None:
    async with world.inside(command=v2_agent()) as client:
        await client.prompt("child kid; ends kid; say done")
        last = {each["toolCallId"]: each for each in cards(client)}
        assert [(each["toolCallId"], each["status"]) for each in last.values()] == [
            ("subagent-1", "completed")
        ]
        assert "words of kid" in str(cards(client))
        assert told(client) == []
        assert {
            each["params"]["sessionId"] for each in client.recording.requests("session/update")
        } == {client.session_id}
        asked = client.send_prompt("child kid; asks kid")
        question = await client.until_request("session/request_permission")
        assert question["params"]["sessionId"] == client.session_id
        assert question["params"]["toolCall"]["title"] == "[Look at kid] Edit"
        assert await stopped(client, asked) == "end_turn"


async def test_a_stop_of_a_subagent_reaches_an_agent_of_version_2(world: World) -> None:
    async with world.inside(command=v2_agent(), capabilities=SHOWS) as client:
        prompt = client.send_prompt("child kid; gate g; say done")
        await world.gates.reached("g")
        client.notify("session/cancel", {"sessionId": f"{client.session_id}:1"})
        await client.until(lambda m: "cancelled" in str(m))
        assert world.log.received("session/cancel")[-1]["params"] == {"sessionId": "kid"}
        world.gates.open("g")
        assert await stopped(client, prompt) == "end_turn"
        assert told(client)[-1]["state"] == {"state": "idle", "stopReason": "cancelled"}


@pytest.mark.hazard("X1", "C16")
async def test_the_subagents_of_an_agent_of_version_2_that_has_died_have_ended(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), capabilities=SHOWS) as client:
        await client.prompt("child kid; say done")
        await kill_agent(world, client)
        await client.prompt("child kid; ends kid; say again")
        ends = [each["state"] for each in told(client) if "state" in each]
        idle = {"state": "idle", "stopReason": "end_turn"}
        cancelled = {**idle, "stopReason": "cancelled"}
        assert ends == [{"state": "running"}, cancelled, {"state": "running"}, idle]
        assert {each["sessionId"] for each in told(client)} == {f"{client.session_id}:1"}


# --- a client of version 2 ----------------------------------------------------------------------


async def ran(client: RecordingClient, session_id: str, text: str) -> None:
    """Let a prompt of version 2 run to its end."""
    since = len(client.recording)
    words = [{"type": "text", "text": text}]
    await client.request("session/prompt", {"sessionId": session_id, "prompt": words})
    await until(lambda: states(client, session_id, since)[-1:] == ["idle/end_turn"])


@pytest.mark.hazard("X1", "X3")
async def test_where_both_speak_version_2_a_subagent_is_as_its_agent_tells_it(
    world: World,
) -> None:
    async with v2_client(world) as client:
        session_id = client.session_id
        await ran(client, session_id, "child kid; ends kid; child other; say done")
        kid, other = f"{session_id}:1", f"{session_id}:2"
        assert told(client)[0] == {"sessionUpdate": "subagent_update", "sessionId": kid, **ABOUT}
        assert len(told(client)) == 2
        assert states(client, kid) == ["running", "idle/end_turn"]
        assert states(client, other) == ["running"]
        since = len(client.recording)
        params = {"sessionId": session_id, "cwd": str(world.cwd), **START}
        await client.request("session/resume", params)
        again = client.recording.updates(kid, since)
        assert [each["sessionUpdate"] for each in again] == [
            "agent_message_chunk",
            "tool_call_update",
            "replay_complete",
            "state_update",
        ]
        assert (states(client, kid, since), states(client, other, since)) == (["idle"], ["running"])
        assert states(client, session_id)[-2:] == ["idle/end_turn", "idle"]  # the child alone works
        client.notify("session/cancel", {"sessionId": other})
        await until(lambda: states(client, other, since) == ["running", "idle/cancelled"])


async def test_a_subagent_of_an_agent_of_version_2_asks_a_client_of_version_2_under_its_id(
    world: World,
) -> None:
    async with v2_client(world) as client:
        session_id = client.session_id
        chosen = {"outcome": {"outcome": "selected", "optionId": "allow"}}
        client.side.handlers["session/request_permission"] = lambda params: chosen
        words = [{"type": "text", "text": "child kid; asks kid"}]
        await client.request("session/prompt", {"sessionId": session_id, "prompt": words})
        question = await client.until_request("session/request_permission")
        assert question["params"]["sessionId"] == f"{session_id}:1"
        await until(lambda: "idle/end_turn" in states(client, session_id))
        assert "[allow]" in client.text(session_id)
