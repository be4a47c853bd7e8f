"""What servers make of the forms of answers: each is a public report, rebuilt, or of its kind."""

from typing import Any

import pytest

from agent.model import Part, Stop, ToolCall
from agent.providers.keys import Access
from agent.providers.provider_model import ProviderModel
from tests.agent.providers.support import ANTHROPIC, ASK, BOTH, KEY, OPENAI, Open, answer, fails
from tests.agent.support import Tokens
from tests.support.model_replies import Body, Call, End, Event, Raw, Status, Text, Think
from tests.support.model_server import ModelServer

FINISHED = Event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})


def delta(**fields: Any) -> Event:
    return Event({"choices": [{"index": 0, "delta": fields}]})


def piece(**fields: Any) -> Event:
    return delta(tool_calls=[fields])


READ = ("read_file", '{"path": "x"}')

#: how a call came, and the names and arguments of the calls that it is
CALLS: dict[str, tuple[list[Event], list[tuple[str, str]]]] = {
    "the name after the id": (
        [
            piece(index=0, id="a", type="function"),
            piece(index=0, function={"name": "read_file"}),
            piece(index=0, function={"arguments": '{"path": "x"}'}),
        ],
        [READ],
    ),
    "another id in each piece": (
        [
            piece(index=0, id="a", function={"name": "read_file", "arguments": '{"pa'}),
            piece(index=0, id="b", function={"arguments": 'th": '}),
            piece(index=0, id="c", function={"name": None, "arguments": '"x"}'}),
        ],
        [READ],
    ),
    "another id in each piece, and no number": (
        [
            piece(id="a", function={"name": "read_file", "arguments": '{"path": '}),
            piece(id="b", function={"arguments": '"x"}'}),
        ],
        [READ],
    ),
    "an id for the second piece alone": (
        [
            piece(index=0, function={"name": "read_file", "arguments": '{"path": '}),
            piece(index=0, id="b", function={"arguments": '"x"}'}),
        ],
        [READ],
    ),
    "arguments as an object": (
        [piece(index=0, id="a", function={"name": "read_file", "arguments": {"path": "x"}})],
        [READ],
    ),
    "numbers as texts": (
        [
            piece(index="0", id="a", function={"name": "read_file", "arguments": '{"path": '}),
            piece(index="0", function={"arguments": '"x"}'}),
        ],
        [READ],
    ),
    "the name again in each piece": (
        [
            piece(index=0, id="a", function={"name": "read_file", "arguments": '{"path": '}),
            piece(index=0, id="a", function={"name": "read_file", "arguments": '"x"}'}),
        ],
        [READ],
    ),
    "the whole call again": (
        [
            piece(index=0, id="a", function={"name": "read_file", "arguments": '{"path": "x"}'}),
            piece(index=0, id="a", function={"name": "read_file", "arguments": '{"path": "x"}'}),
        ],
        [READ],
    ),
    "all its arguments again, without the name": (
        [
            piece(index=0, id="a", function={"name": "read_file", "arguments": '{"path": "x"}'}),
            piece(index=0, function={"arguments": '{"path": "x"}'}),
        ],
        [READ],
    ),
    "two calls with the number 0 and without ids": (
        [
            piece(index=0, function={"name": "read_file", "arguments": '{"path": "x"}'}),
            piece(index=0, function={"name": "read_file", "arguments": '{"path": "y"}'}),
        ],
        [READ, ("read_file", '{"path": "y"}')],
    ),
    "a call that is no list": (
        [
            delta(tool_calls={"index": 0, "function": {"name": "read_file", "arguments": READ[1]}}),
        ],
        [READ],
    ),
    "a call without `function`": (
        [piece(index=0, id="a", name="read_file", arguments='{"path": "x"}')],
        [READ],
    ),
    "the form of old": (
        [
            delta(function_call={"name": "read_file", "arguments": '{"path": '}),
            delta(function_call={"arguments": '"x"}'}),
        ],
        [READ],
    ),
    "`message` in place of `delta`": (
        [
            Event(
                {
                    "choices": [
                        {
                            "message": {
                                "content": None,
                                "tool_calls": [
                                    {"function": {"name": "read_file", "arguments": READ[1]}}
                                ],
                            }
                        }
                    ]
                }
            )
        ],
        [READ],
    ),
    "a piece that is nothing": ([piece(index=0, id="a", function=None)], []),
}


