"""MCP servers whose words are odd: each is a public report, rebuilt, or of its kind."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.mcp_servers import server
from agent.tools import ToolError
from tests.agent.mcp_servers.raw_http import Asked, RawHttp, answered, body, events
from tests.agent.mcp_servers.support import SUPPORT, serving, stdio

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a call that hangs fails the test by its own sentence."""
    monkeypatch.setattr(server, "CALL_SECONDS", 8)
    monkeypatch.setattr(server, "START_SECONDS", 15)


def saying(folder: Path, name: str = "odd", **said: str) -> dict[str, Any]:
    """`said`: by a method's name with `_` for `/`, the bytes that answer it."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps({method.replace("_", "/"): text for method, text in said.items()}))
    script = str(SUPPORT / "saying_mcp_server.py")
    return stdio(name, sys.executable, "-I", "-S", script, str(file))


def result(value: Any) -> str:
    return f'{{"jsonrpc": "2.0", "id": $ID, "result": {json.dumps(value)}}}\n'


GOOD = {"name": "good", "inputSchema": {"type": "object"}}

#: what an odd tool is, and whether it can be used
TOOLS: dict[str, tuple[Any, bool]] = {
    "no schema": ({"name": "odd"}, True),
    "null as a schema": ({"name": "odd", "inputSchema": None}, True),
    "a choice": ({"name": "odd", "inputSchema": {"anyOf": [{"type": "object"}]}}, True),
    "a list as type": ({"name": "odd", "inputSchema": {"type": ["object", "null"]}}, True),
    "another type": ({"name": "odd", "inputSchema": {"type": "string"}}, True),
    "a text as a schema": ({"name": "odd", "inputSchema": "{}"}, True),
    "true as a schema": ({"name": "odd", "inputSchema": True}, True),
    "properties as a list": ({"name": "odd", "inputSchema": {"properties": []}}, True),
    "another name of the member": ({"name": "odd", "input_schema": {"x": 1}}, True),
    "no name": ({"inputSchema": {"type": "object"}}, False),
    "null": (None, False),
    "a text": ("odd", False),
}


@pytest.mark.parametrize(("tool", "used"), TOOLS.values(), ids=TOOLS.keys())
async def test_an_odd_tool_takes_no_other_with_it_and_is_named(
    tmp_path: Path, tool: Any, used: bool
) -> None:
    spec = saying(tmp_path, tools_list=result({"tools": [tool, GOOD]}))
    async with serving(tmp_path, spec) as stand:
        assert "mcp__odd__good" in stand.names
        assert len(stand.names) == 1 + used
        assert (await stand.call("good")).text == "well"
    (told,) = stand.said
    name = tool["name"] if used else "number 1"
    assert f"`{name}`" in told
    assert told.startswith("The MCP server odd ")


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "odd", "inputSchema": {"type": "object"}, "outputSchema": "x"},
        {"name": "odd", "inputSchema": {"type": "object"}, "annotations": []},
        {"name": "odd", "inputSchema": {"type": "object"}, "icons": 7, "execution": "x"},
        {"name": "odd", "inputSchema": {"type": "object"}, "description": None, "title": 5},
        {"name": "odd", "inputSchema": {"type": "object"}, "_meta": "x"},
    ],
)
async def test_members_that_are_not_used_may_be_anything(tmp_path: Path, odd: Any) -> None:
    spec = saying(tmp_path, tools_list=result({"tools": [odd, GOOD], "nextCursor": None}))
    async with serving(tmp_path, spec) as stand:
        assert stand.names == ["mcp__odd__odd", "mcp__odd__good"]
    assert stand.said == []


PAGES: dict[str, Any] = {
    "an object of tools": {"tools": {"good": {"inputSchema": {"type": "object"}}}},
    "a list without an object around it": [GOOD],
    "an empty cursor": {"tools": [GOOD], "nextCursor": ""},
    "more than MCP has": {"tools": [GOOD], "x": 1, "_meta": None},
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
async def test_a_page_of_another_form_is_read(tmp_path: Path, page: Any) -> None:
    async with serving(tmp_path, saying(tmp_path, tools_list=result(page))) as stand:
        assert stand.names == ["mcp__odd__good"]
    assert stand.said == []


async def test_a_page_that_fails_takes_none_of_those_before_it(tmp_path: Path) -> None:
    def answer(asked: Asked) -> bytes:
        if asked.method != "tools/list":
            return answered(asked)
        if sum(each.method == "tools/list" for each in http.asked) > 1:
            error = {"code": -32603, "message": "the cursor is no good"}
            return body(json.dumps({"jsonrpc": "2.0", "id": asked.id, "error": error}).encode())
        page = {"tools": [GOOD], "nextCursor": "more"}
        return body(json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": page}).encode())

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        assert stand.names == ["mcp__odd__good"]
    assert "`page 2`" in stand.said[0]


GREETINGS: dict[str, Any] = {
    "no serverInfo": {"protocolVersion": "2025-06-18", "capabilities": {}},
    "null as serverInfo": {"protocolVersion": "2025-06-18", "serverInfo": None},
    "a text as serverInfo": {"protocolVersion": "2025-06-18", "serverInfo": "odd"},
    "no version of it": {"protocolVersion": "2025-06-18", "serverInfo": {"name": "odd"}},
    "odd capabilities": {"protocolVersion": "2025-06-18", "capabilities": {"tools": True}},
    "a version of old": {"protocolVersion": "2024-10-07", "capabilities": {}, "serverInfo": {}},
    "a version of later": {"protocolVersion": "2025-12-24", "capabilities": {}, "serverInfo": {}},
    "no version": {"capabilities": {}, "serverInfo": {"name": "odd", "version": "1"}},
}


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS.keys())
async def test_a_server_that_greets_oddly_can_be_used(tmp_path: Path, greeting: Any) -> None:
    async with serving(tmp_path, saying(tmp_path, initialize=result(greeting))) as stand:
        assert (await stand.call("echo")).text == "well"
    assert stand.said == []


WELL = '{"content": [{"type": "text", "text": "well"}]}'
#: the bytes of an answer, and the text of the result, or the words of the error
ANSWERS: dict[str, tuple[str, str | None, str]] = {
    "half of a surrogate pair": (
        '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"w\\ud83d"}]}}\n',
        "w\ufffd",
        "",
    ),
    "a byte that is not UTF-8": (
        '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"w\xe9"}]}}\n',
        "w\ufffd",
        "",
    ),
    "a text as error": ('{"jsonrpc":"2.0","id":$ID,"error":"overloaded"}\n', None, "overloaded"),
    "an error without a code": (
        '{"jsonrpc":"2.0","id":$ID,"error":{"message":"overloaded"}}\n',
        None,
        "overloaded",
    ),
    "a text as a code": (
        '{"jsonrpc":"2.0","id":$ID,"error":{"code":"E1","message":"overloaded"}}\n',
        None,
        "overloaded",
    ),
    "an error without a message": (
        '{"jsonrpc":"2.0","id":$ID,"error":{"code":7,"data":{"message":"overloaded"}}}\n',
        None,
        "overloaded",
    ),
    "an error beside a result": (
        f'{{"jsonrpc":"2.0","id":$ID,"error":{{"message":"overloaded"}},"result":{WELL}}}\n',
        None,
        "overloaded",
    ),
    "null as an error beside a result": (
        f'{{"jsonrpc":"2.0","id":$ID,"error":null,"result":{WELL}}}\n',
        "well",
        "",
    ),
    "no jsonrpc": (f'{{"id":$ID,"result":{WELL}}}\n', "well", ""),
    "jsonrpc as a number": (f'{{"jsonrpc":2.0,"id":$ID,"result":{WELL}}}\n', "well", ""),
    "the id as a text": (f'{{"jsonrpc":"2.0","id":"$ID","result":{WELL}}}\n', "well", ""),
    "the id as a decimal": (f'{{"jsonrpc":"2.0","id":$ID.0,"result":{WELL}}}\n', "well", ""),
    "the id as a list": (f'{{"jsonrpc":"2.0","id":[$ID],"result":{WELL}}}\n', "well", ""),
    "the id as a decimal in a text": (
        f'{{"jsonrpc":"2.0","id":"$ID.0","result":{WELL}}}\n',
        "well",
        "",
    ),
    "the id in other words": (f'{{"jsonrpc":"2.0","id":"req-$ID","result":{WELL}}}\n', "well", ""),
    "over several lines": (
        f'{{\n  "jsonrpc": "2.0",\n  "id": $ID,\n\n  "result":\n{WELL}\n}}\n',
        "well",
        "",
    ),
    "over several lines, the result first": (
        '{\r\n"result": {\r\n"content": [\r\n"well"\r\n]\r\n},\r\n"id": $ID\r\n}\r\n',
        "well",
        "",
    ),
    "a list over several lines": (
        f'[\n{{"jsonrpc":"2.0","method":"notifications/message","params":{{}}}},\n'
        f'{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}\n]\n',
        "well",
        "",
    ),
    "several lines that were cut": (
        '{\n  "jsonrpc": "2.0",\n  "id": $ID,\n  "result": {\n',
        None,
        "could not take",
    ),
    "the newline before it": (f'\n{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}', "well", ""),
    "several lines, the last without its newline": (
        f'{{\n  "jsonrpc": "2.0",\n  "id": $ID,\n  "result": {WELL}\n}}',
        "well",
        "",
    ),
    "a length before it": (
        f'Content-Length: 7\r\n\r\n{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}',
        "well",
        "",
    ),
    "words before it on its line": (
        f'INFO [1] {{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}\n',
        "well",
        "",
    ),
    "colours around it": (
        f'\x1b[32m{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}\x1b[0m\n',
        "well",
        "",
    ),
    "a bracket on a line before it": (
        f'see [\n[1\n{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}\n',
        "well",
        "",
    ),
    "single quotes": (
        "{'jsonrpc': '2.0', 'id': $ID, 'result': {'content': [], 'isError': False}}\n",
        None,
        "could not take",
    ),
    "single quotes, the id last": (
        "{'result': {'content': [{'id': 77}]}, 'id': $ID}\n",
        None,
        "could not take",
    ),
    "no quotes": ('{jsonrpc: "2.0", id: $ID, result: {}}\n', None, "could not take"),
    "a comma too many": ('{"jsonrpc":"2.0","id":$ID,"result":{},}\n', None, "could not take"),
    "null as id": ('{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}\n', None, "no"),
    "a list around it": (f'[{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}]\n', "well", ""),
    "a word before it on the line of its own": (
        f'Starting\n{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}\n',
        "well",
        "",
    ),
    "two on one line": (
        '{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
        f'{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}\n',
        "well",
        "",
    ),
    "cut": ('{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"ty\n', None, "could not take"),
    "cut before its own end": ('{"result":{"x":1},"id":$ID\n', None, "could not take"),
    "neither result nor error": ('{"jsonrpc":"2.0","id":$ID}\n', None, "can't be read"),
    "null as a result": ('{"jsonrpc":"2.0","id":$ID,"result":null}\n', "The tool returned", ""),
    "a text as a result": ('{"jsonrpc":"2.0","id":$ID,"result":"well"}\n', "well", ""),
    "a list as a result": (
        '{"jsonrpc":"2.0","id":$ID,"result":[{"type":"text","text":"well"}]}\n',
        "well",
        "",
    ),
    "a text as content": (result({"content": "well"}), "well", ""),
    "one block as content": (result({"content": {"type": "text", "text": "well"}}), "well", ""),
    "texts as blocks": (result({"content": ["well"]}), "well", ""),
    "a block without a type": (result({"content": [{"text": "well"}]}), "well", ""),
    "a block of tomorrow": (
        result({"content": [{"type": "x"}, {"type": "text", "text": "well"}]}),
        "[content of a kind that is not known here]\nwell",
        "",
    ),
    "odd annotations": (
        result({"content": [{"type": "text", "text": "well", "annotations": "x", "_meta": []}]}),
        "well",
        "",
    ),
    "the result of old": (result({"toolResult": {"n": 1}}), '{"n": 1}', ""),
    "true as a text in isError": (
        result({"content": [{"type": "text", "text": "broken"}], "isError": "true"}),
        None,
        "broken",
    ),
    "false as a text in isError": (
        result({"content": [{"type": "text", "text": "well"}], "isError": "false"}),
        "well",
        "",
    ),
    "null in isError": (
        result({"content": [{"type": "text", "text": "well"}], "isError": None}),
        "well",
        "",
    ),
    "an error in the result": (result({"error": "broken"}), None, "broken"),
    "a wish for more": (result({"resultType": "input_required"}), None, "asks for an answer"),
}


@pytest.mark.parametrize(("said", "text", "error"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_whose_id_can_be_read_ends_its_call(
    tmp_path: Path, said: str, text: str | None, error: str
) -> None:
    async with serving(tmp_path, saying(tmp_path, tools_call=said)) as stand:
        if text is None:
            with pytest.raises(ToolError) as raised:
                await stand.call("echo")
            assert error in str(raised.value)
        else:
            assert (await stand.call("echo")).text.startswith(text)
    assert stand.said == []


#: answers without an id that can be read
NAMELESS = {
    "no id": f'{{"jsonrpc":"2.0","result":{WELL}}}\n',
    "null as id": f'{{"jsonrpc":"2.0","id":null,"result":{WELL}}}\n',
    "an empty list as id": f'{{"jsonrpc":"2.0","id":[],"result":{WELL}}}\n',
    "an id that nobody asked with": f'{{"jsonrpc":"2.0","id":9999,"result":{WELL}}}\n',
    "cut before the id": '{"jsonrpc":"2.0","resu\n',
    "single quotes": "{'jsonrpc': '2.0', 'result': {}}\n",
}


@pytest.mark.parametrize("said", NAMELESS.values(), ids=NAMELESS.keys())
async def test_an_answer_without_an_id_ends_the_one_open_request_and_not_as_a_success(
    tmp_path: Path, said: str
) -> None:
    async with serving(tmp_path, saying(tmp_path, tools_call=said)) as stand:
        with pytest.raises(ToolError, match="The MCP server odd could not take the call"):
            await stand.call("echo")
    assert stand.said == []


NOISE = [
    "{broken\n",
    "{ name: 'x',\n  id: $ID\n}\n",
    '{"level":"info","msg":"called","id":"$IDabc"}\n',
    '{"level":"error","error":"no disk","msg":"called"}\n',
    "[WARN] half a list [\n",
    "[\n",
    "[1, 2]\n",
    '"$ID"\n',
    "$ID\n",
]


@pytest.mark.parametrize("noise", NOISE)
async def test_what_is_no_answer_ends_no_request(tmp_path: Path, noise: str) -> None:
    said = f'{noise}{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}\n'
    async with serving(tmp_path, saying(tmp_path, tools_call=said)) as stand:
        assert (await stand.call("echo")).text == "well"


async def test_an_error_that_answers_a_notification_ends_no_request(tmp_path: Path) -> None:
    said = '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}\n'
    async with serving(tmp_path, saying(tmp_path, notifications_initialized=said)) as stand:
        assert (await stand.call("echo")).text == "well"
    assert stand.said == []


async def test_utf_16_is_read_as_far_as_it_is_ascii(tmp_path: Path) -> None:
    said = f'{{"jsonrpc":"2.0","id":$ID,"result":{WELL}}}\r\n'.encode("utf-16-le")
    text = said.replace("$ID".encode("utf-16-le"), b"$ID").decode("latin-1")
    spec = saying(tmp_path, start="\xff\xfe", tools_call=text)
    async with serving(tmp_path, spec) as stand:
        assert (await stand.call("echo")).text == "well"


async def test_a_byte_order_mark_before_the_first_word_is_left_out(tmp_path: Path) -> None:
    mark = "\xef\xbb\xbf"
    async with serving(tmp_path, saying(tmp_path, start=mark)) as stand:
        assert (await stand.call("echo")).text == "well"


# over HTTP


@pytest.mark.parametrize("kind", ["body", "events"])
@pytest.mark.parametrize(("said", "text", "error"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_over_http_as_well(
    tmp_path: Path, kind: str, said: str, text: str | None, error: str
) -> None:
    def answer(asked: Asked) -> bytes:
        if asked.method != "tools/call":
            return answered(asked)
        raw = said.removeprefix("Starting\n").replace("$ID", str(asked.id)).encode("latin-1")
        lines = raw.strip().replace(b"\n", b"\ndata: ")
        return body(raw) if kind == "body" else events(b"data: " + lines + b"\n\n")

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        if text is None:
            with pytest.raises(ToolError) as raised:
                await stand.call("echo")
            assert error in str(raised.value)
        else:
            assert (await stand.call("echo")).text.startswith(text)


BODIES: dict[str, Any] = {
    "another type of content": lambda raw: body(raw, "text/plain"),
    "no type of content": lambda raw: body(raw, ""),
    "a byte order mark": lambda raw: body(b"\xef\xbb\xbf" + raw),
    "events with a mark": lambda raw: events(b"\xef\xbb\xbfdata: " + raw + b"\n\n"),
    "events with another name": lambda raw: events(b"event: response\ndata: " + raw + b"\n\n"),
    "events without an end": lambda raw: events(b"data: " + raw),
    "events under another type": lambda raw: body(b"data: " + raw + b"\n\n", "application/json"),
    "events on carriage returns": lambda raw: events(b"data: " + raw + b"\r\n\r\n"),
    "an event that is no message before it": lambda raw: events(
        b'data: {"jsonrpc":"2.0","method":"notifications/x","params":{\n\ndata: ' + raw + b"\n\n"
    ),
}


@pytest.mark.parametrize("form", BODIES.values(), ids=BODIES.keys())
async def test_the_frame_of_an_answer_may_be_odd(tmp_path: Path, form: Any) -> None:
    def answer(asked: Asked) -> bytes:
        found = {"jsonrpc": "2.0", "id": asked.id, "result": json.loads(WELL)}
        return form(json.dumps(found).encode()) if asked.method == "tools/call" else answered(asked)

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        assert (await stand.call("echo")).text == "well"


async def test_an_empty_body_ends_the_call(tmp_path: Path) -> None:
    def answer(asked: Asked) -> bytes:
        return body(b"") if asked.method == "tools/call" else answered(asked)

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        with pytest.raises(ToolError, match="could not take the call"):
            await stand.call("echo")
        assert stand.said == []


EXPIRIES = {
    "as it is specified": body(b"", status=404),
    "with an error": body(b'{"jsonrpc":"2.0","error":{"code":-32001,"message":"x"}}', status=404),
    "gone": body(b"gone", "text/plain", status=410),
    "a bad request": body(
        b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID'
        b' provided"},"id":null}',
        status=400,
    ),
}


@pytest.mark.parametrize("expired", EXPIRIES.values(), ids=EXPIRIES.keys())
async def test_an_expired_session_is_initialized_once_and_the_call_sent_again(
    tmp_path: Path, expired: bytes
) -> None:
    sessions = ["first"]

    def answer(asked: Asked) -> bytes:
        if asked.method == "initialize":
            return answered(asked, session=sessions[-1])
        return answered(asked) if asked.session == sessions[-1] else expired

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        for _ in range(2):
            assert (await stand.call("echo")).text == "well"
            before = len(http.asked)
            sessions.append(f"session {len(sessions)}")
            assert (await stand.call("echo")).text == "well"
            told = [asked.method for asked in http.asked[before:]]
            assert told.count("initialize") == 1
            assert told.count("tools/call") == 2
            assert told.index("initialize") < told.index("notifications/initialized")
            assert http.asked[before + told.index("initialize")].session is None
    assert stand.said == []


async def test_a_session_that_can_not_be_begun_again_ends_the_call(tmp_path: Path) -> None:
    over = False

    def answer(asked: Asked) -> bytes:
        if over:
            return body(b"", status=404)
        return answered(asked, session="first" if asked.method == "initialize" else "")

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        over = True
        with pytest.raises(ToolError, match="could not take the call"):
            await stand.call("echo")
        assert [asked.method for asked in http.asked].count("initialize") == 2


async def test_a_tool_that_speaks_of_sessions_is_not_called_again(tmp_path: Path) -> None:
    def answer(asked: Asked) -> bytes:
        if asked.method != "tools/call":
            return answered(asked, session="first")
        error = {"code": -32001, "message": "Session not found"}
        return body(json.dumps({"jsonrpc": "2.0", "id": asked.id, "error": error}).encode())

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        with pytest.raises(ToolError, match="Session not found"):
            await stand.call("echo")
        assert [asked.method for asked in http.asked].count("tools/call") == 1


# the transport of old, in which answers come on another stream


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_request_that_is_refused_on_its_own_connection_ends_its_call_alone(
    tmp_path: Path, status: int
) -> None:
    refuses = True

    def answer(asked: Asked) -> bytes:
        if asked.method == "tools/call" and refuses:
            return body(b"no", "text/plain", status=status)
        return answered(asked)

    async with RawHttp(answer, sse=True) as http, serving(tmp_path, http.spec("odd")) as stand:
        with pytest.raises(ToolError, match="could not take the call"):
            await stand.call("echo")
        refuses = False
        assert (await stand.call("echo")).text == "well"
    assert stand.said == []


@pytest.mark.parametrize("said", ["a text as error", "no jsonrpc", "half of a surrogate pair"])
async def test_odd_answers_end_their_calls_there_too(tmp_path: Path, said: str) -> None:
    raw, text, error = ANSWERS[said]

    def answer(asked: Asked) -> bytes:
        if asked.method != "tools/call":
            return answered(asked)
        return body(raw.replace("$ID", str(asked.id)).encode("latin-1"))

    async with RawHttp(answer, sse=True) as http, serving(tmp_path, http.spec("odd")) as stand:
        if text is None:
            with pytest.raises(ToolError, match=error):
                await stand.call("echo")
        else:
            assert (await stand.call("echo")).text == text
