"""Recorded words of MCP servers, spoiled in any way: what was readable is used, nothing hangs."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc_message_adapter, methods
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from agent.content.images import is_image
from agent.mcp_servers.framing import Framing
from agent.mcp_servers.heard import Heard, _greeting
from agent.mcp_servers.messages import SAID, OpenRequests, read_messages
from agent.mcp_servers.pages import read_page
from agent.mcp_servers.results import tool_result
from agent.tools import ToolError
from tests.support.mutations import spoiled

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)

SEARCH = {
    "name": "search",
    "title": "Search",
    "description": "Searches the notes.",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "The words."},
            "limit": {"type": ["integer", "null"], "minimum": 1, "default": 10},
            "kinds": {"type": "array", "items": {"enum": ["note", "task"]}},
            "where": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
        },
        "required": ["query"],
        "$defs": {"Place": {"type": "object", "properties": {"path": {"type": "string"}}}},
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"found": {"type": "array"}}},
    "annotations": {"readOnlyHint": True},
    "_meta": {"x": 1},
}
ECHO = {"name": "echo", "inputSchema": {"type": "object", "properties": {}}}
PAGES = [{"tools": [SEARCH, ECHO], "nextCursor": "more"}, {"tools": [ECHO]}]

RESULTS = [
    {
        "content": [
            {"type": "text", "text": "found é→", "annotations": {"audience": ["user"]}},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {
                "type": "resource_link",
                "uri": "file:///a",
                "name": "a",
                "description": "A file.",
                "mimeType": "text/plain",
                "size": 3,
            },
            {"type": "resource", "resource": {"uri": "memo://x", "text": "words of it"}},
            {
                "type": "resource",
                "resource": {"uri": "memo://y", "blob": PNG, "mimeType": "image/png"},
            },
        ],
        "structuredContent": {"found": [1, 2]},
        "isError": False,
        "_meta": {},
    },
    {"content": [{"type": "text", "text": "no such note"}], "isError": True},
    {"content": [{"type": "text", "text": "well"}]},
]
GREETINGS = [
    {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "serverInfo": {"name": "notes", "title": "Notes", "version": "1.2"},
        "instructions": "Search first.",
    }
]


def answer(result: Any, id: Any = 7) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


LINES = [
    *(answer(result) for result in (*RESULTS, *PAGES, *GREETINGS)),
    {"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "Invalid", "data": {"x": 1}}},
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}},
    {"jsonrpc": "2.0", "id": 9, "method": "ping"},
]


def whole(tool: Any) -> bool:
    return tool in (SEARCH, ECHO)


@given(spoiled(PAGES))
def test_a_spoiled_page_of_tools_keeps_every_tool_that_is_whole(page: Any) -> None:
    read = read_page(page)
    for tool in read.tools:
        assert isinstance(tool["name"], str)
        assert tool["name"]
        schema = tool["inputSchema"]
        assert schema["type"] == "object"
        assert isinstance(schema.get("properties", {}), dict)
        json.dumps(schema)
    tools = page.get("tools")
    entries = tools if isinstance(tools, list) else []
    assert {t["name"] for t in entries if whole(t)} <= {tool["name"] for tool in read.tools}
    assert all(
        {**tool, "outputSchema": 0, "annotations": 0, "_meta": 0}
        == {**SEARCH, "outputSchema": 0, "annotations": 0, "_meta": 0}
        for tool in read.tools
        if SEARCH in entries
        and tool["name"] == "search"
        and entries.count(SEARCH) == 1
        and sum(isinstance(e, dict) and e.get("name") == "search" for e in entries) == 1
    )
    list(read.oddities())


@given(spoiled(RESULTS))
def test_a_spoiled_result_keeps_its_texts_and_no_failure_becomes_a_success(result: Any) -> None:
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") == "text"
        and type(block.get("text")) is str
    ]
    try:
        found, failed = tool_result(result), ""
    except ToolError as error:
        failed = str(error)
    if failed:
        assert result.get("isError") not in (None, False)
        assert all(text in failed for text in texts)
        return
    assert not result.get("isError") or str(result["isError"]).lower() in ("false", "0", "")
    assert all(text in found.text for text in texts)
    assert all(map(is_image, found.images))
    json.dumps([found.text, found.content])


@given(spoiled(GREETINGS), st.sampled_from(KNOWN_PROTOCOL_VERSIONS))
def test_a_spoiled_greeting_is_taken_unless_its_version_makes_no_sense(
    greeting: Any, version: str
) -> None:
    found = _greeting(greeting)
    if isinstance(greeting.get("protocolVersion", ""), str):
        methods.validate_server_result("initialize", "2025-11-25", found)


@given(spoiled(PAGES), st.sampled_from(KNOWN_PROTOCOL_VERSIONS))
def test_what_the_sdk_is_given_in_the_place_of_a_page_is_what_it_takes(
    page: Any, version: str
) -> None:
    heard = Heard.__new__(Heard)
    try:
        methods.validate_server_result("tools/list", version, heard._list(page))
    except KeyError:  # the version has other names
        pytest.skip(version)


@st.composite
def lines(draw: st.DrawFn) -> tuple[Any, bytes]:
    """A message, spoiled, and its bytes, of which a part may be spoiled, too."""
    message = draw(spoiled(LINES))
    raw = json.dumps(message, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    at = draw(st.integers(0, len(raw)))
    match draw(st.sampled_from(["whole", "whole", "cut", "byte", "twice", "mark"])):
        case "cut":
            return None, raw[:at]
        case "byte":
            return None, raw[:at] + b"\xff" + raw[at + 1 :]
        case "twice":
            return message, raw + raw
        case "mark":
            return message, b"\xef\xbb\xbf" + raw
    return message, raw


@given(lines())
def test_a_spoiled_line_becomes_messages_that_the_sdk_takes_and_ends_its_request(
    line: tuple[Any, bytes],
) -> None:
    message, raw = line
    found = read_messages(raw)
    for each in found:
        if "method" in each or each["id"] is not None:
            jsonrpc_message_adapter.validate_python(each, by_name=False)
    if isinstance(message, dict) and type(message.get("id")) is int and "method" not in message:
        (first, *_) = found
        assert first["id"] == message["id"]
        if message.get("error"):
            assert "error" in first, "an error is no result"


@given(lines(), st.integers(0, 10**6))
def test_whatever_answers_a_request_over_http_ends_it(line: tuple[Any, bytes], asked: int) -> None:
    message, raw = line
    found = read_messages(raw, asked)
    for each in found:
        jsonrpc_message_adapter.validate_python(each, by_name=False)
    if (
        isinstance(message, dict)
        and "method" not in message
        and ("id" in message or "result" in message)
    ):
        assert not message.get("id") or found[0]["id"] == asked


@st.composite
def written(draw: st.DrawFn) -> tuple[list[Any], list[bytes]]:
    """Messages, and the reads in which they come: each in a form of its own, cut anywhere."""
    messages = draw(st.lists(st.sampled_from(LINES), max_size=4))
    data = draw(st.sampled_from([b"", b"Starting [1/2]\n", b"\r\n", b"{ a: [\n"]))
    for message in messages:
        indent = draw(st.sampled_from([None, 1, 4]))
        text = json.dumps(message, ensure_ascii=draw(st.booleans()), indent=indent)
        text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\n\n"])))
        before, after = draw(st.sampled_from([("", "\n"), ("\n", ""), ("", "\r\n"), (" ", " \n")]))
        data += f"{before}{text}{after}".encode()
    at = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    cuts = [0, *at, len(data)]
    return messages, [data[a:b] for a, b in itertools.pairwise(cuts)]


def as_read(message: Any) -> Any:
    """Returns a whole message as our readers return it, which mark an error as the server's."""
    if "error" not in message:
        return message
    return {**message, "error": {**message["error"], "data": {SAID: True}}}