@pytest.mark.parametrize(("events", "calls"), CALLS.values(), ids=CALLS.keys())
async def test_a_call_is_what_its_pieces_mean(
    server: ModelServer, open_model: Open, events: list[Event], calls: list[tuple[str, str]]
) -> None:
    server.say(*events, FINISHED)
    said = await answer(open_model(OPENAI))
    assert [(call.name, call.arguments) for call in said.tool_calls] == calls


CONTENTS: dict[str, tuple[Event | Raw | Body, str]] = {
    "`message` in place of `delta`": (
        Event({"choices": [{"message": {"content": "Well"}}]}),
        "Well",
    ),
    "a piece of an unknown type with a text": (
        delta(content=[{"type": "x", "text": "Well"}]),
        "Well",
    ),
    "a piece of an unknown type beside a text": (
        delta(content=[{"type": "x", "y": 1}, {"type": "text", "text": "Well"}]),
        "Well",
    ),
    "a piece that is a text": (delta(content=["We", {"text": "ll"}]), "Well"),
    "content as an object": (delta(content={"type": "text", "text": "Well"}), "Well"),
    "a choice that is no list": (Event({"choices": {"delta": {"content": "Well"}}}), "Well"),
    "`text` in place of `content`": (delta(text="Well"), "Well"),
    "completions of old": (Event({"choices": [{"text": "Well"}]}), "Well"),
    "a delta that is a text": (Event({"choices": [{"delta": "Well"}]}), "Well"),
    "a list of events": (Event([{"choices": [{"delta": {"content": "Well"}}]}]), "Well"),
    "odd usage": (
        Event(
            {
                "choices": [{"delta": {"content": "Well"}}],
                "usage": {"prompt_tokens": "many", "completion_tokens": None, "cost": {"x": 1}},
            }
        ),
        "Well",
    ),
    "half of a surrogate pair": (
        Raw(b'data: {"choices":[{"delta":{"content":"W\\ud83d"}}]}\n\n'),
        "W\ufffd",
    ),
    "a byte that is not UTF-8": (
        Raw(b'data: {"choices":[{"delta":{"content":"W\xe9"}}]}\n\n'),
        "W\ufffd",
    ),
    "a byte order mark": (
        Body(b'\xef\xbb\xbfdata: {"choices":[{"delta":{"content":"W"}}]}\n\ndata: [DONE]\n\n'),
        "W",
    ),
    "an event without `data:`": (Raw(b'{"choices":[{"delta":{"content":"W"}}]}\n'), "W"),
}


@pytest.mark.parametrize(("event", "text"), CONTENTS.values(), ids=CONTENTS.keys())
async def test_a_text_is_read_wherever_it_is(
    server: ModelServer, open_model: Open, event: Event | Raw | Body, text: str
) -> None:
    server.say(event)
    assert (await answer(open_model(OPENAI))).text == text


async def test_what_is_left_out_of_a_content_is_named_once(
    server: ModelServer, open_model: Open
) -> None:
    picture = {"type": "picture", "data": "AAAA"}
    server.say(delta(content=[picture, {"type": "text", "text": "Well"}]), delta(content=[picture]))
    tokens = Tokens()
    await answer(open_model(OPENAI), tokens=tokens)
    told = Part("notice", "The model's answer has something that is not shown: picture.")
    assert [token for token in tokens.told if token != Part("text", "")] == [
        told,
        Part("text", "Well"),
    ]


async def test_a_message_that_repeats_what_was_told_in_pieces_is_not_told_again(
    server: ModelServer, open_model: Open
) -> None:
    again = {"choices": [{"delta": {}, "message": {"content": "Well."}, "finish_reason": "stop"}]}
    server.say(Text("We"), Text("ll."), Event(again))
    assert (await answer(open_model(OPENAI))).text == "Well."


