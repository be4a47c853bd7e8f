"""Requests, answers and turns between the bridge and an agent of version 2."""

from typing import Any

import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import Malformed, RpcError
from acp_bridge.versions.agent_end import AgentEnd
from acp_bridge.versions.agent_handshake import initialized_to_v1
from tests.versions.agent_wire import ABLE, INFO, TEXT, Wire, result, updates

MODES = {
    "type": "select",
    "configId": "m",
    "name": "Mode",
    "category": "mode",
    "currentValue": "ask",
    "options": [
        {"groupId": "g", "name": "G", "options": [{"value": "ask", "name": "Ask"}]},
        {"groupId": "h", "name": "H", "options": [{"value": "plan", "name": "Plan"}]},
    ],
}
FAST = {"type": "boolean", "configId": "fast", "name": "Fast", "currentValue": False}
ODD = {"type": "_odd", "configId": "o", "name": "Odd"}
#: what the translator says for each agent: its link takes `_acp_bridge/cancel_item`.
CANCELS = {"_meta": {"acp_bridge": {"cancelItem": True}}}


def in_mode(mode: str) -> dict[str, Any]:
    return {**MODES, "currentValue": mode}


# --- initialize, logins -------------------------------------------------------------------------


def test_the_agent_is_asked_for_version_2_and_its_answer_is_one_of_version_1() -> None:
    wire = Wire(opened=False)
    assert wire.initialized == {
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": False},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            **CANCELS,
        },
        "agentInfo": INFO,
        "authMethods": [],
    }


