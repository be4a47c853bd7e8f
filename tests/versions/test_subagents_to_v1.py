"""Subagents of an agent of version 2, in the form of version 1."""

from typing import Any

from acp_bridge.core.protocol import Json
from tests.versions.agent_wire import TEXT, Wire, texts, updates

CHOICES = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]


def announced(wire: Wire, child: str = "kid", of: str = "s", **more: Any) -> list[Json]:
    return wire.says("subagent_update", of=of, sessionId=child, **more)


def stands(wire: Wire, state: str, child: str = "kid", **more: Any) -> list[Json]:
    return wire.says("state_update", of=child, state=state, **more)


def sessions(messages: list[Json]) -> list[str]:
    return [each["params"]["sessionId"] for each in messages]


def test_where_a_subagent_stands_is_told_on_the_session_above_it() -> None:
    wire = Wire()
    (told,) = announced(wire, title="Look", capabilities={"cancel": {}}, cwd="/w")
    assert told["params"]["sessionId"] == "s"
    assert told["params"]["update"] == {
        "sessionUpdate": "subagent_update",
        "sessionId": "kid",
        "title": "Look",
        "capabilities": {"cancel": {}},
        "cwd": "/w",
    }
    announced(wire, "grandkid", of="kid")
    for child, above in (("kid", "s"), ("grandkid", "kid")):
        for state in ("running", "requires_action"):
            (told,) = stands(wire, state, child, background=[])
            assert told["params"]["sessionId"] == above
            assert told["params"]["update"]["state"] == {"state": state}
        (told,) = stands(wire, "idle", child, stopReason="refusal")
        assert told["params"]["update"] == {
            "sessionUpdate": "subagent_update",
            "sessionId": child,
            "state": {"state": "idle", "stopReason": "refusal"},
        }


def test_a_state_that_is_repeated_on_the_session_above_is_taken_there_too() -> None:
    wire = Wire()
    update = {"sessionUpdate": "subagent_update", "sessionId": "kid", "state": {"state": "running"}}
    message = {"jsonrpc": "2.0", "method": "session/update"}  # as before Preview: not judged
    for count in (2, 1):
        out = wire.end.take_from_agent({**message, "params": {"sessionId": "s", "update": update}})
        told = [each for each in out.to_bridge if isinstance(each, dict)]
        assert ["state" in each for each in updates(told)] == [False, True][-count:]
        assert {each["sessionId"] for each in updates(told)} == {"kid"}


def test_what_a_subagent_does_is_translated_apart_from_the_session_above_it() -> None:
    wire = Wire()
    announced(wire)
    for session in ("s", "kid"):
        (told,) = wire.says("agent_message", of=session, messageId="m", content=[TEXT])
        assert (told["params"]["sessionId"], texts(updates([told]))) == (session, "hi")
        (told,) = wire.says("tool_call_update", of=session, toolCallId="t", title="T")
        assert (sessions([told]), updates([told])[0]["sessionUpdate"]) == ([session], "tool_call")
    (told,) = wire.says("user_message", of="kid", messageId="u", content=[TEXT])
    assert updates([told])[0]["sessionUpdate"] == "user_message_chunk"


def test_all_that_a_subagent_has_said_is_shown_before_its_end() -> None:
    wire = Wire()
    announced(wire)
    piece = {"type": "content", "content": {"type": "text", "text": "x" * 3000}}
    for _ in range(3):
        wire.says("tool_call_content_chunk", of="kid", toolCallId="t", content=piece)
    waits = {"type": "content", "content": {"type": "text", "text": "the end"}}
    assert wire.says("tool_call_content_chunk", of="kid", toolCallId="t", content=waits) == []
    shown, ended = stands(wire, "idle", stopReason="end_turn")
    assert "the end" in str(shown)
    assert ended["params"]["update"]["state"]["state"] == "idle"


def test_the_end_of_a_subagent_s_work_is_not_that_of_the_prompt() -> None:
    wire = Wire()
    announced(wire)
    prompt = wire.prompt()
    assert all("method" in each for each in stands(wire, "idle", stopReason="end_turn"))
    (answer,) = wire.state("idle", stopReason="end_turn")
    assert answer["id"] == prompt


