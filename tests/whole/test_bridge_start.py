"""Agents that don't start, that others would take the place of, or that name everything alike."""

import sys
from pathlib import Path

import pytest

from tests.support.client import RecordingClient
from tests.support.client_side import never_answers
from tests.support.fixture_agents import fixture_command
from tests.support.recording import RpcError
from tests.whole.bridge_support import World, kill_agent, stopped
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("whole_starts")]


@pytest.mark.hazard("C21.1")
async def test_an_agent_that_never_answers_initialize_fails_it_in_time_and_may_be_tried_again(
    world: World,
) -> None:
    async with world.inside(
        "never-starts", session=False, initialized=False, start_timeout=0.3
    ) as client:
        for _ in range(2):
            with pytest.raises(RpcError, match="did not answer initialize within"):
                await client.initialize()
        with pytest.raises(RpcError, match="not initialized"):
            await client.request("session/list", {})


async def test_an_initialize_that_never_ends_can_be_cancelled(world: World) -> None:
    async with world.bridge("never-starts", initialized=False) as client:
        params = {"protocolVersion": 1, "clientCapabilities": {}}
        request = client.send_request("initialize", params)
        client.notify("$/cancel_request", {"requestId": request})
        assert (await client.answer_to(request))["error"]["code"] == -32800


async def test_the_end_of_the_client_ends_an_agent_that_never_answers_initialize(
    world: World,
) -> None:
    async with world.bridge("never-starts", "never-ends", initialized=False) as client:
        client.send_request("initialize", {"protocolVersion": 1})
        await client.logged("agent.started")


async def test_an_agent_that_exits_at_once_fails_initialize_with_its_exit_code(
    world: World,
) -> None:
    async with world.inside("exits-at-start", initialized=False) as client:
        with pytest.raises(RpcError, match="exit code 3") as caught:
            await client.initialize()
        assert caught.value.code == -32603
        await client.logged("no configuration found")


async def test_a_command_that_does_not_exist_fails_initialize_and_is_named(world: World) -> None:
    async with world.bridge(command=["no-such-agent"], initialized=False) as client:
        with pytest.raises(RpcError, match="no-such-agent is not found in the PATH"):
            await client.initialize()


@pytest.mark.hazard("C12.2", "C21.2", "Q1")
async def test_a_restart_that_takes_too_long_answers_who_waits_and_is_tried_at_the_next_prompt(
    world: World,
) -> None:
    world.gates.open("initialize")
    async with world.inside("slow-start", restart_timeout=2.0) as client:
        await client.prompt("say one")
        await kill_agent(world, client)
        waiting = [client.send_prompt("say never"), client.send_prompt("say never either")]
        for prompt in waiting:
            answer = await client.answer_to(prompt)
            assert "could not be made ready in time" in answer["error"]["message"]
        await client.logged("agent.exited", 2)
        world.gates.open_for_good("initialize")
        assert await client.prompt("history") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "say one"]


@pytest.mark.hazard("P14.1")
async def test_nothing_of_the_users_takes_the_place_of_the_built_in_agent(
    world: World, tmp_path: Path
) -> None:
    """Neither from the folder that the bridge is started in, nor by PYTHON... variables."""
    trace, dialogue = tmp_path / "imported", tmp_path / "dialogue.txt"
    dialogue.write_text("turn\ntext: built in")
    for name in ("agent", "acp_bridge", "acp", "anyio", "sitecustomize", "usercustomize"):
        code = f"open({str(trace)!r}, 'a').write(__name__ + ' ')"
        (world.cwd / f"{name}.py").write_text(code)
    env = {"PYTHONPATH": str(world.cwd), "PYTHONUSERBASE": str(world.cwd)}
    # Isolated itself, so that whatever is imported was imported by what it starts.
    words = [sys.executable, "-I", "-m", "acp_bridge", "--model", f"scripted:{dialogue}"]
    home = {"ACP_BRIDGE_HOME": str(world.home)}
    async with RecordingClient.start(
        words, env={**world.env, **home, **env}, cwd=world.cwd
    ) as client:
        await client.initialize({})
        await client.new_session(world.cwd)
        assert await stopped(client, client.send_prompt("hello"), within=20) == "end_turn"
        assert client.text() == "built in"
    assert not trace.exists()


@pytest.mark.hazard("P13.1")
async def test_ids_that_turns_and_processes_share_are_told_apart_at_the_client(
    world: World,
) -> None:
    async with world.inside("reuses-ids", "load-only") as client:
        for _ in range(2):
            await client.prompt(f"say word {_}; tool a; permission; tool-done a")
        await kill_agent(world, client)
        await client.prompt("say word 2; tool a; permission; tool-done a")
        messages = [u["messageId"] for u in client.updates() if "messageId" in u]
        assert len(set(messages)) == 6  # of each turn its text and its report
        asked = client.recording.requests("session/request_permission")
        cards = [request["params"]["toolCall"]["toolCallId"] for request in asked]
        assert cards[2] not in cards[:2]
        opened = [u["toolCallId"] for u in client.updates() if u["sessionUpdate"] == "tool_call"]
        assert set(cards) <= set(opened)
        worked_on = [each for each in opened if each not in cards]
        ended = [u["toolCallId"] for u in client.updates() if u.get("status") == "completed"]
        assert worked_on == ended
        assert len(set(worked_on)) == 3
        assert len({request["id"] for request in asked}) == 3
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        told = [u for u in client.updates(since=seen) if "user" not in u["sessionUpdate"]]
        again = [u["messageId"] for u in told if "messageId" in u]
        assert list(dict.fromkeys(messages)) == again


