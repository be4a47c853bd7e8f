"""Hostile input on both pipes of a real bridge: alive, one answer each, and the journal loads."""

import json
from collections import Counter
from itertools import count
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.client import RecordingClient
from tests.support.recording import Message
from tests.whole.bridge_support import World
from tests.whole.judge import PROMPT

pytestmark = pytest.mark.process

FEW = settings(
    derandomize=True,
    phases=[Phase.generate],  # one bridge meets all examples: none can be made smaller
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
texts = st.text(max_size=8) | st.sampled_from(["\ud800", "\x00", "sessionId", "/queue", "é" * 50])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(2**70) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
deep = st.sampled_from([10, 150, 5000]).map(lambda n: b"[" * n + b"]" * n)
broken = st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"\xff")) | deep
methods = st.sampled_from(
    [
        *("initialize", "authenticate", "logout", PROMPT, "session/new", "session/load"),
        *("session/resume", "session/list", "session/close", "session/delete"),
        *("session/set_mode", "session/set_config_option", "session/fork", "_x/y", "", "x"),
        *("session/cancel", "$/cancel_request", "session/update", "fs/read_text_file"),
    ]
)


@st.composite
def odd_params(draw: st.DrawFn, session_ids: st.SearchStrategy[str]) -> Any:
    """Anything, or an object with the names that a method looks for."""
    if draw(st.booleans()):
        return draw(values)
    names = ("cwd", "prompt", "cursor", "mcpServers", "_meta", "requestId", "protocolVersion")
    params = draw(st.dictionaries(st.sampled_from(names), values, max_size=4))
    if draw(st.booleans()):
        params["sessionId"] = draw(session_ids | values)
    if draw(st.integers(0, 3)) == 0:
        params["prompt"] = [{"type": "text", "text": f"say {draw(texts)}"}]
    return params


def lines(session_ids: st.SearchStrategy[str]) -> st.SearchStrategy[list[Any]]:
    """A raw line, or a message to which a fresh id is given; False: a notification."""
    message = st.tuples(methods, odd_params(session_ids), st.booleans())
    answer = st.tuples(st.integers(-1, 30), values).map(
        lambda both: json.dumps({"jsonrpc": "2.0", "id": both[0], "result": both[1]}).encode()
    )
    return st.lists(broken | message | message | answer, max_size=8)


def is_message(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


@pytest.mark.hazard("Q9.1", "P4", "K2")
async def test_whatever_the_client_sends_each_request_has_one_answer_and_the_session_lives(
    world: World,
) -> None:
    world.repeats = True
    ids = count(1000)
    async with world.inside("reuses-ids") as client:
        session = client.session_id

        async def send(example: list[Any]) -> None:
            seen, asked, malformed = client.mark(), [], 0
            for item in example:
                if isinstance(item, bytes):
                    client.send_raw(item + b"\n")
                    malformed += bool(item.strip(b" \t\r\n")) and not is_message(item)
                    continue
                method, params, request = item
                if method in ("session/close", "session/delete") and session in str(params):
                    continue  # nothing would be left to load
                message: Message = {"jsonrpc": "2.0", "method": method, "params": params}
                if request:
                    message["id"] = next(ids)
                    asked.append(message["id"])
                client.send(message)
            for request_id in asked:
                await client.answer_to(request_id)
            await alive(client, next(ids))
            answers = Counter(
                json.dumps(m["id"]) for m in client.recording.incoming(seen) if "method" not in m
            )
            assert answers.pop("null", 0) == malformed
            assert set(answers.values()) == {1}

        await every_example(lines(st.just(session)), send)
        await client.request("session/close", {"sessionId": client.session_id})
    async with world.inside(session=False) as client:
        await client.load_session(session, world.cwd)
        assert await client.prompt("say alive") == {"stopReason": "end_turn"}


kinds = st.sampled_from(
    [
        *("agent_message_chunk", "tool_call", "tool_call_update", "plan", "usage_update"),
        *("available_commands_update", "current_mode_update", "config_option_update"),
        *("session_info_update", "user_message_chunk", "unknown", ""),
    ]
)
AGENTS_METHODS = (
    *("session/request_permission", "fs/read_text_file", "terminal/create", "_x/y", ""),
    *("terminal/release", "elicitation/create", "session/prompt", "initialize"),
)


@st.composite
def odd_update(draw: st.DrawFn) -> Message:
    names = ("content", "toolCallId", "messageId", "status", "availableCommands", "title")
    more = ("configOptions", "currentModeId", "_meta", "entries")
    update = draw(st.dictionaries(st.sampled_from(names + more), values, max_size=4))
    update["sessionUpdate"] = draw(kinds | values)
    params = {"sessionId": draw(st.just("0") | values), "update": draw(st.just(update) | values)}
    return {"method": "session/update", "params": draw(st.just(params) | values)}


@st.composite
def odd_question(draw: st.DrawFn) -> Message:
    names = ("toolCall", "toolCallId", "terminalId", "mode", "options", "requestId", "path")
    params = draw(st.dictionaries(st.sampled_from(names), values, max_size=4))
    params["sessionId"] = draw(st.just("0") | values)
    asked = {
        "method": draw(st.sampled_from(AGENTS_METHODS)),
        "params": draw(st.just(params) | values),
    }
    return {"id": "fresh", **asked} if draw(st.booleans()) else asked


@pytest.mark.hazard("Q9.1", "P4", "K2")
async def test_whatever_the_agent_sends_each_request_has_one_answer_and_the_session_lives(
    world: World,
) -> None:
    ids, answers = count(1000), st.sampled_from([b'{"id":-1,"result":1}', b'{"id":"x","error":{}}'])
    odd = st.lists(broken | answers | odd_update() | odd_question(), max_size=8)
    async with world.inside() as client:
        client.side.handlers |= dict.fromkeys(AGENTS_METHODS, lambda params: {"echo": params})

        async def send(example: list[Any]) -> None:
            said, asked = [], []
            for item in example:
                line = item
                if not isinstance(item, bytes):
                    message = {"jsonrpc": "2.0", **item}
                    if "id" in message:
                        message["id"] = f"agents {next(ids)}"
                        asked.append(message["id"])
                    line = json.dumps(message).encode()
                said.append("raw " + "".join(f"\\x{byte:02x}" for byte in line[:20_000]))
            prompt = client.send_prompt("; ".join([*said, f"say alive {next(ids)}"]))
            answer = await client.answer_to(prompt)
            assert answer.get("result") == {"stopReason": "end_turn"}
            await client.request("_x/y", {"sessionId": client.session_id})
            received = Counter(
                e["message"]["id"]
                for e in world.log.events("received")
                if "method" not in e["message"]
            )
            assert [received[request_id] for request_id in asked] == [1] * len(asked)

        await every_example(odd, send)
        await client.load_session(client.session_id, world.cwd)
        assert await client.prompt("say at last") == {"stopReason": "end_turn"}


async def alive(client: RecordingClient, request_id: int) -> None:
    client.send_request("session/list", {}, request_id)
    assert "result" in await client.answer_to(request_id)


async def every_example(strategy: st.SearchStrategy[Any], check: Any) -> None:
    """Hypothesis in a thread of its own, what it finds on this loop."""

    @FEW
    @given(strategy)
    def run(example: Any) -> None:
        anyio.from_thread.run(check, example)

    await anyio.to_thread.run_sync(run)