def test_a_session_that_was_neither_opened_nor_announced_is_not_heard() -> None:
    wire = Wire()
    assert wire.says("agent_message", of="kid", messageId="m", content=[TEXT]) == []
    assert stands(wire, "running") == []
    assert announced(wire, "grandkid", of="kid") == []
    form = {"mode": "form", "message": "M", "requestedSchema": {"type": "object", "properties": {}}}
    for method, asked in (
        ("session/request_permission", {"title": "T", "options": CHOICES}),
        ("elicitation/create", form),
    ):
        out = wire.agent_asks(method, {"sessionId": "kid", **asked})
        assert out.to_bridge == []
        assert out.to_agent[0]["error"]["code"] == -32002
    assert announced(wire, "s", title="The session itself") == []


def test_what_a_subagent_asks_is_asked_under_its_id() -> None:
    wire = Wire()
    announced(wire)
    wire.says("tool_call_update", of="kid", toolCallId="t", title="rm x", kind="execute")
    subject = {"type": "tool_call", "toolCall": {"toolCallId": "t"}}
    asked = {"sessionId": "kid", "title": "May I?", "subject": subject, "options": CHOICES}
    (told,) = wire.agent_asks("session/request_permission", asked).to_bridge
    assert isinstance(told, dict)
    assert told["params"]["sessionId"] == "kid"
    assert told["params"]["toolCall"]["title"] == "rm x"


def test_what_sessions_say_to_each_other_passes() -> None:
    wire = Wire()
    announced(wire)
    message = {"messageId": "x", "senderSessionId": "s", "recipientSessionId": "kid"}
    (told,) = wire.shows("session_message", **message, content=[TEXT])
    assert told == {"sessionUpdate": "session_message", **message, "content": [TEXT]}
    assert wire.shows("session_message", messageId="x", senderMessageId="y")
    (told,) = wire.shows("session_message_chunk", messageId="x", content=TEXT)
    assert told == {"sessionUpdate": "session_message_chunk", "messageId": "x", "content": TEXT}


def test_a_tool_call_links_to_a_session_once_there_is_a_subagent() -> None:
    wire = Wire()
    link = {"type": "session", "sessionId": "kid"}
    (told,) = wire.shows("tool_call_update", toolCallId="t", title="T", content=[link])
    assert told["content"] == []
    assert wire.says("tool_call_content_chunk", toolCallId="t", content=link) == []
    assert wire.says("agent_message_chunk", messageId="m", content=link) == []
    announced(wire)
    (told,) = wire.shows("tool_call_update", toolCallId="t", content=[link])
    assert told["content"] == [link]


def test_a_stop_of_a_subagent_reaches_the_agent_under_its_id() -> None:
    wire = Wire()
    announced(wire, capabilities={"cancel": {}})
    (told,) = wire.notify("session/cancel", {"sessionId": "kid"})
    assert (told["method"], told["params"]) == ("session/cancel", {"sessionId": "kid"})


def test_the_subagents_of_a_session_that_is_closed_are_not_heard_any_more() -> None:
    wire = Wire()
    announced(wire)
    announced(wire, "grandkid", of="kid")
    asked = wire.ask("session/close", {"sessionId": "s"})
    wire.agent_answers(asked["id"], {})
    for session in ("s", "kid", "grandkid"):
        assert wire.says("agent_message", of=session, messageId="m", content=[TEXT]) == []


def test_a_session_whose_close_was_refused_is_heard_as_before() -> None:
    wire = Wire()
    announced(wire)
    asked = wire.ask("session/close", {"sessionId": "s"})
    wire.agent_fails(asked["id"], -32603)
    assert wire.says("agent_message", of="kid", messageId="m", content=[TEXT])


def test_a_replay_repeats_what_a_subagent_did_from_its_beginning() -> None:
    wire = Wire()
    announced(wire)
    wire.says("tool_call_update", of="kid", toolCallId="t", title="T")
    asked = wire.ask("session/load", {"sessionId": "s", "cwd": "/w", "mcpServers": []})
    assert announced(wire)
    (told,) = wire.says("tool_call_update", of="kid", toolCallId="t", title="T")
    assert updates([told])[0]["sessionUpdate"] == "tool_call"
    assert wire.says("replay_complete", of="kid") == []
    assert wire.agent_answers(asked["id"], {})


def test_what_a_subagent_has_in_the_background_is_work_of_its_session() -> None:
    wire = Wire()
    announced(wire)
    assert not wire.end.activity("s").background
    stands(wire, "idle", background=[{"type": "terminal", "terminalId": "x"}])
    assert wire.end.activity("s").background
    stands(wire, "idle", background=[])
    assert not wire.end.activity("s").background