async def test_what_a_whole_message_has_more_than_the_pieces_is_told(
    server: ModelServer, open_model: Open
) -> None:
    call = {"id": "a", "function": {"name": "read_file", "arguments": READ[1]}}
    message = {"content": "Well.", "tool_calls": [call]}
    whole = {"object": "chat.completion", "choices": [{"message": message}]}
    server.say(Text("We"), Event(whole), Event(whole), FINISHED)
    said = await answer(open_model(OPENAI))
    assert said.text == "Well."
    assert [(call.name, call.arguments) for call in said.tool_calls] == [READ]


# of Anthropic's form


def block(at: Any, **fields: Any) -> Event:
    return Event({"type": "content_block_start", "index": at, "content_block": fields})


def more(at: Any, **fields: Any) -> Event:
    return Event({"type": "content_block_delta", "index": at, "delta": fields})


MESSAGES: dict[str, tuple[list[Event], str, list[tuple[str, str]]]] = {
    "the whole input at the start of a call": (
        [block(0, type="tool_use", id="a", name="read_file", input={"path": "x"})],
        "",
        [READ],
    ),
    "the whole input at the start, and again in pieces": (
        [
            block(0, type="tool_use", id="a", name="read_file", input={"path": "x"}),
            more(0, type="input_json_delta", partial_json='{"path": "x"}'),
        ],
        "",
        [READ],
    ),
    "input as an object": (
        [
            block(0, type="tool_use", id="a", name="read_file", input={}),
            more(0, type="input_json_delta", partial_json={"path": "x"}),
        ],
        "",
        [READ],
    ),
    "no number": (
        [
            Event(
                {
                    "type": "content_block_start",
                    "content_block": {"type": "tool_use", "id": "a", "name": "read_file"},
                }
            ),
            Event(
                {
                    "type": "content_block_delta",
                    "delta": {"type": "input_json_delta", "partial_json": '{"path": "x"}'},
                }
            ),
        ],
        "",
        [READ],
    ),
    "a text without a start": ([more(3, type="text_delta", text="Well")], "Well", []),
    "a delta without a type": ([block(0, type="text", text=""), more(0, text="Well")], "Well", []),
    "the whole message behind its pieces": (
        [
            more(0, type="text_delta", text="We"),
            Event({"type": "message", "content": [{"type": "text", "text": "Well"}]}),
        ],
        "Well",
        [],
    ),
    "a call in the whole message alone": (
        [
            more(0, type="text_delta", text="Well"),
            Event(
                {
                    "type": "message",
                    "content": [
                        {"type": "text", "text": "Well"},
                        {"type": "tool_use", "name": "read_file", "input": {"path": "x"}},
                    ],
                }
            ),
        ],
        "Well",
        [READ],
    ),
    "an event without a type": ([Event({"index": 0, "delta": {"text": "Well"}})], "Well", []),
    "a delta of an unknown type": (
        [more(0, type="citations_delta", citation={}), more(0, type="text_delta", text="Well")],
        "Well",
        [],
    ),
    "a thought without a start": (
        [more(0, type="thinking_delta", thinking="Hm"), more(1, type="text_delta", text="Well")],
        "Well",
        [],
    ),
    "odd usage": (
        [
            Event({"type": "message_start", "message": {"usage": {"input_tokens": "many"}}}),
            Event({"type": "message_start", "message": None}),
            more(0, type="text_delta", text="Well"),
        ],
        "Well",
        [],
    ),
}


@pytest.mark.parametrize(("events", "text", "calls"), MESSAGES.values(), ids=MESSAGES.keys())
async def test_anthropic_s_form_is_read_as_what_it_means(
    server: ModelServer,
    open_model: Open,
    events: list[Event],
    text: str,
    calls: list[tuple[str, str]],
) -> None:
    server.say(*events)
    said = await answer(open_model(ANTHROPIC))
    assert said.text == text
    assert [(call.name, call.arguments) for call in said.tool_calls] == calls


# reasons to stop


