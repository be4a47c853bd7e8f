"""A client of version 1 and a bridge in front of an agent that speaks version 2."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.settings import AgentProtocol
from tests.support.client import RecordingClient
from tests.support.fixture_agents import V2_AGENT
from tests.support.v2_schema import HELLO
from tests.support.waiting import until
from tests.whole.bridge_support import World, kill_agent, refused, shown, stopped

pytestmark = pytest.mark.process


def v2_agent(*options: str) -> list[str]:
    return [*V2_AGENT, *options]


def cards(client: RecordingClient, since: int = 0) -> list[dict[str, Any]]:
    kinds = ("tool_call", "tool_call_update")
    return [each for each in client.updates(since=since) if each["sessionUpdate"] in kinds]


def asked_versions(world: World) -> list[int]:
    return [each["params"]["protocolVersion"] for each in world.log.received("initialize")]


def keep(world: World, session_id: str, told: list[dict[str, Any]]) -> None:
    """Let the agent have a session of which no bridge knows."""
    folder = Path(world.env["FIXTURE_HOME"])
    folder.mkdir(exist_ok=True)
    kept = {"cwd": str(world.cwd), "told": told}
    (folder / f"v2-{session_id}.json").write_text(json.dumps(kept))


# --- which version is spoken --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["", "--strict", "--answers-2"])
async def test_an_agent_that_has_version_2_alone_gets_a_second_process_that_is_asked_for_it(
    world: World, way: str
) -> None:
    async with world.inside(command=v2_agent(*filter(None, [way]))) as client:
        assert await client.prompt("say hello there") == {"stopReason": "end_turn"}
        assert client.text() == "hello there"
        assert asked_versions(world) == [1, 2]
        await kill_agent(world, client)
        assert await client.prompt("say again") == {"stopReason": "end_turn"}
        assert asked_versions(world) == [1, 2, 2]


async def test_version_2_is_asked_for_first_where_the_user_wants_it(world: World) -> None:
    options = ("--agent-protocol", "2")
    async with world.bridge(command=v2_agent(), options=options) as client:
        assert await client.prompt("say hello") == {"stopReason": "end_turn"}
    assert asked_versions(world) == [2]


@pytest.mark.parametrize(("chosen", "asked"), [("auto", [1]), ("1", [1]), ("2", [2])])
async def test_an_agent_that_repeats_any_version_is_spoken_to_in_version_1(
    world: World, chosen: str, asked: list[int]
) -> None:
    protocol = AgentProtocol(chosen)
    async with world.inside(command=v2_agent("--echo"), agent_protocol=protocol) as client:
        assert await client.prompt("x") == {"stopReason": "end_turn"}
    assert asked_versions(world) == asked


async def test_an_agent_of_version_1_is_spoken_to_in_it_though_the_user_wants_version_2(
    world: World,
) -> None:
    async with world.inside(agent_protocol=AgentProtocol.V2) as client:
        assert await client.prompt("say hello") == {"stopReason": "end_turn"}
    assert asked_versions(world) == [2]


async def test_a_client_of_version_2_has_the_agent_spoken_to_in_its_version_if_it_has_it(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), initialized=False) as client:
        assert (await client.request("initialize", HELLO))["protocolVersion"] == 2
    assert asked_versions(world) == [2]


async def test_of_an_agent_of_version_1_no_other_process_is_started_for_a_client_of_version_2(
    world: World,
) -> None:
    async with world.inside(initialized=False) as client:
        assert (await client.request("initialize", HELLO))["protocolVersion"] == 2
        answer = await client.request("session/new", {"cwd": str(world.cwd)})
        since = len(client.recording)
        said = [{"type": "text", "text": "say hello"}]
        await client.request("session/prompt", {"sessionId": answer["sessionId"], "prompt": said})
        await client.until_text("hello", since=since)
        (first, *later) = world.log.received("initialize")
        assert first["params"]["clientCapabilities"]["session"]
        assert [each["params"]["protocolVersion"] for each in later] == [1] * len(later)


async def test_version_2_is_not_tried_where_the_user_wants_version_1(world: World) -> None:
    async with world.inside(
        command=v2_agent(), agent_protocol=AgentProtocol.V1, initialized=False
    ) as client:
        params = {"protocolVersion": 1, "clientCapabilities": {}}
        answer = await client.answer_to(client.send_request("initialize", params), 20)
        assert answer["error"]["code"] == -32022
    assert asked_versions(world) == [1]


# --- sessions and turns -------------------------------------------------------------------------


async def test_three_prompts_run_in_their_order_and_never_side_by_side(world: World) -> None:
    async with world.inside(command=v2_agent()) as client:
        sent = [client.send_prompt(f"gate g{n}; say {n}") for n in range(3)]
        for number, prompt in enumerate(sent):
            await world.gates.reached(f"g{number}")
            world.gates.open(f"g{number}")
            assert await stopped(client, prompt) == "end_turn"
        assert client.text() == "012"
    assert world.log.events("overlap") == []


async def test_what_version_1_has_no_word_for_never_reaches_the_client(world: World) -> None:
    async with world.inside(command=v2_agent()) as client:
        await client.prompt("unknown; whole one two three; tool t; terminal make")
        assert client.text() == "one two three"
        kinds = {each["sessionUpdate"] for each in client.updates()}
        known = {"agent_message_chunk", "tool_call", "tool_call_update"}
        assert kinds <= known | {"available_commands_update", "session_info_update"}
        told = [
            each["content"][0]["content"]["text"] for each in cards(client) if each.get("content")
        ]
        assert told[-1] == "```console\n$ make\noutput\n[exit code 0]\n```"


async def test_a_turn_that_ends_with_an_error_is_answered_with_it(world: World) -> None:
    async with world.inside(command=v2_agent()) as client:
        error = await refused(client, "say before; fail")
        assert (error.code, error.message) == (-32042, "out of luck")
        assert await client.prompt("stop _odd") == {"stopReason": "end_turn"}


async def test_a_cancelled_turn_is_answered_and_the_next_prompt_has_the_same_process(
    world: World,
) -> None:
    async with world.inside(command=v2_agent()) as client:
        prompt = client.send_prompt("say before; gate g; say after")
        await world.gates.reached("g")
        client.cancel()
        await until(lambda: world.log.received("session/cancel"))
        world.gates.open("g")
        assert await stopped(client, prompt) == "cancelled"
        assert await client.prompt("say next") == {"stopReason": "end_turn"}
        assert len(world.log.pids()) == 2


async def test_a_stop_ends_what_the_agent_does_in_the_background(world: World) -> None:
    async with world.inside(command=v2_agent(), drain_timeout=10) as client:
        prompt = client.send_prompt("background b; gate g")
        await world.gates.reached("g")
        client.cancel()
        await until(lambda: world.log.received("tool_call/cancel"))
        world.gates.open("g")
        assert await stopped(client, prompt) == "cancelled"
        assert cards(client)[-1]["status"] == "failed"
        assert await client.prompt("say next") == {"stopReason": "end_turn"}
        assert len(world.log.pids()) == 2


async def test_an_agent_with_work_in_the_background_does_not_sleep_until_that_ends(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), sleep_after=0.05) as client:
        await client.prompt("say one")
        await kill_agent(world, client)
        await client.prompt("linger g", within=20)
        await world.gates.reached("g")
        await client.logged("what='work in the background'", 2)
        assert b"session.asleep" not in client.stderr
        world.gates.open("g")
        await client.logged("session.asleep")


async def test_a_deaf_agent_is_killed_and_its_session_goes_on_in_another_process(
    world: World,
) -> None:
    async with world.inside(command=v2_agent("--deaf"), drain_timeout=0.5) as client:
        await client.prompt("say first")
        prompt = client.send_prompt("gate g")
        await world.gates.reached("g")
        client.cancel()
        assert await stopped(client, prompt, 10) == "cancelled"
        assert await client.prompt("say third", within=20) == {"stopReason": "end_turn"}
        assert world.log.turns()[-1]["history"] == ["say first", "gate g"]
        assert "replayFrom" not in world.log.received("session/resume")[-1]["params"]
        assert client.text() == "firstthird"


async def test_an_agent_that_is_killed_in_a_turn_ends_the_turn_and_is_replaced(
    world: World,
) -> None:
    async with world.inside(command=v2_agent()) as client:
        prompt = client.send_prompt("say before; gate g")
        await world.gates.reached("g")
        os.kill(world.log.pids()[-1], signal.SIGKILL)
        assert await stopped(client, prompt, 10) == -32603
        assert await client.prompt("say after", within=20) == {"stopReason": "end_turn"}
        assert world.log.turns()[-1]["history"] == ["say before; gate g"]


@pytest.mark.parametrize("way", ["permission", "command rm x"])
async def test_a_permission_is_asked_and_its_answer_reaches_the_agent(
    world: World, way: str
) -> None:
    async with world.inside(command=v2_agent()) as client:
        client.side.permission = "allow"
        await client.prompt(way)
        assert client.text() == "[allow]"
        (asked,) = client.recording.requests("session/request_permission")
        call = asked["params"]["toolCall"]
        if way == "permission":
            assert (call["title"], call["kind"]) == ("Edit", "edit")
        else:
            assert (call["title"], call["rawInput"]["command"]) == ("May I?", "rm x")


async def test_a_rule_decides_about_a_command_and_none_allows_what_is_not_known(
    world: World, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('allow = ["Bash", "Read", "Edit", "mcp__*"]\ndeny = ["Bash(rm *)"]\n')
    async with world.inside(command=v2_agent(), rules=rules) as client:
        client.side.permission = "allow"
        await client.prompt("command rm x; command ls; odd")
        assert client.text().endswith("[reject][allow][allow]")
        (asked,) = client.recording.requests("session/request_permission")
        call = asked["params"]["toolCall"]
        assert (call["kind"], call["title"]) == ("other", "May I?")


async def test_a_mode_is_set_and_set_again_in_the_next_process(world: World) -> None:
    async with world.inside(command=v2_agent()) as client:
        session = {"sessionId": client.session_id}
        await client.request("session/set_mode", {**session, "modeId": "plan"})
        await client.prompt("say one")
        await kill_agent(world, client)
        await client.prompt("say two", within=20)
        assert [turn["mode"] for turn in world.log.turns()] == ["plan", "plan"]


async def test_a_session_is_loaded_by_the_next_bridge_and_by_the_agent(world: World) -> None:
    async with world.inside(command=v2_agent()) as client:
        await client.prompt("say one; tool t")
        session, before = client.session_id, shown(client)
    async with world.inside(command=v2_agent(), session=False) as client:
        await client.load_session(session, world.cwd)
        assert shown(client)[-len(before) :] == before
        await client.prompt("say two", within=20)
        assert world.log.turns()[-1]["history"] == ["say one; tool t"]


async def test_a_bridge_that_is_killed_in_a_turn_leaves_a_session_that_the_next_loads(
    world: World,
) -> None:
    async with world.bridge(command=v2_agent(), exits=-signal.SIGKILL) as client:
        client.send_prompt("say one; gate g")
        await world.gates.reached("g")
        await client.until_text("one")
        waits = client.send_prompt("say two")
        client.kill()
        assert not client.recording.answers(waits)
        session = client.session_id
    async with world.inside(command=v2_agent(), session=False) as client:
        await client.load_session(session, world.cwd)
        assert client.texts()[0] == "one"
        await client.prompt("say three", within=20)
        assert world.log.turns()[-1]["history"] == ["say one; gate g"]


async def test_a_session_that_only_the_agent_has_is_loaded_with_its_replay(world: World) -> None:
    text = {"type": "text", "text": "hello"}
    told: list[Any] = [
        {"sessionUpdate": "user_message", "messageId": "u", "content": [text]},
        {"sessionUpdate": "agent_message", "messageId": "a", "content": [text]},
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "name": "look"},
    ]
    keep(world, "known", told)
    async with world.inside(command=v2_agent(), session=False) as client:
        await client.load_session("known", world.cwd)
        shown = [each["sessionUpdate"] for each in client.updates("known")]
        assert shown[:3] == ["user_message_chunk", "agent_message_chunk", "tool_call"]
        (asked,) = world.log.received("session/resume")
        assert asked["params"]["replayFrom"] == {"type": "start"}
