"""What the bridge doesn't know goes through it, both ways, equal as JSON values."""

import json
from typing import Any

import pytest

from acp_bridge.core.updates import agent_trouble
from tests.support.client import RecordingClient
from tests.support.client_side import never_answers
from tests.support.recording import Message, RpcError
from tests.whole.bridge_support import World, kill_agent, stopped

pytestmark = pytest.mark.process

#: what a careless copy would change.
ODD: Message = {
    "null": None,
    "big": 2**70,
    "float": 1.5e300,
    "small": -0.0,
    "empty": [{}, [], ""],
    "text": 'é\u2028\U0001f600\ud800 \\ " \u0000',
    "sessionId": {"sessionId": "not a session"},
    "_meta": {"acp_bridge": "not ours", "x": [1, 1.0, True]},
}
UNKNOWN: Message = {"sessionUpdate": "unknown_kind", "toolCallId": "t", "messageId": "m", **ODD}


#: the same without a mark that only the bridge makes (invariant V6).
UNMARKED: Message = {**ODD, "_meta": {"x": [1, 1.0, True]}}


def same(one: Any, other: Any) -> bool:
    """As JSON values: 1, 1.0 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.hazard("T3.1", "T2.3")
async def test_unknown_updates_fields_and_meta_come_out_as_they_went_in(
    world: World,
) -> None:
    known: Message = {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "odd", **ODD},
        **ODD,
    }
    async with world.inside(capabilities={"_odd": {}}) as client:
        passed = [{**UNKNOWN, **UNMARKED}, {**known, **UNMARKED}]
        passed[1]["content"] = {"type": "odd", **UNMARKED}
        for update, came in zip((UNKNOWN, known), passed, strict=True):
            seen = client.mark()
            await client.prompt(f"update {json.dumps(update)}")
            (shown,) = [
                u
                for u in client.updates(client.session_id, seen)
                if u["sessionUpdate"] != "available_commands_update"
            ]
            assert same(shown, came)
        seen = client.mark()
        await client.load_session(client.session_id, world.cwd)
        shown_again = [u for u in client.updates(since=seen) if "big" in u]
        assert [same(a, b) for a, b in zip(shown_again, passed[1:], strict=True)] == [True]


@pytest.mark.hazard("T3.1")
async def test_unknown_methods_pass_both_ways_with_their_answers_and_errors(world: World) -> None:
    async with world.inside() as client:
        # Without a session, and with one, which is named as the agent names it.
        assert same(await client.request("_x/y", {"a": ODD}), {"echo": {"a": ODD}})
        about = {"sessionId": client.session_id}
        assert await client.request("_x/y", about) == {"echo": {"sessionId": "0"}}
        with pytest.raises(RpcError) as caught:
            await client.request("x/y", about)
        assert caught.value.code == -32601
        client.notify("_x/told", {**about, "a": ODD})
        client.notify("_x/told", {"b": ODD})
        client.notify("_x/told", None)
        # And the agent's.
        client.side.handlers["_x/ask"] = lambda params: {"answer": params}
        given = {**ODD, "sessionId": None}
        del given["sessionId"]
        seen = client.mark()
        await client.prompt(f"ask _x/ask {json.dumps(given)}; ask _x/none {{}}")
        (asked,) = client.recording.requests("_x/ask", seen)
        # But for the bridge's own mark, which an agent can't make (invariant V6).
        came = {"sessionId": client.session_id, **given, "_meta": {"x": [1, 1.0, True]}}
        assert same(asked["params"], came)
        told = client.text(since=seen)
        answer = {"answer": came}
        assert told.startswith(f"[_x/ask {json.dumps(answer, separators=(',', ':'))}]")
        assert told.endswith("[_x/none error -32601]")
        notified = json.dumps({"jsonrpc": "2.0", "method": "_x/note", "params": {"odd": 1}})
        await client.prompt(f"raw {notified}")
        assert client.recording.requests("_x/note")[0]["params"] == {"odd": 1}
    told_agent = [message.get("params") for message in world.log.received("_x/told")]
    assert same(told_agent[0], {"sessionId": "0", "a": ODD})
    assert same(told_agent[1:], [{"b": ODD}, None])


@pytest.mark.hazard("T3")
async def test_a_prompt_reaches_the_agent_as_it_is_but_for_what_is_the_bridges(
    world: World,
) -> None:
    async with world.inside() as client:
        block = {"type": "text", "text": "say one", "annotations": ODD}
        meta = {"acp_bridge": {"delivery": "queue"}, "kept": ODD}
        params = {"sessionId": client.session_id, "prompt": [block], "unknown": ODD, "_meta": meta}
        await client.request("session/prompt", params)
        plain = {"sessionId": client.session_id, "prompt": [{**block, "text": "say two"}]}
        await client.request("session/prompt", {**plain, "_meta": {"acp_bridge": {}}})
    first, second = (message["params"] for message in world.log.received("session/prompt"))
    assert same(first, {**params, "sessionId": "0", "_meta": {"kept": ODD}})
    assert same(second, {**plain, "sessionId": "0"})


@pytest.mark.hazard("P13.2")
async def test_ids_are_mapped_inside_cancel_requests_both_ways(world: World) -> None:
    ask = json.dumps({"jsonrpc": "2.0", "id": "agents own", "method": "_x/slow", "params": {}})
    give_up = {"method": "$/cancel_request", "params": {"requestId": "agents own"}}
    async with world.inside() as client:
        client.side.handlers["_x/slow"] = never_answers
        prompt = client.send_prompt(f"raw {ask}; raw {json.dumps({'jsonrpc': '2.0', **give_up})}")
        asked = await client.until_request("_x/slow")
        told = await client.until_request("$/cancel_request")
        assert told["params"] == {"requestId": asked["id"]}
        client.answer_error(asked["id"], RpcError(-32800, "gone"))
        assert await stopped(client, prompt) == "end_turn"
        # The client's, of a request that the agent has: the fourth that it was sent.
        held = client.send_request("_x/y", {"sessionId": client.session_id}, "the clients own")
        client.notify("$/cancel_request", {"requestId": held})
        assert (await client.answer_to(held))["result"] == {"echo": {"sessionId": "0"}}
        await client.request("_x/y", {})
    for message in world.log.received("$/cancel_request"):
        assert message["params"] == {"requestId": 4}


@pytest.mark.hazard("P13", "C2")
async def test_a_request_of_the_client_that_the_agent_works_on_can_be_cancelled(
    world: World,
) -> None:
    async with world.inside("slow-load") as client:
        await client.prompt("say one")
        await kill_agent(world, client)
        waiting = client.send_request("session/set_mode", _mode(client), "the mode")
        await world.gates.reached("load")
        client.notify("$/cancel_request", {"requestId": waiting})
        answer = await client.answer_to(waiting)
        assert answer["error"]["code"] == -32800
        world.gates.open("load")
        assert await client.prompt("say two") == {"stopReason": "end_turn"}
    assert world.log.turns()[-1]["mode"] == "plan"


def _mode(client: RecordingClient) -> Message:
    return {"sessionId": client.session_id, "modeId": "edit"}


@pytest.mark.hazard("P5.1", "T2")
async def test_a_line_of_10_mb_goes_both_ways(world: World) -> None:
    async with world.inside("big-line") as client:
        text = "say " + "y" * 10_000_000
        prompt = client.send_prompt(text)
        assert await stopped(client, prompt, within=20) == "end_turn"
        assert [len(text) for text in client.texts()] == [10_000_000] * 2


@pytest.mark.hazard("P4.2", "T2")
async def test_noise_on_the_agents_stdout_reaches_nobody_and_breaks_nothing(world: World) -> None:
    async with world.inside("noise") as client:
        text = (
            r"say one; noise; raw {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}; raw \xff; say two"
        )
        assert await client.prompt(text) == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "two"]
        odd = 'raw {"jsonrpc":"2.0","method":"session/update","params":%s}'
        values = ["{}", "[1]", "null", '{"sessionId":"0"}', '{"sessionId":"0","update":1}']
        values += ['{"sessionId":"0","update":{}}', '{"sessionId":1,"update":{"sessionUpdate":[]}}']
        assert await client.prompt("; ".join(odd % value for value in values)) == {
            "stopReason": "end_turn"
        }
        assert client.texts()[:2] == ["one", "two"]
        assert [each.strip() for each in client.texts()[2:]] == [agent_trouble.NO_WORD]


@pytest.mark.hazard("C16.4", "C22.2")
async def test_an_open_card_may_still_end_after_its_turn_and_fails_when_its_agent_dies(
    world: World,
) -> None:
    async with world.inside() as client:
        await client.prompt("tool a; tool b")
        await client.prompt("tool-done a; say two")
        await kill_agent(world, client)
        await client.prompt("say three")
        ends = [
            (u["toolCallId"], u["status"])
            for u in client.updates()
            if u["sessionUpdate"] == "tool_call_update"
        ]
        assert ends == [("a", "completed"), ("b", "failed")]


@pytest.mark.hazard("P13.2")
async def test_a_question_about_a_request_names_it_by_the_clients_id(world: World) -> None:
    # The prompt is the third request that the agent gets.
    question = {"mode": "form", "message": "?", "requestedSchema": {}, "requestId": 3}
    async with world.inside() as client:
        client.side.handlers["elicitation/create"] = lambda params: {"action": "accept"}
        told = client.prompt_message(f"ask elicitation/create {json.dumps(question)}", "mine")
        client.send_together(told)
        assert await stopped(client, "mine") == "end_turn"
        (asked,) = client.recording.requests("elicitation/create")
        assert asked["params"] == {
            **question,
            "sessionId": client.session_id,
            "requestId": "mine",
        }
        assert client.text() == '[elicitation/create {"action":"accept"}]'
