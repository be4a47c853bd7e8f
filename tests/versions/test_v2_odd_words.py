"""Members of a wrong type, from an agent of version 1 and from a client of version 2."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.sessions.agent import Agent, Json, Process
from tests.versions.v2_editor import HELLO, v2_bench

_ODD_TEXT: Json = {"type": "text", "text": []}


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "tool_call", "toolCallId": [], "title": "x"},
        {"sessionUpdate": "tool_call_update", "toolCallId": {}, "title": "x"},
        {"sessionUpdate": {}, "title": "x"},
        {"sessionUpdate": "user_message_chunk", "content": _ODD_TEXT},
        {"sessionUpdate": "config_option_update", "configOptions": [{"id": [], "category": {}}]},
    ],
)
async def test_a_member_of_an_update_that_has_a_wrong_type_ends_nothing(
    tmp_path: Path, update: Json, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(process: Process, params: Json) -> Json:
        process.shows(params["sessionId"], update)
        process.update(params["sessionId"], "after")
        return {"stopReason": "end_turn"}

    agent = Agent()
    agent.script["session/prompt"] = answer
    async with v2_bench(tmp_path, agent, judged=False) as it:
        session = await it.new()
        await it.editor.ran(session, "hello")
        assert it.editor.states(session) == ["running", "idle/end_turn"]
        said = it.editor.updates(session, "agent_message_chunk")
        assert [each["content"]["text"] for each in said] == ["after"]
    assert "internal error" not in caplog.text


@pytest.mark.parametrize("reason", [[], {}])
@pytest.mark.hazard("X3")
async def test_a_stop_reason_of_a_wrong_type_is_the_end_of_the_turn(
    tmp_path: Path, reason: Any
) -> None:
    agent = Agent()
    agent.script["session/prompt"] = {"stopReason": reason}
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.ran(session, "hello")
        assert it.editor.states(session) == ["running", "idle/end_turn"]


async def test_a_block_of_an_unknown_type_may_have_a_text_of_any_type(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/prompt"] = {"stopReason": "end_turn"}
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        params = {"sessionId": session, "prompt": [{"type": "_own", "text": [1]}]}
        answer = await it.editor.ask("session/prompt", {**params, "idempotencyKey": "k"})
        await it.editor.idle(session)
        assert await it.editor.ask("session/prompt", {**params, "idempotencyKey": "k"}) == answer
        assert it.editor.states(session) == ["running", "idle/end_turn"]


@pytest.mark.hazard("X1")
async def test_an_initialize_that_is_refused_asks_for_nothing(tmp_path: Path) -> None:
    async with v2_bench(tmp_path) as it:
        wants = {"_meta": {"acp_bridge": {"state": True}}}
        refusal = await it.editor.refused("initialize", {**HELLO, "capabilities": wants})
        assert refusal.code == -32600
        await it.editor.ran(await it.new(), "hello")
        assert it.editor.asked("_acp_bridge/state") == []


@pytest.mark.hazard("X1.6")
@pytest.mark.hazard("X3")
async def test_an_agent_of_version_1_that_uses_words_of_version_2_says_nothing_by_them(
    tmp_path: Path,
) -> None:
    words: list[Json] = [
        {"sessionUpdate": "state_update", "state": "idle", "stopReason": "refusal"},
        {"sessionUpdate": "replay_complete"},
        {"sessionUpdate": "user_message", "messageId": "u", "content": []},
        {"sessionUpdate": "agent_message", "messageId": "a", "content": []},
        {"sessionUpdate": "agent_thought", "messageId": "t", "content": []},
        {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c"},
        {"sessionUpdate": "terminal_update", "terminalId": "t"},
        {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": ""},
    ]

    async def answer(process: Process, params: Json) -> Json:
        for each in words:
            process.shows(params["sessionId"], each)
        process.update(params["sessionId"], "after")
        return {"stopReason": "end_turn"}

    agent = Agent()
    agent.script["session/prompt"] = answer
    async with v2_bench(tmp_path, agent) as it:
        session = await it.new()
        await it.editor.ran(session, "hello")
        kinds = [each["sessionUpdate"] for each in it.editor.updates(session)]
        told = ["state_update", "user_message", "agent_message_chunk", "state_update"]
        assert kinds == told
        await it.editor.resumed(session)
        marks = it.editor.updates(session, "replay_complete")
        assert len(marks) == 1
        assert it.editor.states(session) == ["running", "idle/end_turn", "idle"]