@BOTH
@pytest.mark.parametrize(
    "reason",
    ["error", "abort", "network_error", "insufficient_system_resource", "MALFORMED_FUNCTION_CALL"],
)
async def test_an_answer_that_its_server_broke_off_is_told_and_not_run(
    server: ModelServer, open_model: Open, name: str, reason: str
) -> None:
    server.say(Text("Hel"), Call("read_file", "{}"), End(reason))
    error = await fails(open_model(name))
    assert error.kind == "unreachable"
    assert "broke off its answer" in str(error)
    assert str(error).endswith(f'The server says: "{reason}"')


@BOTH
async def test_an_answer_that_was_broken_off_before_a_word_is_tried_again(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(End("network_error"))
    server.say(Text("Hello"))
    assert (await answer(open_model(name))).text == "Hello"


@BOTH
@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_tokens", "max_tokens"),
        ("MAX_TOKENS", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("max_output_tokens", "max_tokens"),
        ("model_length", "max_tokens"),
        ("SAFETY", "refusal"),
        ("sensitive", "refusal"),
        ("eos", "end_turn"),
        ("one of tomorrow's", "end_turn"),
    ],
)
async def test_a_reason_of_another_server_is_understood(
    server: ModelServer, open_model: Open, name: str, reason: str, stop: Stop
) -> None:
    server.say(Text("Well"), End(reason))
    assert (await answer(open_model(name))).stop == stop


async def test_words_beside_an_error_are_told_before_it(
    server: ModelServer, open_model: Open
) -> None:
    server.say(
        Event(
            {
                "error": {"code": 502, "message": "upstream died"},
                "choices": [{"delta": {"content": "Hel"}, "finish_reason": "error"}],
            }
        )
    )
    tokens = Tokens()
    error = await fails(open_model(OPENAI), tokens)
    assert tokens.texts[-1] == "Hel"
    assert 'The server says: "upstream died"' in str(error)


# bodies that are no streams

WHOLE = {
    "object": "chat.completion",
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": "Hello",
                "reasoning_content": "Hm",
                "tool_calls": [{"id": "a", "function": {"name": "plan", "arguments": "{}"}}],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4},
}
WHOLE_MESSAGE = {
    "type": "message",
    "content": [
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "a", "name": "plan", "input": {}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 9, "output_tokens": 4},
}


@pytest.mark.parametrize(("name", "body"), [(OPENAI, WHOLE), (ANTHROPIC, WHOLE_MESSAGE)])
async def test_a_whole_answer_to_a_streamed_request_is_an_answer(
    server: ModelServer, open_model: Open, name: str, body: dict[str, Any]
) -> None:
    server.say(Status(200, body))
    said = await answer(open_model(name))
    assert (said.text, said.reasoning) == ("Hello", "Hm")
    assert said.tool_calls == (ToolCall("a", "plan", "{}"),)
    assert said.usage
    assert (said.usage.input, said.usage.output) == (9, 4)


async def test_a_whole_answer_without_its_frame_is_an_answer(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Status(200, {"choices": [{"message": {"content": "Hello"}}]}))
    assert (await answer(open_model(OPENAI))).text == "Hello"


@BOTH
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no more credit today"}},
        {"error": "no more credit today"},
        {"object": "error", "message": "no more credit today", "code": 40303},
        {"detail": "no more credit today"},
        {"code": 1113, "msg": "no more credit today", "success": False},
        {"base_resp": {"status_code": 1008, "status_msg": "no more credit today"}, "choices": None},
        {"choices": [], "error": {"message": "no more credit today"}},
    ],
)
async def test_an_error_with_status_200_is_told_in_the_server_s_words(
    server: ModelServer, open_model: Open, name: str, body: dict[str, Any]
) -> None:
    server.say(Status(200, body))
    assert 'The server says: "no more credit today"' in str(await fails(open_model(name)))


@BOTH
async def test_plain_words_in_place_of_an_answer_are_told(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Body(b"upstream connect error\n"))
    assert "upstream connect error" in str(await fails(open_model(name)))


async def test_a_page_in_place_of_an_answer_is_garbage(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Body(b"<html>\n<body>Log in</body></html>\n"))
    assert "can't be read" in str(await fails(open_model(OPENAI)))