def test_what_a_client_can_do_is_told_in_marks_that_are_objects() -> None:
    end = AgentEnd()
    client = {"name": "editor", "version": "3"}
    params = {
        "protocolVersion": 1,
        "clientInfo": client,
        "clientCapabilities": {
            "fs": {"readTextFile": True},
            "terminal": True,
            "auth": {"terminal": True},
            "elicitation": {"form": {}},
            "_meta": {"x": 1},
        },
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    (told,) = end.take_from_bridge(message).to_agent
    assert told["params"] == {
        "protocolVersion": 2,
        "info": client,
        "capabilities": {
            "auth": {"terminal": {}},
            "elicitation": {"form": {}},
            "_meta": {"x": 1},
        },
        "clientInfo": client,
        "clientCapabilities": params["clientCapabilities"],
    }


@pytest.mark.parametrize(
    "answer",
    [
        {"protocolVersion": 1, "agentCapabilities": {}},
        {"protocolVersion": 2, "agentCapabilities": {}},
        {"protocolVersion": 2, "info": INFO, "capabilities": {}, "agentCapabilities": {}},
        {"protocolVersion": 2, "info": INFO},
    ],
)
def test_an_agent_that_repeats_a_version_it_does_not_have_is_found_out(answer: Any) -> None:
    end = AgentEnd()
    end.take_from_bridge({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    out = end.take_from_agent({"jsonrpc": "2.0", "id": 1, "result": answer})
    assert not end.agreed
    assert out.to_bridge == [{"jsonrpc": "2.0", "id": 1, "result": answer}]


def test_a_login_and_a_logout_have_other_names_and_the_ways_to_log_in_other_ids() -> None:
    end = AgentEnd()
    end.take_from_bridge({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    methods = [
        {"type": "agent", "methodId": "web", "name": "Web"},
        {
            "type": "terminal",
            "methodId": "tty",
            "name": "Terminal",
            "env": [{"name": "A", "value": "b"}],
        },
        {"type": "_odd", "methodId": "odd", "name": "Odd"},
    ]
    answer = {"protocolVersion": 2, "info": INFO, "capabilities": {}, "authMethods": methods}
    (told,) = end.take_from_agent({"jsonrpc": "2.0", "id": 1, "result": answer}).to_bridge
    assert isinstance(told, dict)
    assert told["result"]["authMethods"] == [
        {"id": "web", "name": "Web"},
        {"id": "tty", "name": "Terminal", "type": "terminal", "env": {"A": "b"}},
    ]
    assert told["result"]["agentCapabilities"] == {"auth": {"logout": {}}, **CANCELS}

    wire = Wire()
    asked = wire.ask("authenticate", {"methodId": "web"})
    assert (asked["method"], asked["params"]) == ("auth/login", {"methodId": "web"})
    assert wire.agent_answers(asked["id"], {}) == [result(asked["id"])]
    asked = wire.ask("logout", {})
    assert asked["method"] == "auth/logout"
    assert wire.agent_fails(asked["id"], -32000)[0]["error"]["code"] == -32000


# --- sessions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [{}, {"methodId": 5}, {"methodId": "x", "type": {}}])
def test_a_way_to_log_in_of_an_odd_shape_is_left_out(odd: Json) -> None:
    methods = [odd, {"methodId": "in", "name": "In", "type": "agent"}]
    told = initialized_to_v1({"info": INFO, "capabilities": {}, "authMethods": methods})
    assert told["authMethods"] == [{"id": "in", "name": "In"}]


@pytest.mark.hazard("X1")
def test_a_client_is_told_of_a_compaction_if_it_takes_that_alone() -> None:
    nothing: Json = {}
    for able, shown in ((ABLE, 1), (nothing, 0)):
        wire = Wire(able=able)
        told = wire.shows("compaction_update", compactionId="1", status="completed")
        assert len(told) == shown


@pytest.mark.hazard("X1")
@pytest.mark.parametrize("kind", ["tool_call", "plan", "plan_removed", "current_mode_update"])
def test_an_update_that_version_1_alone_has_is_told_to_nobody(kind: str) -> None:
    wire = Wire()
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, "toolCallId": "c"}}
    told = {"jsonrpc": "2.0", "method": "session/update", "params": params}
    assert wire.end.take_from_agent(told).to_bridge == []


def test_each_mcp_server_has_its_type() -> None:
    wire = Wire(opened=False)
    servers: list[Any] = [
        {"name": "a", "command": "/a", "args": ["x"], "env": [{"name": "n", "value": "v"}]},
        {"type": "http", "name": "b", "url": "http://b", "headers": []},
    ]
    asked = wire.ask("session/new", {"cwd": "/w", "mcpServers": servers})
    assert asked["params"]["mcpServers"] == [{**servers[0], "type": "stdio"}, servers[1]]


def test_a_server_of_a_type_that_is_gone_is_refused() -> None:
    wire = Wire(opened=False)
    server = {"type": "sse", "name": "old", "url": "http://b", "headers": []}
    out = wire.request("session/new", {"cwd": "/w", "mcpServers": [server]})
    assert not out.to_agent
    (refusal,) = out.to_bridge
    assert isinstance(refusal, dict)
    assert refusal["error"]["code"] == -32602
    assert "sse: old" in refusal["error"]["message"]


def test_a_new_session_has_its_modes_options_and_commands() -> None:
    wire = Wire(opened=False)
    command = {"type": "command", "name": "c", "description": "d"}
    hinted = {**command, "name": "h", "input": {"type": "text", "hint": "what"}}
    odd = {"type": "_odd", "name": "o", "description": "d"}
    told = wire.open(configOptions=[MODES, FAST], availableCommands=[command, hinted, odd])
    opened, commands = told
    assert opened["result"] == {
        "sessionId": "s",
        "configOptions": [
            {
                "type": "select",
                "id": "m",
                "name": "Mode",
                "category": "mode",
                "currentValue": "ask",
                "options": [
                    {"group": "g", "name": "G", "options": [{"value": "ask", "name": "Ask"}]},
                    {"group": "h", "name": "H", "options": [{"value": "plan", "name": "Plan"}]},
                ],
            },
            {"type": "boolean", "id": "fast", "name": "Fast", "currentValue": False},
        ],
        "modes": {
            "currentModeId": "ask",
            "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}],
        },
    }
    assert updates([commands]) == [
        {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [
                {"name": "c", "description": "d"},
                {"name": "h", "description": "d", "input": {"hint": "what"}},
            ],
        }
    ]


def test_an_option_that_is_on_or_off_is_told_to_a_client_that_takes_it_alone() -> None:
    wire = Wire(opened=False, able={})
    (opened,) = wire.open(configOptions=[FAST])
    assert opened["result"]["configOptions"] == []


def test_a_load_is_a_resume_with_a_replay_whose_end_is_the_answer() -> None:
    wire = Wire(opened=False)
    asked = wire.ask("session/load", {"sessionId": "s", "cwd": "/w", "mcpServers": []})
    assert asked["method"] == "session/resume"
    assert asked["params"]["replayFrom"] == {"type": "start"}
    said = wire.shows("user_message", messageId="u", content=[TEXT])
    assert said == [{"sessionUpdate": "user_message_chunk", "content": TEXT, "messageId": "u"}]
    assert wire.shows("agent_message_chunk", messageId="a", content=TEXT)
    assert wire.says("replay_complete") == []
    assert wire.state("idle", stopReason="end_turn") == []
    (answer,) = wire.agent_answers(asked["id"], {"configOptions": [MODES]})
    assert answer["result"]["modes"]["currentModeId"] == "ask"


def test_a_resume_asks_for_no_replay() -> None:
    wire = Wire(opened=False)
    asked = wire.ask("session/resume", {"sessionId": "s", "cwd": "/w"})
    assert (asked["method"], "replayFrom" in asked["params"]) == ("session/resume", False)
    assert wire.agent_answers(asked["id"], {}) == [result(asked["id"])]


def test_a_load_that_is_refused_is_refused_with_the_agent_s_error() -> None:
    wire = Wire(opened=False)
    asked = wire.ask("session/load", {"sessionId": "s", "cwd": "/w", "mcpServers": []})
    (answer,) = wire.agent_fails(asked["id"], -32002, "gone")
    assert answer["error"] == {"code": -32002, "message": "gone"}


def test_sessions_are_listed_and_deleted_under_the_same_names() -> None:
    wire = Wire()
    asked = wire.ask("session/list", {"cwd": "/w"})
    found = {"sessions": [{"sessionId": "s", "cwd": "/w", "title": "T"}], "nextCursor": "n"}
    assert wire.agent_answers(asked["id"], found) == [result(asked["id"], **found)]
    asked = wire.ask("session/delete", {"sessionId": "s"})
    assert wire.agent_answers(asked["id"], {}) == [result(asked["id"])]


def test_a_close_answers_the_prompt_that_is_open_first() -> None:
    wire = Wire()
    prompt = wire.prompt()
    asked = wire.ask("session/close", {"sessionId": "s"})
    assert wire.agent_answers(asked["id"], {}) == [
        result(prompt, stopReason="cancelled"),
        result(asked["id"]),
    ]


def test_a_fork_is_opened_as_a_new_session_is_where_the_agent_has_forks() -> None:
    end = AgentEnd()
    end.take_from_bridge({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    answer = {"protocolVersion": 2, "info": INFO, "capabilities": {"session": {"fork": {}}}}
    (told,) = end.take_from_agent({"jsonrpc": "2.0", "id": 1, "result": answer}).to_bridge
    assert isinstance(told, dict)
    assert told["result"]["agentCapabilities"]["sessionCapabilities"]["fork"] == {}
    asked = {"jsonrpc": "2.0", "id": 2, "method": "session/fork"}
    params = {"sessionId": "s", "cwd": "/w", "mcpServers": []}
    assert end.take_from_bridge({**asked, "params": params}).to_agent[0]["params"] == params
    made = {"sessionId": "f", "configOptions": [MODES]}
    (told,) = end.take_from_agent({"jsonrpc": "2.0", "id": 2, "result": made}).to_bridge
    assert isinstance(told, dict)
    assert told["result"]["sessionId"] == "f"
    assert told["result"]["modes"]["currentModeId"] == "ask"


def test_what_an_idle_says_beside_the_end_stands_in_the_answer() -> None:
    wire = Wire()
    prompt = wire.prompt()
    meta = {"x": 1}
    assert wire.state("idle", _meta=meta) == [result(prompt, stopReason="end_turn", _meta=meta)]


def test_what_version_2_has_not_is_refused_here() -> None:
    wire = Wire()
    message = {
        "jsonrpc": "2.0",
        "id": 90,
        "method": "session/set_model",
        "params": {"sessionId": "s"},
    }
    out = wire.end.take_from_bridge(message)
    (refusal,) = out.to_bridge
    assert not out.to_agent
    assert isinstance(refusal, dict)
    assert refusal["error"]["code"] == -32601


# --- settings -----------------------------------------------------------------------------------


def test_a_mode_is_set_by_its_option() -> None:
    wire = Wire(opened=False)
    wire.open(configOptions=[MODES])
    asked = wire.ask("session/set_mode", {"sessionId": "s", "modeId": "plan"})
    assert asked["method"] == "session/set_config_option"
    assert asked["params"] == {"sessionId": "s", "configId": "m", "type": "id", "value": "plan"}
    answer, told = wire.agent_answers(asked["id"], {"configOptions": [in_mode("plan")]})
    assert answer == result(asked["id"])
    (options,) = updates([told])
    assert options["configOptions"][0]["currentValue"] == "plan"
    assert wire.shows("config_option_update", configOptions=[in_mode("plan")])[1:] == []


def test_a_mode_of_an_agent_without_modes_is_refused() -> None:
    out = Wire().request("session/set_mode", {"sessionId": "s", "modeId": "plan"})
    (refusal,) = out.to_bridge
    assert isinstance(refusal, dict)
    assert refusal["error"]["code"] == -32602


@pytest.mark.parametrize(("value", "kind"), [("plan", "id"), (True, "boolean")])
def test_the_value_of_an_option_has_a_type(value: object, kind: str) -> None:
    wire = Wire(opened=False)
    wire.open(configOptions=[MODES, FAST])
    params = {"sessionId": "s", "configId": "x", "value": value}
    asked = wire.ask(
        "session/set_config_option", {**params, "type": "boolean"} if value is True else params
    )
    assert asked["params"] == {**params, "type": kind}
    answer, *_ = wire.agent_answers(asked["id"], {"configOptions": [MODES, FAST]})
    assert [each["id"] for each in answer["result"]["configOptions"]] == ["m", "fast"]


def test_an_option_of_the_mode_also_changes_the_mode() -> None:
    wire = Wire(opened=False)
    wire.open(configOptions=[MODES])
    options, mode = wire.shows("config_option_update", configOptions=[in_mode("plan")])
    assert options["configOptions"][0]["id"] == "m"
    assert mode == {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
    asked = wire.ask(
        "session/set_config_option", {"sessionId": "s", "configId": "m", "value": "ask"}
    )
    _, told = wire.agent_answers(asked["id"], {"configOptions": [in_mode("ask")]})
    assert updates([told]) == [{"sessionUpdate": "current_mode_update", "currentModeId": "ask"}]


# --- turns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        *((each, each) for each in ("end_turn", "max_tokens", "max_turn_requests", "refusal")),
        ("cancelled", "cancelled"),
        (None, "end_turn"),
    ],
)
def test_a_prompt_is_answered_when_the_agent_is_idle(told: str | None, reason: str) -> None:
    wire = Wire()
    prompt = wire.prompt()
    assert wire.state("running") == []
    assert wire.state("requires_action") == []
    assert wire.state("_odd") == []
    members = {"stopReason": told} if told else {}
    assert wire.state("idle", **members) == [result(prompt, stopReason=reason)]
    assert wire.state("idle", **members) == []


def test_an_idle_before_the_prompt_was_put_in_is_of_earlier_work() -> None:
    wire = Wire()
    prompt = wire.prompt(inserted=False)
    assert wire.state("idle", stopReason="end_turn") == []
    assert wire.agent_answers(prompt, {"messageId": "u"}) == []
    assert wire.state("idle", stopReason="refusal") == [result(prompt, stopReason="refusal")]


@pytest.mark.hazard("X3")
@pytest.mark.parametrize("kind", ["user_message", "user_message_chunk"])
def test_an_idle_behind_the_prompt_s_words_ends_its_turn_though_the_answer_is_late(
    kind: str,
) -> None:
    wire = Wire()
    prompt = wire.prompt(inserted=False)
    wire.says(kind, messageId="u", content=[TEXT] if kind == "user_message" else TEXT)
    wire.state("running")
    assert wire.state("idle", stopReason="refusal") == []
    done = [result(prompt, stopReason="refusal")]
    assert wire.agent_answers(prompt, {"messageId": "u"}) == done


@pytest.mark.parametrize("more", ["running", "another message"])
def test_an_idle_behind_other_words_or_before_more_work_does_not_end_the_turn(more: str) -> None:
    wire = Wire()
    prompt = wire.prompt(inserted=False)
    wire.says("user_message", messageId="u", content=[TEXT])
    wire.state("idle", stopReason="end_turn")
    if more == "running":
        wire.state("running")
    else:
        wire.says("user_message", messageId="v", content=[TEXT])
    assert wire.agent_answers(prompt, {"messageId": "u"}) == []
    assert wire.state("idle", stopReason="refusal") == [result(prompt, stopReason="refusal")]


def test_a_turn_that_ends_with_an_error_has_it_for_its_answer() -> None:
    wire = Wire()
    prompt = wire.prompt()
    error = {"code": -32603, "message": "over", "data": {"x": 1}}
    (answer,) = wire.state("idle", stopReason="error", error=error)
    assert (answer["id"], answer["error"]) == (prompt, error)
    prompt = wire.prompt()
    (answer,) = wire.state("idle", stopReason="error")
    assert answer["error"]["code"] == -32603


def test_a_prompt_that_was_not_put_in_is_cancelled_or_has_the_agent_s_error() -> None:
    wire = Wire()
    prompt = wire.prompt(inserted=False)
    assert wire.agent_fails(prompt, -32800) == [result(prompt, stopReason="cancelled")]
    prompt = wire.prompt(inserted=False)
    (answer,) = wire.agent_fails(prompt, -32000, "log in")
    assert answer["error"] == {"code": -32000, "message": "log in"}
    prompt = wire.prompt()
    assert wire.state("idle") == [result(prompt, stopReason="end_turn")]


def test_a_second_prompt_while_one_runs_is_refused() -> None:
    wire = Wire()
    wire.prompt()
    out = wire.request("session/prompt", {"sessionId": "s", "prompt": [TEXT]})
    (refusal,) = out.to_bridge
    assert not out.to_agent
    assert isinstance(refusal, dict)
    assert refusal["error"]["code"] == -32600


def test_an_answer_that_can_not_be_read_leaves_no_turn() -> None:
    wire = Wire()
    prompt = wire.prompt(inserted=False)
    spoiled = Malformed(prompt, RpcError(-32600, "too long"), answer=True)
    assert wire.end.take_from_agent(spoiled).to_bridge == [spoiled]
    wire.end.take_from_bridge(
        {"jsonrpc": "2.0", "id": 50, "method": "session/prompt", "params": {"sessionId": "s"}}
    )
    assert wire.state("idle") == []


@pytest.mark.parametrize("odd", [{"id": None}, {}])
def test_an_answer_without_an_id_is_a_spoiled_one_of_the_only_open_request(odd: Json) -> None:
    wire = Wire()
    prompt = wire.prompt(inserted=False)
    answer: Json = {"jsonrpc": "2.0", **odd, "result": {"messageId": "u1"}}
    (told,) = wire.end.take_from_agent(answer).to_bridge
    assert isinstance(told, Malformed)
    assert (told.id, told.answer) == (prompt, True)
    assert wire.end.take_from_agent(answer).to_bridge == []


@pytest.mark.parametrize("late", [False, True])
def test_the_agent_s_echo_of_a_prompt_of_ours_is_dropped(late: bool) -> None:
    wire = Wire()
    prompt = wire.prompt(inserted=late)
    assert wire.says("user_message", messageId="u1", content=[TEXT]) == []
    assert wire.says("user_message_chunk", messageId="u1", content=TEXT) == []
    if not late:
        wire.agent_answers(prompt, {"messageId": "u1"})
    wire.state("idle")
    assert wire.says("user_message", messageId="u1", content=[TEXT]) == []
    assert wire.shows("user_message", messageId="u2", content=[TEXT])


def test_a_stop_is_told_and_the_turn_ends_when_the_agent_is_idle() -> None:
    wire = Wire()
    prompt = wire.prompt()
    (told,) = wire.notify("session/cancel", {"sessionId": "s"})
    assert (told["method"], told["params"]) == ("session/cancel", {"sessionId": "s"})
    assert wire.state("idle") == [result(prompt, stopReason="cancelled")]


def test_a_stop_ends_what_runs_in_the_background_too_and_its_answer_comes_behind_that() -> None:
    wire = Wire()
    prompt = wire.prompt()
    wire.says("tool_call_update", toolCallId="c", title="C", capabilities={"cancel": {}})
    wire.says("tool_call_update", toolCallId="d", title="D")
    wire.says("terminal_update", terminalId="t", command="sleep 9", capabilities={"cancel": {}})
    listed = [
        {"type": "tool_call", "toolCallId": "c"},
        {"type": "tool_call", "toolCallId": "d"},
        {"type": "terminal", "terminalId": "t"},
        {"type": "_odd"},
    ]
    wire.state("running", background=listed)
    told, call, terminal = wire.notify("session/cancel", {"sessionId": "s"})
    assert told["method"] == "session/cancel"
    assert (call["method"], call["params"]["toolCallId"]) == ("tool_call/cancel", "c")
    assert (terminal["method"], terminal["params"]["terminalId"]) == ("terminal/cancel", "t")
    assert wire.agent_answers(call["id"], {}) == []
    assert wire.state("idle", stopReason="cancelled", background=listed) == []
    ended = wire.says("tool_call_update", toolCallId="c", status="cancelled")
    assert updates(ended)[0]["status"] == "failed"
    assert wire.agent_answers(terminal["id"], {}) == []
    told_last = wire.says("terminal_update", terminalId="t", exitStatus={"signal": "SIGTERM"})
    assert told_last == [result(prompt, stopReason="cancelled")]


def test_background_work_that_can_not_be_ended_holds_no_answer_back() -> None:
    wire = Wire()
    prompt = wire.prompt()
    wire.says("terminal_update", terminalId="t", capabilities={"cancel": {}})
    wire.state("running", background=[{"type": "terminal", "terminalId": "t"}])
    _, terminal = wire.notify("session/cancel", {"sessionId": "s"})
    assert wire.state("idle", stopReason="cancelled") == []
    assert wire.agent_fails(terminal["id"], -32602) == [result(prompt, stopReason="cancelled")]


def test_a_stop_of_what_the_agent_does_without_a_prompt_ends_the_background_too() -> None:
    wire = Wire()
    wire.says("tool_call_update", toolCallId="c", title="C", capabilities={"cancel": {}})
    wire.state("idle", background=[{"type": "tool_call", "toolCallId": "c"}])
    _, call = wire.notify("session/cancel", {"sessionId": "s"})
    assert wire.agent_answers(call["id"], {}) == []
    assert wire.state("idle", background=[]) == []
    (stop,) = wire.notify("session/cancel", {"sessionId": "s"})
    assert stop["method"] == "session/cancel"


def test_a_request_is_withdrawn_by_its_id_and_a_prompt_that_runs_by_a_stop() -> None:
    wire = Wire()
    asked = wire.ask("session/list", {})
    (told,) = wire.notify("$/cancel_request", {"requestId": asked["id"]})
    assert told["params"] == {"requestId": asked["id"]}
    waiting = wire.prompt(inserted=False)
    (told,) = wire.notify("$/cancel_request", {"requestId": waiting})
    assert told["method"] == "$/cancel_request"
    wire.agent_answers(waiting, {"messageId": "u"})
    (told,) = wire.notify("$/cancel_request", {"requestId": waiting})
    assert (told["method"], told["params"]) == ("session/cancel", {"sessionId": "s"})


# --- everything else ------------------------------------------------------------------------------


def test_a_request_for_a_client_s_files_is_refused() -> None:
    end = AgentEnd()
    asked = {"jsonrpc": "2.0", "id": 1, "method": "fs/read_text_file", "params": {"path": "/x"}}
    out = end.take_from_agent(asked)
    assert not out.to_bridge
    assert out.to_agent[0]["error"]["code"] == -32601


def test_extensions_pass_unread_in_both_directions() -> None:
    end = AgentEnd()
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "_x/y", "params": {"a": None}},
        {"jsonrpc": "2.0", "method": "_x/z", "params": [1]},
        {"jsonrpc": "2.0", "id": 1, "result": {"b": 2}},
    ):
        assert end.take_from_bridge(message).to_agent == [message]
        assert end.take_from_agent(message).to_bridge == [message]


def test_a_second_answer_to_a_prompt_is_no_answer() -> None:
    wire = Wire()
    prompt = wire.prompt()
    again = {"jsonrpc": "2.0", "id": prompt, "result": {"messageId": "again"}}
    assert wire.end.take_from_agent(again).to_bridge == []
    assert wire.state("idle") == [result(prompt, stopReason="end_turn")]
