"""Whatever an agent of version 2 sends, its translator lives, and tells what version 1 knows."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acp_bridge.core.protocol import Json
from acp_bridge.versions.agent_end import AgentEnd
from tests.versions.agent_wire import for_version_1

_KINDS = [
    "user_message",
    "user_message_chunk",
    "agent_message",
    "agent_message_chunk",
    "agent_thought",
    "state_update",
    "tool_call_update",
    "tool_call_content_chunk",
    "terminal_update",
    "terminal_output_chunk",
    "plan_update",
    "available_commands_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
    "notice",
    "subagent_update",
    "session_message",
    "session_message_chunk",
    "compaction_update",
    "replay_complete",
    "_odd",
]
_MEMBERS = [
    "messageId",
    "toolCallId",
    "terminalId",
    "content",
    "title",
    "name",
    "kind",
    "status",
    "locations",
    "rawInput",
    "path",
    "type",
    "capabilities",
    "cancel",
    "state",
    "stopReason",
    "error",
    "background",
    "data",
    "output",
    "exitStatus",
    "command",
    "plan",
    "entries",
    "planId",
    "priority",
    "availableCommands",
    "input",
    "configOptions",
    "configId",
    "category",
    "options",
    "currentValue",
    "groupId",
    "value",
    "severity",
    "description",
    "text",
    "changes",
    "patch",
    "operation",
    "oldPath",
    "format",
    "subject",
    "toolCall",
    "cwd",
    "mode",
    "code",
    "message",
    "sessionId",
    "senderSessionId",
]
_VALUES = [
    "a",
    "b",
    "select",
    "boolean",
    "mode",
    "terminal",
    "tool_call",
    "command",
    "items",
    "text",
    "content",
    "diff",
    "add",
    "idle",
    "running",
    "error",
    "completed",
    "cancelled",
    "git_patch",
    "agent",
    "diff--git",
    "session",
    "s",
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(_VALUES) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_MEMBERS), inner, max_size=4)
    ),
    max_leaves=12,
)
_OBJECT = st.dictionaries(st.sampled_from(_MEMBERS), _JSON, max_size=5)
_UPDATE = st.builds(
    lambda session, kind, rest: {
        "method": "session/update",
        "params": {"sessionId": session, "update": {**rest, "sessionUpdate": kind}},
    },
    st.sampled_from(["s", "s", "a"]),
    st.sampled_from(_KINDS) | _JSON,
    _OBJECT,
)
_ASKED = st.builds(
    lambda method, params: {"id": "q", "method": method, "params": params},
    st.sampled_from(["session/request_permission", "elicitation/create", "odd"]),
    _OBJECT | _JSON,
)
_ANSWER = st.builds(
    lambda id, key, value: {"id": id, key: value},
    st.integers(1, 6),
    st.sampled_from(["result", "error"]),
    _OBJECT | _JSON,
)
#: the kinds of updates that a client of version 1 knows.
_KNOWN = {
    *("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call"),
    *("tool_call_update", "plan", "available_commands_update", "current_mode_update"),
    *("config_option_update", "session_info_update", "usage_update", "compaction_update"),
    *("compaction_summary_chunk", "subagent_update", "session_message", "session_message_chunk"),
}


def opened() -> AgentEnd:
    """In front of an agent that owes an answer to everything that a bridge asks."""
    end = AgentEnd()
    session: Json = {"sessionId": "s"}
    asked: list[tuple[str, Json]] = [
        ("initialize", {"protocolVersion": 1}),
        ("session/new", {"cwd": "/", "mcpServers": []}),
        ("session/load", {**session, "cwd": "/", "mcpServers": []}),
        ("session/prompt", {**session, "prompt": []}),
        ("session/set_config_option", {**session, "configId": "c", "value": "v"}),
        ("session/close", session),
    ]
    for number, (method, params) in enumerate(asked, 1):
        end.take_from_bridge({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    info = {"protocolVersion": 2, "info": {"name": "a", "version": "1"}, "capabilities": {}}
    end.take_from_agent({"jsonrpc": "2.0", "id": 1, "result": info})
    return end


@settings(max_examples=150, deadline=None)
@given(st.lists(_UPDATE | _ASKED | _ANSWER, max_size=12))
def test_no_message_of_an_agent_ends_its_translator(said: list[Any]) -> None:
    end = opened()
    answered: list[Any] = []
    for message in said:
        out = end.take_from_agent({"jsonrpc": "2.0", **message})
        for told in for_version_1(out.to_bridge):
            assert isinstance(told, dict)
            if told.get("method") == "session/update":
                assert told["params"]["update"]["sessionUpdate"] in _KNOWN
            elif "method" not in told:
                answered.append(told["id"])
        end.take_from_bridge(
            {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}
        )
    assert answered.count(4) <= 1