def texts_of(reads: list[bytes]) -> list[bytes]:
    framing = Framing(10_000)
    return [*(text for read in reads for text in framing.read(read)), *framing.end()]


@given(written())
def test_messages_are_found_however_they_are_written(case: tuple[list[Any], list[bytes]]) -> None:
    messages, reads = case
    found = [each for text in texts_of(reads) for each in read_messages(text)]
    assert found == [as_read(message) for message in messages]


@given(st.lists(st.binary(max_size=60), max_size=8), st.sampled_from(LINES))
def test_no_bytes_before_it_take_a_whole_message_away(reads: list[bytes], message: Any) -> None:
    if any(b'"' in read for read in reads):
        return  # they may begin a string
    line = b"\n" + json.dumps(message).encode() + b"\n"
    found = [each for text in texts_of([*reads, line]) for each in read_messages(text)]
    assert as_read(message) in found


@given(st.lists(spoiled(LINES), max_size=6), st.lists(st.integers(0, 9), max_size=3))
def test_an_answer_ends_an_open_request_or_none(answers: list[Any], asked: list[int]) -> None:
    requests = OpenRequests()
    for id in asked:
        requests.ask({"id": id, "method": "x"})
    ended = []
    for each in answers:
        for message in read_messages(json.dumps(each)):
            matched = requests.matched(message)
            if matched is not None and "method" not in matched:
                assert matched["id"] in asked
                assert "error" in matched or matched["id"] == message["id"] or message["id"]
                ended.append(matched["id"])
    whole = {each["id"] for each in answers if each in LINES and "result" in each}
    assert whole & {*asked} <= {*ended}


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_none(raw: bytes) -> None:
    for asked in (None, 5):
        for each in read_messages(raw, asked):
            try:
                jsonrpc_message_adapter.validate_python(each, by_name=False)
            except ValidationError:
                assert each.get("id", 0) is None