@BOTH
async def test_an_event_that_is_no_json_is_left_out_and_told(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("Hello "), Raw(b'data: {"cut": \n\n'), Text("you"))
    tokens = Tokens()
    assert (await answer(open_model(name), tokens=tokens)).text == "Hello you"
    assert isinstance(told := tokens.told[-1], Part)
    assert told == Part("notice", "A part of the model's answer could not be read and is left out.")


@BOTH
async def test_calls_beside_an_event_that_is_no_json_are_not_run(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Call("read_file", "{}"), Raw(b'data: {"cut": \n\n'))
    assert "can't be read" in str(await fails(open_model(name)))


# keys


@pytest.mark.parametrize(
    ("strange", "told"),
    [
        ("\u201c", "U+201C, left double quotation mark"),
        ("\u200b", "U+200B, zero width space"),
        ("\u00a0", "U+00A0, no-break space"),
        ("\n", "U+000A"),
        ("ü", "U+00FC, latin small letter u with diaeresis"),
    ],
)
@pytest.mark.parametrize("name", [OPENAI, ANTHROPIC, "gemini/gemini-2.5-pro"])
async def test_a_key_with_a_strange_character_is_named(
    server: ModelServer, name: str, strange: str, told: str
) -> None:
    access = Access("A", "A_API_KEY", f"{KEY}{strange}x", "A_BASE_URL", server.openai_url)
    error = await fails(ProviderModel(name, lambda _: access))
    assert str(error) == f"The key in A_API_KEY has a strange character, {told}: set it again."
    assert (error.kind, server.requests) == ("auth", [])
    assert KEY not in str(error)


async def test_an_address_with_a_strange_character_is_named(server: ModelServer) -> None:
    access = Access("A", "A_API_KEY", KEY, "A_BASE_URL", f"{server.openai_url}\u200b")
    error = await fails(ProviderModel(OPENAI, lambda _: access))
    assert str(error).startswith("The base URL in A_BASE_URL has a strange character, U+200B")


# reasoning that comes back


def history(said: Any) -> list[Any]:
    call = said.tool_calls[0]
    function = {"name": call.name, "arguments": call.arguments}
    message = {
        "role": "assistant",
        "content": said.text,
        "reasoning_content": said.reasoning,
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }
    if said.provider is not None:
        message["provider"] = dict(said.provider)
    return [*ASK, message, {"role": "tool", "tool_call_id": call.id, "content": "text"}]


@pytest.mark.parametrize(
    "name",
    [
        "openai/deepseek-reasoner",
        "hosted_vllm/kimi-k2-thinking",
        "fireworks_ai/accounts/fireworks/models/kimi-k2-thinking",
        "together_ai/moonshotai/Kimi-K2-Thinking",
        "nvidia_nim/moonshotai/kimi-k2-thinking",
        "deepinfra/moonshotai/Kimi-K2-Thinking",
        "deepseek/deepseek-v4-pro",
    ],
)
async def test_a_server_that_sent_reasoning_gets_it_back(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Think("Hm"), Call("read_file", "{}"))
    said = await answer(open_model(name))
    server.say(Text("Done"))
    await answer(open_model(name), history(said))
    assert server.requests[1].body["messages"][2]["reasoning_content"] == "Hm"


async def test_reasoning_goes_to_no_server_that_did_not_send_it(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Think("Hm"), Call("read_file", "{}"))
    said = await answer(open_model("hosted_vllm/kimi-k2-thinking"))
    for name in ("openai/gpt-4o", "groq/openai/gpt-oss-120b"):
        server.say(Text("Done"))
        await answer(open_model(name), history(said))
        assert "reasoning_content" not in server.requests[-1].body["messages"][2]
    elsewhere = Access("A", "A_API_KEY", KEY, "A_BASE_URL", f"{server.url}/other/v1")
    server.say(Text("Done"))
    await answer(ProviderModel("hosted_vllm/kimi-k3", lambda _: elsewhere), history(said))
    assert "reasoning_content" not in server.requests[-1].body["messages"][2]
