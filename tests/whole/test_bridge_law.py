"""The letter of ACP and JSON-RPC, at a whole bridge with an agent behind it."""

import os
from typing import Any

import anyio
import pytest

from tests.support.fixture_agents import replayed
from tests.support.recording import Message, RpcError
from tests.whole.bridge_support import ROOT, World, fails, stopped

pytestmark = pytest.mark.process


async def test_a_version_from_the_future_with_unknown_fields_is_answered_with_version_1(
    world: World,
) -> None:
    async with world.inside(initialized=False) as client:
        params = {
            "protocolVersion": 65535,
            "clientCapabilities": {"fs": {"readTextFile": True}, "unknown": [1]},
            "info": {"name": "from the future", "more": {"deep": None}},
        }
        answer = await client.request("initialize", params)
        assert answer["protocolVersion"] == 1
        assert answer["agentInfo"]["name"] == "fixture-agent"
        capabilities = answer["agentCapabilities"]
        assert capabilities["loadSession"] is True
        own = {"list", "resume", "close", "delete", "title"}
        assert set(capabilities["sessionCapabilities"]) == own
        assert capabilities["_meta"]["acp_bridge"]["queue"] is True
        # The agent gets what the client said, in our version, and that subagents and limits can be
        # shown.
        (told,) = world.log.received("initialize")
        always: Message = {"session": {"quota": {}}, "subagents": {}}
        can = {"fs": {"readTextFile": True}, "unknown": [1], **always}
        assert told["params"] == {**params, "protocolVersion": 1, "clientCapabilities": can}
        await fails(client, "initialize", -32600, **params)


@pytest.mark.parametrize("version", [None, "1", 1.5, -1, 65536, True])
async def test_a_version_that_is_none_is_refused_and_the_next_one_taken(
    world: World, version: Any
) -> None:
    async with world.inside(initialized=False) as client:
        await fails(client, "initialize", -32602, protocolVersion=version)
        await client.initialize()


@pytest.mark.hazard("Q9.1")
async def test_ids_are_echoed_as_they_came_and_requests_before_initialize_are_refused(
    world: World,
) -> None:
    async with world.inside(initialized=False) as client:
        setup = {"cwd": str(world.cwd), "mcpServers": []}
        for request_id in (100, -1, 2**53 + 1, "0", "", "é\ud800", "x" * 1000):
            client.send_request("session/new", setup, request_id)
            answer = await client.answer_to(request_id)
            assert answer["error"]["code"] == -32600
        client.notify("session/cancel", {"sessionId": "none"})
        await client.initialize()
        for request_id in (7, "7"):
            client.send_request("session/list", {}, request_id)
            assert (await client.answer_to(request_id))["result"]["sessions"] == []
    assert world.log.received("session/new") == []


@pytest.mark.hazard("P4", "Q9.2")
async def test_what_is_no_message_is_answered_by_its_code_and_the_rest_goes_on(
    world: World,
) -> None:
    lines = {
        b"{not json}\n": (None, -32700),
        b'{"jsonrpc":"2.0","id":1,"method":"session/list"\n': (None, -32700),
        b"\xff\xfe\n": (None, -32700),
        b"[]\n": (None, -32600),
        b'[{"jsonrpc":"2.0","id":50,"method":"session/list"}]\n': (50, -32600),
        b"42\n": (None, -32600),
        b"null\n": (None, -32600),
        b'{"jsonrpc":"2.0","id":51}\n': (51, -32600),
        b'{"jsonrpc":"2.0","id":52,"method":7}\n': (52, -32600),
        b'{"jsonrpc":"2.0","id":53,"method":"no/such"}\n': (53, -32601),
        b'{"jsonrpc":"2.0","id":54,"method":"session/set_mode","params":{}}\n': (54, -32602),
        b'{"jsonrpc":"2.0","id":55,"method":"session/prompt","params":[1]}\n': (55, -32602),
        b'{"jsonrpc":"2.0","id":56,"method":"session/prompt"}\n': (56, -32602),
    }
    async with world.inside() as client:
        for line, (request_id, code) in lines.items():
            seen = client.mark()
            client.send_raw(line)
            answer = await client.until(lambda m: "error" in m, since=seen)
            assert (answer["id"], answer["error"]["code"]) == (request_id, code), line
        seen = client.mark()
        for line in (b"\n", b"  \r\n", b'{"jsonrpc":"2.0","method":"no/such"}\n'):
            client.send_raw(line)
        client.answer(99, {"to": "nothing"})
        about: Message = {"sessionId": client.session_id}
        await fails(client, "session/no_such", -32601, **about)
        await fails(client, "session/fork", -32601, **about)
        assert await client.prompt("say alive") == {"stopReason": "end_turn"}
        assert len([m for m in client.recording.incoming(seen) if "error" in m]) == 2


