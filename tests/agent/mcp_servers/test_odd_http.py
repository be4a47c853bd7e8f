"""MCP servers over HTTP whose answers have odd frames: each call ends, with what was readable."""

import gzip
import itertools
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mcp_servers import server
from agent.mcp_servers.http_body import HttpBody
from agent.mcp_servers.messages import OpenRequests
from agent.tools import ToolError
from tests.agent.mcp_servers.raw_http import CLOSE, Asked, RawHttp, answered, body, events
from tests.agent.mcp_servers.support import serving
from tests.agent.mcp_servers.test_odd_servers import ANSWERS, NAMELESS

EVENTS = "text/event-stream"
NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a call that hangs fails the test by its own sentence."""
    monkeypatch.setattr(server, "CALL_SECONDS", 8)
    monkeypatch.setattr(server, "START_SECONDS", 15)


def rpc(id: int, text: str = "well", indent: int | None = None) -> bytes:
    result = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}, indent=indent).encode()


def error(id: Any) -> bytes:
    found = {"code": -32000, "message": "too hot"}
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": found}).encode()


def sent(data: bytes, kind: str = "application/json", status: int = 200, **fields: Any) -> bytes:
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\n{named}\r\n".encode() + data


def packed(data: bytes, coding: str, kind: str = "application/json") -> bytes:
    return sent(data, kind, content_encoding=coding, content_length=len(data))


def chunked(data: bytes, kind: str = EVENTS, end: bytes = b"") -> bytes:
    """`end`: nothing, so that the body stays open, or what follows."""
    return sent(b"%x\r\n%s\r\n" % (len(data), data) + end, kind, transfer_encoding="chunked")


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def spread(id: int) -> bytes:
    return b"".join(b"data: " + line + b"\n" for line in rpc(id, indent=1).split(b"\n"))


Answer = Callable[[int], bytes]
#: answers that have the result
READ: dict[str, Answer] = {
    "JSON as events": lambda i: body(rpc(i), EVENTS),
    "JSON over several lines as events": lambda i: body(rpc(i, indent=1), EVENTS),
    "JSON over several lines": lambda i: body(rpc(i, indent=1)),
    "a charset": lambda i: body(rpc(i), "application/json; charset=utf-8"),
    "UTF-16": lambda i: body(rpc(i).decode().encode("utf-16"), "application/json; charset=utf-16"),
    "UTF-16 without a mark": lambda i: body(rpc(i).decode().encode("utf-16-le")),
    "capitals in the type": lambda i: body(event(rpc(i)), "Text/Event-Stream; Charset=UTF-8"),
    "202 with the answer": lambda i: body(rpc(i), status=202),
    "202 with events": lambda i: body(event(rpc(i)), EVENTS, status=202),
    "201": lambda i: body(rpc(i), status=201),
    "chunks": lambda i: chunked(rpc(i), "application/json", b"0\r\n\r\n"),
    "gzip": lambda i: packed(gzip.compress(rpc(i)), "gzip"),
    "gzip of events": lambda i: packed(gzip.compress(event(rpc(i))), "gzip", EVENTS),
    "deflate": lambda i: packed(zlib.compress(rpc(i)), "deflate"),
    "an unknown coding": lambda i: packed(rpc(i), "utf-8"),
    "comments, ids and retry": lambda i: events(
        b": hi\n\nretry: 10\nid: 1\n\n: x\nid: 2\nevent: message\n" + event(rpc(i))
    ),
    "an empty event with an id": lambda i: events(b"id: 1\nretry: 10\ndata:\n\n" + event(rpc(i))),
    "data over several lines": lambda i: events(spread(i) + b"\n"),
    "no blank line between": lambda i: events(b"data: " + NOTE + b"\n" + event(rpc(i))),
    "lone carriage returns": lambda i: events(b"event: message\rdata: " + rpc(i) + b"\r\r"),
    "no space": lambda i: events(b"data:" + rpc(i) + b"\n\n"),
    "an unknown name": lambda i: events(b"event: result\n" + event(rpc(i))),
    "words before it": lambda i: events(event(b"ok") + event(b"[DONE]") + event(rpc(i))),
    "a batch": lambda i: body(b"[" + NOTE + b"," + rpc(i) + b"]"),
    "a batch over several lines": lambda i: body(b"[\n" + NOTE + b",\n" + rpc(i) + b"\n]\n"),
    "a batch as an event": lambda i: events(event(b"[" + NOTE + b"," + rpc(i) + b"]")),
    "another's answer in the batch": lambda i: body(b"[" + rpc(99, "no") + b"," + rpc(i) + b"]"),
    "another's answer before it": lambda i: events(event(rpc(i - 1, "no")) + event(rpc(i))),
    "a line for each message": lambda i: body(
        NOTE + b"\n" + rpc(i) + b"\n", "application/x-ndjson"
    ),
    "whole, then cut": lambda i: chunked(event(rpc(i)), end=CLOSE),
    "whole without a blank line, then cut": lambda i: chunked(b"data: " + rpc(i), end=CLOSE),
    "too long a length": lambda i: sent(rpc(i), content_length=9999) + CLOSE,
    "events that stay open": lambda i: chunked(event(rpc(i))),
    "an event without a blank line": lambda i: chunked(b"data: " + rpc(i) + b"\n"),
    "an event without a line end": lambda i: chunked(b"data: " + rpc(i)),
    "data over several lines that stay open": lambda i: chunked(spread(i)),
    "JSON as events that stays open": lambda i: chunked(rpc(i) + b"\n"),
    "JSON that stays open": lambda i: chunked(rpc(i), "application/json"),
    "JSON over several lines that stays open": lambda i: chunked(rpc(i, indent=1), "text/plain"),
    "a length that never comes": lambda i: sent(rpc(i), content_length=9999),
    "another session": lambda i: body(rpc(i), session="another"),
    "a NUL": lambda i: body(rpc(i) + b"\0"),
    "words behind it": lambda i: body(rpc(i) + b"\nok"),
    "words before the JSON": lambda i: body(b"\n\nok " + rpc(i)),
    "a guard against scripts": lambda i: body(b")]}',\n" + rpc(i)),
}
#: answers that have none, and the words of the error
FAILS: dict[str, tuple[Answer, str]] = {
    "202 and nothing": (lambda i: body(b"", status=202), "could not take"),
    "204": (lambda i: sent(b"", status=204), "could not take"),
    "gzip that is none": (lambda i: packed(rpc(i), "gzip"), "could not take"),
    "events of gzip that are none": (lambda i: packed(event(rpc(i)), "gzip", EVENTS), "could not"),
    "a page": (lambda i: body(b"<html>Log in</html>", "text/html"), "could not take"),
    "500 with an error": (lambda i: body(error(i), status=500), "refused the call: too hot"),
    "400 with an error for nobody": (
        lambda i: body(error(None), status=400),
        "refused the call: too hot",
    ),
    "200 with an error of the SDK's code": (lambda i: body(error(i)), "refused the call: too hot"),
    "500 with words": (lambda i: body(b"too hot", "text/plain", 500), "refused the call: too hot"),
    "500 with a detail": (lambda i: body(b'{"detail":"too hot"}', status=500), "call: too hot"),
    "500 with a page": (lambda i: body(b"<html>x</html>", "text/html", 500), "could not take"),
    "401": (lambda i: body(b"", status=401), "could not take"),
    "a redirect in a circle": (
        lambda i: sent(b"", status=307, location="/mcp", content_length=0),
        "could not take",
    ),
    "a redirect that loses the message": (
        lambda i: sent(b"", status=302, location="/mcp", content_length=0),
        "could not take",
    ),
    "JSON that was cut": (
        lambda i: chunked(rpc(i)[:40], "application/json", CLOSE),
        "could not take",
    ),
    "an event that was cut": (lambda i: chunked(b"data: " + rpc(i)[:40], end=CLOSE), "could not"),
    "a chunk without a size": (
        lambda i: sent(b"zz\r\n" + rpc(i) + CLOSE, EVENTS, transfer_encoding="chunked"),
        "could not take",
    ),
    "no event": (lambda i: events(b""), "could not take"),
    "comments": (lambda i: events(b": x\n\n: y\n\n"), "could not take"),
    "another message alone": (lambda i: events(event(NOTE)), "could not take"),
    "an event with words": (lambda i: events(b"event: error\n" + event(b"too hot")), "could not"),
    "single quotes": (lambda i: events(event(b"{'id': %d, 'result': {}}" % i)), "could not take"),
}


@pytest.mark.parametrize("form", READ.values(), ids=READ.keys())
async def test_an_answer_is_read_in_any_frame(tmp_path: Path, form: Answer) -> None:
    def answer(asked: Asked) -> bytes:
        return form(asked.id) if asked.method == "tools/call" else answered(asked)

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        assert (await stand.call("echo")).text == "well"
        assert (await stand.call("echo")).text == "well"
    assert stand.said == []


@pytest.mark.parametrize(("form", "words"), FAILS.values(), ids=FAILS.keys())
async def test_what_is_no_answer_ends_its_call_alone_and_names_the_server(
    tmp_path: Path, form: Answer, words: str
) -> None:
    odd = True

    def answer(asked: Asked) -> bytes:
        return form(asked.id) if odd and asked.method == "tools/call" else answered(asked)

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        with pytest.raises(ToolError) as raised:
            await stand.call("echo")
        assert words in str(raised.value)
        assert "the MCP server odd" in str(raised.value).replace("The", "the")
        odd = False
        assert (await stand.call("echo")).text == "well"
    assert stand.said == []


@pytest.mark.parametrize("said", [b"HTTP/1.1 OK\r\n\r\n", b"{}\n" + CLOSE, CLOSE])
async def test_a_connection_without_an_answer_ends_its_call_and_the_server(
    tmp_path: Path, said: bytes
) -> None:
    def answer(asked: Asked) -> bytes:
        return said if asked.method == "tools/call" else answered(asked)

    async with RawHttp(answer) as http, serving(tmp_path, http.spec("odd")) as stand:
        with pytest.raises(ToolError, match="MCP server odd"):
            await stand.call("echo")
        with anyio.fail_after(5):
            await stand.until_said(1)
    assert stand.said[0].startswith("The MCP server odd is gone")


# the transport of old, in which answers come on another stream


def begun(data: bytes, kind: bytes = b"content-type: text/event-stream\r\n") -> bytes:
    head = b"HTTP/1.1 200 OK\r\n" + kind + b"transfer-encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n" % (len(data), data)


ENDPOINT = b"event: endpoint\ndata: /mcp\n\n"
STREAMS = {
    "a mark": begun(b"\xef\xbb\xbf" + ENDPOINT),
    "lone carriage returns": begun(ENDPOINT.replace(b"\n", b"\r")),
    "no spaces": begun(ENDPOINT.replace(b": ", b":")),
    "comments before it": begun(b": hi\n\nretry: 5\n\n" + ENDPOINT),
    "the name behind the data": begun(b"data: /mcp\nevent: endpoint\n\n"),
    "no name": begun(b"data: /mcp\n\n"),
    "no blank line": begun(b"event: endpoint\ndata: /mcp\n"),
    "no type": begun(ENDPOINT, b""),
    "another type": begun(ENDPOINT, b"content-type: application/json\r\n"),
}


@pytest.mark.parametrize("start", STREAMS.values(), ids=STREAMS.keys())
async def test_the_stream_of_the_transport_of_old_may_begin_oddly(
    tmp_path: Path, start: bytes
) -> None:
    async with RawHttp(answered, sse=True) as http:
        http.start = start
        async with serving(tmp_path, http.spec("odd")) as stand:
            assert (await stand.call("echo")).text == "well"
        assert stand.said == []


@pytest.mark.parametrize("start", [body(b"<html>", "text/html"), body(b"", "", status=204)])
async def test_what_is_no_stream_is_told(tmp_path: Path, start: bytes) -> None:
    async with RawHttp(answered, sse=True) as http:
        http.start = start
        async with serving(tmp_path, http.spec("odd")) as stand:
            assert stand.names == []
    assert stand.said == ["The MCP server odd can't be used: what it answers is not MCP."]


@pytest.mark.parametrize("said", ["the id as a list", "the id in other words", "no quotes"])
async def test_an_answer_on_another_stream_ends_its_call(tmp_path: Path, said: str) -> None:
    raw, text, _ = ANSWERS[said]

    def answer(asked: Asked) -> bytes:
        if asked.method != "tools/call":
            return answered(asked)
        return body(raw.replace("$ID", str(asked.id)).encode())

    async with RawHttp(answer, sse=True) as http, serving(tmp_path, http.spec("odd")) as stand:
        if text is not None:
            assert (await stand.call("echo")).text == text
            return
        with pytest.raises(ToolError, match="The MCP server odd could not take the call"):
            await stand.call("echo")


@pytest.mark.parametrize("said", NAMELESS.values(), ids=NAMELESS.keys())
async def test_an_answer_without_an_id_ends_the_one_open_request_there_too(
    tmp_path: Path, said: str
) -> None:
    def answer(asked: Asked) -> bytes:
        return body(said.encode()) if asked.method == "tools/call" else answered(asked)

    async with RawHttp(answer, sse=True) as http, serving(tmp_path, http.spec("odd")) as stand:
        with pytest.raises(ToolError, match="The MCP server odd could not take the call"):
            await stand.call("echo")
    assert stand.said == []


# any frames, and any bytes


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """The text of an answer, and the chunks of a body with it."""
    text = draw(st.text(max_size=8))
    answer = rpc(7, text, draw(st.sampled_from([None, 1])))
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    data = b""
    for message in [*draw(st.lists(st.just(NOTE), max_size=2)), answer]:
        lines = [b"data: " + line for line in message.split(b"\n")]
        data += draw(
            st.sampled_from([b"", b": x" + end, b"retry: 3" + end, b"event: message" + end])
        )
        data += end.join(lines) + draw(st.sampled_from([end, end + end]))
    at = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return text, [data[a:b] for a, b in itertools.pairwise([0, *at, len(data)])]


def answers_in(chunks: list[bytes]) -> list[Any]:
    requests = OpenRequests()
    requests.ask({"id": 7, "method": "tools/call"})
    reading = HttpBody(7, 10_000, requests)
    said = b"".join([*map(reading.read, chunks), reading.end()])
    datas = [line[6:] for line in said.split(b"\n") if line.startswith(b"data: {")]
    messages = [json.loads(data) for data in datas]
    return [message for message in messages if "method" not in message]


@given(bodies())
def test_an_answer_is_found_in_any_frame(case: tuple[str, list[bytes]]) -> None:
    text, chunks = case
    (found,) = answers_in(chunks)
    assert found["id"] == 7
    assert found["result"]["content"][0]["text"] == text


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_end_the_request(chunks: list[bytes]) -> None:
    has_id = any(b"id:" in chunk for chunk in [b"".join(chunks)])
    assert [found["id"] for found in answers_in(chunks)][:1] == [7] or has_id
