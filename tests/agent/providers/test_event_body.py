"""The frame of a streamed answer, as servers spoil it: every word in it is told once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model import Part
from agent.providers.chat_form import ChatForm
from agent.providers.event_body import EventBody, Unreadable
from agent.providers.failure import Failure
from agent.providers.retry import Retry
from tests.agent.providers.recordings import CHAT
from tests.agent.providers.support import ANTHROPIC, BOTH, OPENAI, Open, answer, fails
from tests.agent.support import Tokens
from tests.support.model_replies import Body, Event, Gate, Raw, Text
from tests.support.model_server import ModelServer


def chunk(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, **more}]}


def lines(value: Any, before: str = "data: ", end: str = "\n") -> bytes:
    """An event whose JSON has a line for each member."""
    return "".join(
        f"{before}{line}{end}" for line in json.dumps(value, indent=1).split("\n")
    ).encode()


ONE, TWO = chunk("We"), chunk("ll.", finish_reason="stop")
END = b"data: [DONE]\n\n"
FRAMES: dict[str, bytes] = {
    "JSON over several `data:` lines": lines(ONE) + b"\n" + lines(TWO) + b"\n" + END,
    "no blank line between such events": lines(ONE) + lines(TWO) + END,
    "JSON over several lines, of which one has `data:`": b"data: " + lines(ONE, "") + b"\ndata: "
    + lines(TWO, "") + b"\n" + END,
    "JSON over several lines, none with `data:`": lines(ONE, "") + lines(TWO, ""),
    "both line ends": lines(ONE, end="\r\n") + b"\r\n" + lines(TWO, end="\r\n") + END,
    "carriage returns alone": lines(ONE, end="\r") + b"\r" + lines(TWO, end="\r") + b"\r" + END,
    "a line of its own for each event": f"{json.dumps(ONE)}\n{json.dumps(TWO)}\n".encode(),
    "fields around the data": b"id: 1\nretry: 10\nevent: x\n" + lines(ONE) + b"id: 2\n\n: hm\n"
    + lines(TWO) + b"\n" + END,
    "an empty `data:` before it": b"data:\n\ndata: \n" + lines(ONE) + b"\n" + lines(TWO) + END,
    "a byte order mark": b"\xef\xbb\xbf" + lines(ONE) + b"\n" + lines(TWO) + END,
    "no line end behind the last event": lines(ONE) + b"\n" + lines(TWO)[:-1],
    "words before the first event": b"warming up\n" + lines(ONE) + b"\n" + lines(TWO) + END,
}  # fmt: skip


@pytest.mark.parametrize("body", FRAMES.values(), ids=FRAMES.keys())
async def test_an_event_is_read_in_any_frame(
    server: ModelServer, open_model: Open, body: bytes
) -> None:
    server.say(Body(body))
    tokens = Tokens()
    assert (await answer(open_model(OPENAI), tokens=tokens)).text == "Well."
    assert [
        token for token in tokens.told if isinstance(token, Part) and token.kind != "text"
    ] == []


async def test_an_event_is_told_with_its_last_line(server: ModelServer, open_model: Open) -> None:
    server.say(Raw(lines(ONE)), Gate("two"), Raw(lines(TWO)))

    async def open_gate(token: Any) -> None:
        if isinstance(token, Part) and token.text == "We":
            server.open("two")

    assert (await answer(open_model(OPENAI), tokens=open_gate)).text == "Well."  # type: ignore[arg-type]


async def test_an_event_that_was_cut_takes_none_of_the_lines_behind_it(
    server: ModelServer, open_model: Open
) -> None:
    for cut in (b'data: {"choices": [{"delta"\n', b'data: {"choices": [{"delta": {"content": "x\n'):
        server.say(Raw(cut), Raw(f"data: {json.dumps(ONE)}\n".encode()), Raw(b"\n"), Event(TWO))
        assert (await answer(open_model(OPENAI))).text == "Well."


ERRORS = {
    "llama.cpp's line": b'error: {"code":500,"message":"it is too hot","type":"server_error"}\n\n',
    "a line with words": b"error: it is too hot\n\n",
    "an event called so": b'event: error\ndata: {"message":"it is too hot"}\n\n',
    "words in an event called so": b"event: error\ndata: it is too hot\n\n",
    "over several lines": b'event: error\ndata: {\ndata:  "message": "it is too hot"\ndata: }\n\n',
}


@BOTH
@pytest.mark.parametrize("said", ERRORS.values(), ids=ERRORS.keys())
async def test_an_error_is_told_in_the_server_s_words_also_behind_a_text(
    server: ModelServer, open_model: Open, name: str, said: bytes
) -> None:
    server.say(Text("Hel"), Raw(said))
    assert 'The server says: "it is too hot"' in str(await fails(open_model(name)))
    server.say(Body(said))
    error = await fails(open_model(name, retry=Retry(attempts=1)))
    assert 'The server says: "it is too hot"' in str(error)


# halves of characters


def raw(piece: bytes) -> Raw:
    return Raw(b'data: {"choices":[{"delta":{"content":"' + piece + b'"}}]}\n\n')


SMILE = "\U0001f600"
HALVES: dict[str, tuple[list[bytes], str]] = {
    "a surrogate pair": ([rb"a\ud83d", rb"\ude00b"], f"a{SMILE}b"),
    "a pair whose second half looks like a byte": ([rb"\ud83d", rb"\udcc0"], "\U0001f4c0"),
    "bytes": ([b"a\xf0\x9f", b"\x98\x80b"], f"a{SMILE}b"),
    "a byte an event": ([b"\xf0", b"\x9f", b"\x98", b"\x80"], SMILE),
    "two bytes of a letter": ([b"\xc3", b"\xa9"], "é"),
    "an empty piece between them": ([rb"\ud83d", b"", rb"\ude00"], SMILE),
    "half of one and no other": ([rb"a\ud83d", b"b"], "a\ufffdb"),
    "half of one at the end": ([b"a", rb"\ud83d"], "a\ufffd"),
    "a byte at the end": ([b"a", b"\xc3"], "a\ufffd"),
    "the second half alone": ([rb"\ude00a"], "\ufffda"),
    "two first halves": ([rb"\ud83d", rb"\ud83d\ude00"], f"\ufffd{SMILE}"),
}


@pytest.mark.parametrize(("pieces", "text"), HALVES.values(), ids=HALVES.keys())
async def test_a_character_whose_halves_come_apart_is_one(
    server: ModelServer, open_model: Open, pieces: list[bytes], text: str
) -> None:
    server.say(*map(raw, pieces))
    tokens = Tokens()
    assert (await answer(open_model(OPENAI), tokens=tokens)).text == text
    assert "".join(part.text for part in tokens.told if isinstance(part, Part)) == text


async def test_also_in_a_thought_a_call_and_in_anthropic_s_form(
    server: ModelServer, open_model: Open
) -> None:
    def delta(data: str) -> Raw:
        return Raw(f'data: {{"choices":[{{"delta":{data}}}]}}\n\n'.encode())

    def call(data: str) -> Raw:
        return delta(f'{{"tool_calls":[{{"index":0,"function":{data}}}]}}')

    server.say(
        delta(r'{"reasoning_content":"\ud83d"}'),
        delta(r'{"reasoning_content":"\ude00"}'),
        call(r'{"name":"search","arguments":"{\"for\":\"\ud83d"}'),
        call(r'{"arguments":"\ude00\"}"}'),
    )
    said = await answer(open_model(OPENAI))
    assert (said.reasoning, said.tool_calls[0].arguments) == (SMILE, f'{{"for":"{SMILE}"}}')
    text = b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"%s"}}\n\n'
    server.say(Raw(text % rb"\ud83d"), Raw(text % rb"\ude00"))
    assert (await answer(open_model(ANTHROPIC))).text == SMILE


# any bytes


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[str], bytes]:
    """The texts of events, and a body with them in which each event has a frame of its own."""
    texts = draw(st.lists(st.text(max_size=5), max_size=5))
    body = b""
    for text in texts:
        ascii = draw(st.booleans())
        plain = json.dumps(chunk(text), ensure_ascii=ascii, indent=draw(st.sampled_from([None, 1])))
        end = draw(st.sampled_from(["\n", "\r\n"]))
        before = draw(st.sampled_from(["data: ", "data:"]))
        body += "".join(f"{before}{line}{end}" for line in plain.split("\n")).encode()
        body += draw(st.sampled_from([b"\n", b"\r\n\r\n", b": x\n\n", b"id: 7\n\n"]))
    return texts, body


@given(bodies())
def test_every_text_is_read_once_whatever_the_frames(case: tuple[list[str], bytes]) -> None:
    texts, data = case
    body, form = EventBody(), ChatForm()
    for event in [*body.read(data.replace(b"\r\n", b"\n").split(b"\n")), *body.end()]:
        assert not isinstance(event, Unreadable)
        form.read(event)
    assert form.partial.text == "".join(texts)


@given(st.lists(st.binary(max_size=40)), st.sampled_from([*CHAT.values()]), st.data())
def test_any_lines_are_events_or_none_and_take_no_whole_event_with_them(
    lines: list[bytes], events: list[Any], data: st.DataObject
) -> None:
    said = [b"data: " + json.dumps(event).encode() for event in events]
    for line in lines:
        bare = line.replace(b"\n", b"").replace(b"[DONE]", b"")
        said.insert(data.draw(st.integers(0, len(said))), bare)
    body = EventBody()
    read = [*body.read([line for each in said for line in (each, b"")]), *body.end()]
    found = [event for event in read if event in events]
    assert found == events


def test_a_body_without_an_end_does_not_fill_the_memory() -> None:
    for lines in ([b"x" * 1000], [b"{", b'"x":'], [b"data: {"], [b"x" * 1000, b"{", b"}"]):
        body = EventBody()
        try:
            for _ in range(10_000):
                body.read(lines)
        except Failure:
            continue
        assert len(body._words) < 10


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_lines_at_all_are_read(lines: list[bytes]) -> None:
    body, form = EventBody(), ChatForm()
    for event in [*body.read(lines), *body.end()]:
        if not isinstance(event, Unreadable):
            try:
                form.read(event)
            except Failure:
                return
    form.partial.rest()
    form.partial.completion(None, "x").text.encode()