@pytest.mark.hazard("P4.1")
async def test_what_anything_in_the_bridge_prints_lands_on_stderr(world: World) -> None:
    """Here at the end of the process, when nothing of the bridge itself writes any more."""
    library = world.cwd / "sitecustomize.py"
    library.write_text("import atexit, os\natexit.register(os.write, 1, b'stray print\\n')\n")
    path = os.pathsep.join([str(world.cwd), str(ROOT)])
    async with world.bridge(env={"PYTHONPATH": path}) as client:
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
        client.close_stdin()
        await client.stderr_ended()
        with anyio.fail_after(5):
            await client.closed.wait()
        assert b"stray print" in client.stderr
        assert all(record.message is not None for record in client.recording)


async def test_a_client_that_can_nothing_is_asked_nothing_but_permissions(world: World) -> None:
    async with world.inside(capabilities={}) as client:
        client.side.permission = "allow"
        text = "read /f; write /f; terminal; elicit; permission"
        assert await client.prompt(text) == {"stopReason": "end_turn"}
        assert client.text() == (
            "[read error -32601][write error -32601][terminal error -32601]"
            "[elicit error -32601][permission allow]"
        )
        asked = {m["method"] for m in client.recording.incoming() if "method" in m and "id" in m}
        assert asked == {"session/request_permission"}


async def test_a_client_is_asked_only_for_the_half_that_it_can(world: World) -> None:
    half: Message = {"fs": {"readTextFile": True}, "terminal": False, "elicitation": {"url": {}}}
    async with world.inside(capabilities=half) as client:
        client.side.files["/f"] = "content"
        text = "read /f; write /f; terminal; elicit"
        assert await client.prompt(text) == {"stopReason": "end_turn"}
        assert client.text() == (
            "[read content][write error -32601][terminal error -32601][elicit error -32601]"
        )


@pytest.mark.hazard("R5")
async def test_places_that_are_not_absolute_are_invalid(world: World) -> None:
    async with world.inside() as client:
        about: Message = {"sessionId": client.session_id}
        for method in ("session/new", "session/load", "session/resume"):
            given = {} if method == "session/new" else about
            for bad in ("relative", "", 1, None):
                error = await fails(client, method, -32602, **given, cwd=bad, mcpServers=[])
                assert error.args[0].startswith("-32602 cwd: ")
                assert error.data == {"details": error.args[0].removeprefix("-32602 ")}
            place = {**given, "cwd": str(world.cwd)}
            await fails(client, method, -32602, **place, mcpServers="none")
            roots = {"additionalDirectories": ["/ok", "relative"]}
            error = await fails(client, method, -32602, **place, mcpServers=[], **roots)
            assert "additionalDirectories.1" in error.args[0]
        await fails(client, "session/load", -32602, sessionId=7, cwd="/", mcpServers=[])
        assert await client.prompt("say one") == {"stopReason": "end_turn"}


async def test_a_request_may_be_cancelled_while_it_is_answered_by_the_agent(world: World) -> None:
    world.gates.open("initialize")
    async with world.inside("slow-start") as client:
        new = client.send_request("session/new", {"cwd": str(world.cwd), "mcpServers": []})
        await world.gates.reached("initialize", 2)
        client.notify("$/cancel_request", {"requestId": new})
        assert (await client.answer_to(new))["error"]["code"] == -32800
        for odd in (None, [1], {"a": 1}, True, "unknown", 1e300):
            client.notify("$/cancel_request", {"requestId": odd})
        world.gates.open_for_good("initialize")
        assert await client.new_session(world.cwd)
        assert await client.prompt("say one") == {"stopReason": "end_turn"}


async def test_the_error_of_the_agent_comes_out_as_it_is(world: World) -> None:
    async with world.inside(command=replayed("errors")) as client:
        with pytest.raises(RpcError) as caught:
            await client.prompt("fail")
        assert (caught.value.code, caught.value.args[0]) == (-32603, "-32603 the model failed")
        prompt = client.send_prompt("stop refusal")
        assert await stopped(client, prompt) == "refusal"
