"""The judge of the other tests: it lets a right conversation pass, and refuses what is broken."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients_not_ours.conftest import HERE, Tape
from tests.clients_not_ours.judge import Connection, Refused, Schema, Side

INITIALIZE = {"protocolVersion": 1, "clientCapabilities": {}}
TEXT = {"type": "text", "text": "hi"}
PROMPT = {"sessionId": "s", "prompt": [TEXT]}
LOAD = {"sessionId": "s", "cwd": "/w", "mcpServers": []}
CHUNK = {"sessionUpdate": "agent_message_chunk", "content": TEXT}
ALLOW = {"optionId": "a", "name": "Allow", "kind": "allow_once"}
TOOL_CALL = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "t"}
PERMISSION = {"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": [ALLOW]}
#: a conversation in which each message counts.
RIGHT: list[tuple[Side, dict[str, Any]]] = [
    ("client", {"id": 0, "method": "initialize", "params": INITIALIZE}),
    ("agent", {"id": 0, "result": {"protocolVersion": 1}}),
    ("client", {"id": 1, "method": "session/new", "params": {"cwd": "/w", "mcpServers": []}}),
    ("agent", {"id": 1, "result": {"sessionId": "s"}}),
    ("client", {"id": 2, "method": "session/prompt", "params": PROMPT}),
    ("agent", {"method": "session/update", "params": {"sessionId": "s", "update": CHUNK}}),
    ("agent", {"id": 2, "method": "session/request_permission", "params": PERMISSION}),
    ("client", {"method": "session/cancel", "params": {"sessionId": "s"}}),
    ("agent", {"method": "$/cancel_request", "params": {"requestId": 2}}),
    ("client", {"id": 2, "result": {"outcome": {"outcome": "cancelled"}}}),
    ("agent", {"id": 2, "result": {"stopReason": "cancelled"}}),
    ("client", {"id": "x", "method": "session/load", "params": LOAD}),
    ("agent", {"id": "x", "error": {"code": -32002, "message": "unknown session"}}),
    ("client", {"id": 3, "method": "_a/b", "params": 1}),
    ("agent", {"id": 3, "result": None}),
]
#: what can be broken: an extension's body is its own affair, and either side may send it.
BODIES = [n for n, (_, message) in enumerate(RIGHT) if message.get("id") != 3]
SIDES = [n for n, (_, message) in enumerate(RIGHT) if message.get("method", "s")[0] not in "_$"]


def judge(schema: Schema, conversation: list[tuple[Side, dict[str, Any]]]) -> Connection:
    connection = Connection(schema)
    for sender, message in conversation:
        connection.judge(sender, json.dumps({"jsonrpc": "2.0", **message}))
    return connection


def test_a_right_conversation_passes(schema: Schema) -> None:
    connection = judge(schema, RIGHT)
    assert not connection.waiting
    assert len(connection.methods) == 9


@pytest.mark.parametrize("at", SIDES)
def test_a_message_from_the_wrong_side_is_refused(schema: Schema, at: int) -> None:
    sender, message = RIGHT[at]
    other: Side = "agent" if sender == "client" else "client"
    with pytest.raises(Refused):
        judge(schema, [*RIGHT[:at], (other, message)])


@pytest.mark.parametrize("at", BODIES)
def test_a_broken_body_is_refused(schema: Schema, at: int) -> None:
    sender, message = RIGHT[at]
    (body,) = {"params", "result", "error"} & message.keys()
    with pytest.raises(Refused, match="not a"):
        judge(schema, [*RIGHT[:at], (sender, {**message, body: {"unknown": 1}})])


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ({"sessionUpdate": "no_such_update", "content": TEXT}, "update"),
        ({"sessionUpdate": "agent_message_chunk", "content": {"type": "text"}}, "update"),
        ({"sessionUpdate": "tool_call", "toolCallId": 7, "title": "t"}, "update"),
        ({**CHUNK, "extra": 1}, "Unevaluated"),
        ({**CHUNK, "content": {**TEXT, "extra": 1}}, "Unevaluated"),
        (
            {**TOOL_CALL, "content": [{"type": "diff", "path": "/f", "newText": "", "a": 1}]},
            "Unevaluated",
        ),
        ({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 1}}, "update"),
    ],
)
def test_a_broken_update_is_refused(schema: Schema, update: Any, why: str) -> None:
    params = {"sessionId": "s", "update": update}
    with pytest.raises(Refused, match=why):
        judge(schema, [("agent", {"method": "session/update", "params": params})])


BROKEN_LINES = [
    "",
    "hello",
    "[]",
    "{}",
    '{"jsonrpc":"2.0"}',
    '{"id":0,"method":"initialize","params":{"protocolVersion":1}}',
    '{"jsonrpc":"2.0","id":0,"method":"no/such","params":{}}',
    '{"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":1}}',
    '{"jsonrpc":"2.0","id":null,"method":"initialize","params":{"protocolVersion":1}}',
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1},"result":{}}',
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1},"extra":1}',
    '{"jsonrpc":"2.0","id":9,"result":{}}',
    '{"jsonrpc":"2.0","id":"1","result":{}}',
    '{"jsonrpc":"2.0","id":1}',
    '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
    '{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}',
]


@pytest.mark.parametrize("line", BROKEN_LINES)
def test_a_line_that_is_no_message_is_refused(schema: Schema, line: str) -> None:
    connection = Connection(schema)
    connection.judge("client", '{"jsonrpc":"2.0","id":1,"method":"_a","params":{}}')
    sender: Side = "agent" if '"method"' not in line else "client"
    with pytest.raises(Refused):
        connection.judge(sender, line)


def test_a_second_answer_is_refused(schema: Schema) -> None:
    with pytest.raises(Refused, match="answer to nothing"):
        judge(schema, [*RIGHT[:2], RIGHT[1]])


def test_every_request_of_the_schema_has_a_response(schema: Schema) -> None:
    asked = {(m, schema.definitions[m, k][1]) for m, k in schema.definitions if k == "Request"}
    answers = {(m, schema.definitions[m, k][1]) for m, k in schema.definitions if k == "Response"}
    assert asked == answers
    assert {("session/prompt", "agent"), ("fs/read_text_file", "client")} <= asked
    assert ("session/update", "Notification") in schema.definitions


def test_a_broken_line_on_a_tape_is_a_complaint(tmp_path: Path, schema: Schema) -> None:
    tape = Tape(tmp_path / "tape", schema)
    lines = [(sender, json.dumps({"jsonrpc": "2.0", **message})) for sender, message in RIGHT]
    entries: list[dict[str, Any]] = [{"tee": 1, "agent": 2}]
    entries += [{"tee": 1, "from": sender, "line": line} for sender, line in lines]
    entries += [{"tee": 3, "from": sender, "line": line} for sender, line in lines[1:2]]
    tape.path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (complaint,) = tape.judge().complaints
    assert "answer to nothing" in complaint
    assert tape.bridges() == [2]


def test_what_is_installed_is_what_the_lock_says(modules: Path) -> None:
    locked = json.loads((HERE / "package-lock.json").read_text("utf-8"))["packages"]
    installed = json.loads((modules / ".package-lock.json").read_text("utf-8"))["packages"]
    assert {"node_modules/acpx", "node_modules/@agentclientprotocol/sdk"} <= installed.keys()
    for name, package in installed.items():
        assert package["integrity"] == locked[name]["integrity"]
        assert "resolved" not in locked[name]