@pytest.mark.hazard("P13.1")
async def test_sessions_of_agents_that_count_from_0_are_told_apart(world: World) -> None:
    async with world.inside("reuses-ids") as client:
        one = client.session_id
        (world.cwd / "other").mkdir()
        two = await client.new_session(world.cwd / "other")
        prompts = [
            client.send_prompt("say a; gate g", one),
            client.send_prompt("say b; gate g", two),
        ]
        await world.gates.reached("g", 2)
        client.cancel(two)
        assert await stopped(client, prompts[1]) == "cancelled"
        world.gates.open("g")
        assert await stopped(client, prompts[0]) == "end_turn"
        assert (client.texts(one), client.texts(two)) == (["a"], ["b"])
    assert {event["session"] for event in world.log.events("turn")} == {"0"}


@pytest.mark.hazard("P10.1", "P13.2")
@pytest.mark.parametrize("order", [1, -1])
async def test_permission_requests_at_the_same_time_are_answered_to_the_right_ones(
    world: World, order: int
) -> None:
    async with world.inside("reuses-ids") as client:
        client.side.handlers["session/request_permission"] = never_answers
        prompt = client.send_prompt("permission 3")
        asked = [await client.until_request("session/request_permission", n) for n in (1, 2, 3)]
        choices = {"permission-0": "allow", "permission-1": "reject", "permission-2": "allow"}
        by_card = sorted(asked, key=lambda m: str(m["params"]["toolCall"]["toolCallId"]))
        for request, choice in list(zip(by_card, choices.values(), strict=True))[::order]:
            chosen = {"outcome": {"outcome": "selected", "optionId": choice}}
            client.answer(request["id"], chosen)
        assert await stopped(client, prompt) == "end_turn"
        told = "[permission allow][permission reject][permission allow]"
        assert client.text() == told


@pytest.mark.hazard("P8.1", "P8.2")
async def test_nothing_of_a_session_comes_before_its_response_and_nothing_is_lost(
    world: World,
) -> None:
    async with world.inside("early-updates") as client:
        first = client.recording.incoming()[1]
        assert first["result"]["sessionId"] == client.session_id
        await client.prompt("say one")
        kinds = [update["sessionUpdate"] for update in client.updates(client.session_id)]
        assert kinds == ["available_commands_update"] * 2 + ["agent_message_chunk"]


#: fetches an agent for twice as long as a start may take, then is that agent.
_RUNNER = """#!/bin/sh
n=0
while [ $n -lt 22 ]; do head -c 200000 /dev/zero > "$1.part"; n=$((n + 1)); sleep 0.1; done
shift
exec "$@"
"""


@pytest.mark.hazard("P15")
async def test_an_agent_that_is_being_fetched_may_take_longer_than_a_start(
    world: World, tmp_path: Path
) -> None:
    runner = tmp_path / "npx"
    runner.write_text(_RUNNER)
    runner.chmod(0o755)
    agent = [str(runner), str(tmp_path / "package"), *fixture_command()]
    async with world.inside(command=agent, start_timeout=1.5) as client:
        assert (await client.prompt("say hello"))["stopReason"] == "end_turn"


async def test_an_agent_that_tells_its_version_in_a_string_is_understood(
    world: World, tmp_path: Path
) -> None:
    code = """
def initialize(id, params):
    return {"protocolVersion": "1", "agentCapabilities": {}}
"""
    async with world.bridge(command=tiny_agent(tmp_path, code), initialized=False) as client:
        assert (await client.initialize())["protocolVersion"] == 1
        await client.new_session(world.cwd)
        assert await client.prompt("x") == {"stopReason": "end_turn"}


async def test_an_agent_that_writes_the_names_of_its_own_attributes_is_understood(
    world: World, tmp_path: Path
) -> None:
    code = """
def session_new(id, params):
    return {"session_id": "s"}

def tell(**update):
    send(method="session/update", params={"session_id": "s", "update": update})

def session_prompt(id, params):
    tell(session_update="agent_message_chunk", content={"type": "text", "text": "words"})
    tell(session_update="tool_call", tool_call_id="t", title="x", raw_input={"old_text": "a"})
    call = {"tool_call_id": "t"}
    options = [{"option_id": "y", "name": "Yes", "kind": "allow_once"}]
    asked = {"session_id": "s", "tool_call": call, "options": options}
    send(id="p", method="session/request_permission", params=asked)
    return {"stop_reason": "end_turn"}
"""
    async with world.bridge(command=tiny_agent(tmp_path, code)) as client:
        client.side.permission = "never"
        assert (await client.prompt("x"))["stopReason"] == "end_turn"
        assert client.texts() == ["words"]
        (call,) = [each for each in client.updates() if each["sessionUpdate"] == "tool_call"]
        assert call["rawInput"] == {"old_text": "a"}
        (asked,) = client.recording.requests("session/request_permission")
        assert asked["params"]["options"][0]["optionId"] == "y"
