"""`acp-bridge replay`: an agent that is made of a trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.settings import AgentProtocol
from acp_bridge.terminal import cli
from tests.support.client import RecordingClient
from tests.support.fixture_agents import V2_AGENT, replay_command
from tests.support.recording import Message, RpcError
from tests.support.trace_reader import read_trace
from tests.whole.bridge_support import ROOT, World, shown

pytestmark = pytest.mark.process

PROMPTS = (
    "say hello there; tool t1; permission; tool-done t1",
    "read /x; terminal; say terminal-done",
    "stream 30",
)


def player(file: Path, *options: str) -> Any:
    return RecordingClient.start(replay_command(file, *options), env={"PYTHONPATH": str(ROOT)})


def allow(client: RecordingClient) -> None:
    client.side.permission = "allow"
    client.side.files["/x"] = "what is in x"


async def recorded(world: World, file: Path, *prompts: str) -> list[Message]:
    """A trace of the fixture agent behind a bridge; what the client was shown."""
    async with world.inside(trace=file) as client:
        allow(client)
        for prompt in prompts:
            await client.prompt(prompt)
        return shown(client)


def made(file: Path, *events: Message) -> None:
    """A trace by hand; `ts` counts up."""
    base = {"ts": 1.0, "from": "Proxy(0)", "to": "Agent"}
    lines = [json.dumps({**base, "protocol": "acp", **event}) for event in events]
    file.write_text("\n".join(lines) + "\n")


def asks(method: str, request_id: str, seconds: float = 1.0, **params: Any) -> Message:
    return {"type": "request", "id": request_id, "ts": seconds, "method": method, "params": params}


def says(text: str, seconds: float = 1.0, session: str = "s1") -> Message:
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    way = {"type": "notification", "from": "Agent", "to": "Proxy(0)", "ts": seconds}
    return {**way, "method": "session/update", "params": {"sessionId": session, "update": update}}


def answers(request_id: str, payload: Any, seconds: float = 1.0, *, error: bool = False) -> Message:
    way = {"type": "response", "from": "Agent", "to": "Proxy(0)", "ts": seconds}
    return {**way, "id": request_id, "is_error": error, "payload": payload}


async def test_a_client_gets_what_the_agent_has_said_asked_and_answered(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    await recorded(world, file, *PROMPTS)
    trace = read_trace(file)
    async with player(file) as client:
        allow(client)
        client.side._terminals_made = 6  # the next one has another name than in the trace
        hello = await client.initialize()
        assert [hello] == trace.answers("initialize", "Agent")
        await client.new_session(world.cwd)
        assert client.session_id == trace.answers("session/new", "Agent")[0]["sessionId"]
        for prompt in PROMPTS:
            assert await client.prompt(prompt) == {"stopReason": "end_turn"}
        said = [each for each in trace.between("Agent", "Proxy(0)") if each["type"] != "response"]
        methods = [each["method"] for each in said]
        assert [
            each["method"] for each in client.recording.incoming() if "method" in each
        ] == methods
        assert {"terminal/create", "fs/read_text_file", "session/request_permission"} < {*methods}
        told = [each["params"]["update"] for each in said if each["method"] == "session/update"]
        assert '"term-7"' in (seen := json.dumps(client.updates()))
        assert json.dumps(told).replace('"term-1"', '"term-7"') == seen
        client.close_stdin()
        assert await client.wait() == 0


async def test_a_bridge_shows_the_same_session_with_the_recording_behind_it(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    before = await recorded(world, file, *PROMPTS)
    async with world.inside(command=replay_command(file)) as client:
        allow(client)
        for prompt in PROMPTS:
            assert await client.prompt(prompt) == {"stopReason": "end_turn"}
        assert told(shown(client)) == told(before)


def told(updates: list[Message]) -> list[Any]:
    """Without what a bridge or an agent makes anew each time."""
    new = ("messageId", "_meta", "terminalId")
    return [{key: value for key, value in each.items() if key not in new} for each in updates]


async def test_a_turn_that_was_cancelled_goes_on_until_the_client_cancels(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    async with world.inside(trace=file) as client:
        prompt = client.send_prompt("say one; gate middle; say two")
        await client.until_text("one")
        client.cancel()
        assert (await client.answer_to(prompt))["result"]["stopReason"] == "cancelled"
    async with player(file) as client:
        await client.initialize()
        await client.new_session(world.cwd)
        prompt = client.send_prompt("anything")
        await client.until_text("one")
        with pytest.raises(RpcError):
            await client.request("session/list", {})
        assert not client.recording.answers(prompt)
        client.cancel()
        assert (await client.answer_to(prompt))["result"]["stopReason"] == "cancelled"


async def test_what_the_trace_has_not_is_one_error_and_the_rest_goes_on(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    refusal = {"code": -32000, "message": "no", "data": {"details": "not now"}}
    made(
        file,
        asks("session/new", "1", cwd="/"),
        answers("1", {"sessionId": "s1"}),
        asks("session/prompt", "2", sessionId="s1"),
        says("hello"),
        answers("2", {"stopReason": "end_turn"}),
        asks("session/set_mode", "3", sessionId="s1"),
        answers("3", refusal, error=True),
        asks("session/prompt", "4", sessionId="s1"),
    )
    async with player(file) as client:
        client.session_id = (await client.request("session/new", {"cwd": "/"}))["sessionId"]
        for method, reason in (
            ("session/new", "the trace has no more answers to session/new"),
            ("session/list", "the trace has no more answers to session/list"),
            ("providers/set", "the trace has no more answers to providers/set"),
        ):
            with pytest.raises(RpcError, match=reason):
                await client.request(method, {})
        with pytest.raises(RpcError, match="no more answers to session/prompt in this session"):
            await client.request("session/prompt", {"sessionId": "s2", "prompt": []})
        with pytest.raises(RpcError) as caught:
            await client.request("session/set_mode", {"sessionId": "s1", "modeId": "m"})
        assert (caught.value.code, caught.value.data) == (-32000, {"details": "not now"})
        assert await client.request("authenticate", {"methodId": "m"}) == {}
        assert await client.prompt("x") == {"stopReason": "end_turn"}
        with pytest.raises(RpcError, match="ends before session/prompt is answered"):
            await client.prompt("y")
        with pytest.raises(RpcError, match="no more answers to session/prompt in this session"):
            await client.prompt("z")
        assert client.text() == "hello"


async def test_a_session_that_the_client_names_stands_for_that_of_the_trace(
    tmp_path: Path,
) -> None:
    file = tmp_path / "trace"
    made(
        file,
        asks("session/load", "1", sessionId="s1", cwd="/"),
        says("before"),
        answers("1", {}),
        asks("session/prompt", "2", sessionId="s1"),
        says("after"),
        answers("2", {"stopReason": "end_turn"}),
    )
    async with player(file) as client:
        assert await client.request("session/load", {"sessionId": "mine", "cwd": "/"}) == {}
        assert await client.prompt("x", session_id="mine") == {"stopReason": "end_turn"}
        assert client.texts("mine") == ["before", "after"]
        assert client.texts("s1") == []


async def test_sessions_at_the_same_time_and_what_comes_between_are_told_apart(
    tmp_path: Path,
) -> None:
    file = tmp_path / "trace"
    made(
        file,
        asks("session/prompt", "1", sessionId="s1"),
        asks("session/prompt", "2", sessionId="s2"),
        says("one"),
        says("other", session="s2"),
        asks("session/set_mode", "3", sessionId="s1"),
        answers("3", {}),
        answers("2", {"stopReason": "end_turn"}),
        says("two"),
        answers("1", {"stopReason": "max_tokens"}),
        says("late"),
        asks("session/prompt", "4", sessionId="s2"),
        answers("4", {"stopReason": "end_turn"}),
        asks("session/prompt", "5", sessionId="s3"),
        answers("5", {"stopReason": "end_turn"}),
    )
    async with player(file) as client:
        assert await client.prompt("x", session_id="s2") == {"stopReason": "end_turn"}
        assert client.texts() == ["other"]
        assert await client.prompt("x", session_id="s1") == {"stopReason": "max_tokens"}
        await client.until_text("late")
        assert client.texts("s1") == ["one", "two", "late"]
        with pytest.raises(RpcError, match="in this session"):
            await client.prompt("y", session_id="s1")


async def test_with_timing_the_pauses_are_those_of_the_agent_and_a_cancel_ends_them(
    tmp_path: Path,
) -> None:
    file = tmp_path / "trace"
    made(
        file,
        asks("session/prompt", "1", sessionId="s1"),
        says("one"),
        says("two", 9000),
        answers("1", {"stopReason": "end_turn"}, 9000),
        asks("session/list", "2", 9001),
        answers("2", {"sessions": []}, 9001),
    )
    async with player(file) as client:
        assert await client.prompt("x", session_id="s1") == {"stopReason": "end_turn"}
        assert client.texts() == ["one", "two"]
    async with player(file, "--timing") as client:
        prompt = client.send_prompt("x", session_id="s1")
        await client.until_text("one")
        await client.request("session/list", {})
        assert client.texts() == ["one"]
        client.cancel("s1")
        assert (await client.answer_to(prompt))["result"]["stopReason"] == "end_turn"
        assert client.texts() == ["one", "two"]


def early_or_late(seconds: int) -> str:
    event = {**asks("initialize", "a", seconds), "from": "Proxy(0)", "to": "Agent"}
    return json.dumps(event) + "\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type":"request"}\n', "line 1 is no event of a trace"),
        ("not JSON\n", "line 1 is no event of a trace"),
        ("", "there is no request to an agent in it"),
        ('{"type":"request","ts":1', "there is no request to an agent in it"),
        *((early_or_late(each), "line 1 is no event of a trace") for each in (-1, 10**400)),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_trace_is_said_to_be_none(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, why: str
) -> None:
    file = tmp_path / "trace"
    if text is not None:
        file.write_text(text)
    assert cli.run(["replay", str(file)]) == 2
    out, said = capfd.readouterr()
    assert out == ""
    assert why in said


async def test_an_agent_of_version_2_is_recorded_and_played_in_its_version(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    second = AgentProtocol.V2
    async with world.inside(command=V2_AGENT, agent_protocol=second, trace=file) as client:
        assert await client.prompt("say hello there") == {"stopReason": "end_turn"}
    (hello,) = read_trace(file).answers("initialize", "Agent")
    assert hello["protocolVersion"] == 2
    async with world.inside(command=replay_command(file), agent_protocol=second) as client:
        assert await client.prompt("anything") == {"stopReason": "end_turn"}
        assert client.text() == "hello there"
