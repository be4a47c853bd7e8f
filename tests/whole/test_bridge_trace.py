"""`--trace`: both sides of the wire in one file, read by a reader that is not the writer's."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recording import Message
from tests.support.trace_reader import Event, read_trace
from tests.whole.bridge_support import World

pytestmark = pytest.mark.process

SECRET = "a-planted-secret-"
SERVERS: list[Message] = [
    {
        "name": "files",
        "command": "/bin/true",
        "args": ["--root"],
        "env": [{"name": "TOKEN", "value": SECRET + "env"}],
    },
    {
        "type": "http",
        "name": "web",
        "url": "http://127.0.0.1:9/mcp",
        "headers": [{"name": "Authorization", "value": SECRET + "header"}],
    },
]
TOKEN: Message = {"methodId": "token", "_meta": {"token": "secret-token"}}


def as_told(event: Event) -> Any:
    """What an event says of a message but for its id."""
    if event["type"] == "response":
        return event["is_error"], event["payload"]
    return event["type"] == "request", event["method"], event["params"]


def as_sent(message: Message) -> Any:
    """The same of the message."""
    if "method" in message:
        return "id" in message, message["method"], message.get("params")
    return ("error" in message), message["error"] if "error" in message else message.get("result")


def told(values: Iterable[Any]) -> list[str]:
    return [json.dumps(value, sort_keys=True) for value in values]


async def test_everything_that_a_client_and_an_agent_get_and_say_is_in_the_trace(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace.jsons"
    async with world.inside(trace=file) as client:
        client.side.permission = "allow"
        await client.prompt("say hello there; tool t1; permission; tool-done t1")
        await client.prompt("stream 50")
    trace = read_trace(file)
    for direction, way in {"out": ("Client", "Proxy(0)"), "in": ("Proxy(0)", "Client")}.items():
        seen = [each.message for each in client.recording if each.direction == direction]
        assert told(map(as_sent, filter(None, seen))) == told(map(as_told, trace.between(*way)))
    got = [event["message"] for event in world.log.events("received")]
    assert told(map(as_sent, got)) == told(map(as_told, trace.between("Proxy(0)", "Agent")))
    asked = Counter(trace.methods("Agent", "Proxy(0)"))
    assert asked["session/request_permission"] == 1
    assert asked["session/update"] >= 50
    assert trace.answers("session/prompt", "Agent") == [{"stopReason": "end_turn"}] * 2
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.hazard("K5.3")
async def test_logins_and_what_mcp_servers_are_given_are_left_out(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace.jsons"
    async with world.inside("needs-auth", session=False, trace=file) as client:
        assert await client.request("authenticate", TOKEN) == {}
        client.send_request("providers/set", {"id": "x", "headers": {"k": SECRET + "provider"}})
        new = {"cwd": str(world.cwd), "mcpServers": SERVERS}
        await client.request("session/new", new)
    text = file.read_bytes()
    assert b"secret-token" not in text
    assert SECRET.encode() not in text
    trace = read_trace(file)
    for way in (("Client", "Proxy(0)"), ("Proxy(0)", "Agent")):
        methods = trace.methods(*way)
        assert "session/new" in methods
        assert not {"authenticate", "providers/set"} & {*methods}
        (opened,) = [each for each in trace.between(*way) if each.get("method") == "session/new"]
        servers = opened["params"]["mcpServers"]
        assert [each["name"] for each in servers] == ["files", "web"]
        assert servers[0]["args"] == ["--root"]
        assert not {"env", "headers"} & {*servers[0], *servers[1]}
    assert "secret-token" in json.dumps(world.log.received("authenticate"))


async def test_a_kill_leaves_all_that_the_client_got_and_cuts_the_last_line_at_most(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace.jsons"
    async with world.bridge(options=("--trace", str(file)), exits=-9) as client:
        client.send_prompt("stream 100000 0")
        await client.until_text("100 ")
        client.kill()
        await client.closed.wait()
        if client.recording[-1].message is None:  # the kill has cut it
            client.recording.pop()
    whole, newline, _ = file.read_bytes().rpartition(b"\n")
    file.write_bytes(whole + newline)
    trace = read_trace(file)
    got = [each.message for each in client.recording if each.direction == "in" and each.message]
    assert len(got) > 100
    assert (
        told(map(as_sent, got))
        == told(map(as_told, trace.between("Proxy(0)", "Client")))[: len(got)]
    )


async def test_a_bridge_whose_trace_is_in_use_works_without_one_and_says_so(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace.jsons"
    async with world.inside(trace=file) as first:
        async with world.bridge(options=("--trace", str(file))) as second:
            await second.logged("another bridge writes its trace there")
            assert await second.prompt("say two") == {"stopReason": "end_turn"}
        assert await first.prompt("say one") == {"stopReason": "end_turn"}
    assert read_trace(file).methods("Client", "Proxy(0)").count("session/prompt") == 1
