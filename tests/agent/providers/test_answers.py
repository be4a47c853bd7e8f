"""What a model answers, over real HTTP: OpenAI's chat completions and Anthropic's messages."""

import re
from typing import Any

import anyio
import pytest

from agent.model import Message, Part, Stop, ToolCall
from tests.agent.providers.support import ANTHROPIC, ASK, BOTH, OPENAI, Open, answer, counted
from tests.agent.support import Tokens
from tests.support.model_replies import Call, Count, End, Event, Gate, More, Raw, Text, Think
from tests.support.model_server import ModelServer


@BOTH
async def test_every_token_is_told_in_order_and_the_answer_is_their_sum(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Think("Hm"), Think(", well"), Text("Hello"), Text(" you"))
    tokens = Tokens()
    said = await answer(open_model(name), tokens=tokens)
    assert tokens.told == [
        Part("reasoning", "Hm"),
        Part("reasoning", ", well"),
        Part("text", "Hello"),
        Part("text", " you"),
    ]
    assert (said.reasoning, said.text, said.stop) == ("Hm, well", "Hello you", "end_turn")


@BOTH
async def test_a_token_is_told_before_the_next_one_is_sent(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("one"), Gate("two"), Text("two"))

    async def open_gate(token: Any) -> None:
        server.open("two")

    with anyio.fail_after(5):
        said = await open_model(name).complete(ASK, [], open_gate)
    assert said.text == "onetwo"


@BOTH
async def test_tool_calls_whose_pieces_come_mixed_are_put_together(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(
        Text("Look:"),
        Call("read_file", '{"pa', id="call_a"),
        Call("search", "", id="call_b"),
        More(0, 'th": "x"'),
        More(1, '{"for": "é"}'),
        More(0, "}"),
    )
    tokens = Tokens()
    said = await answer(open_model(name), tokens=tokens)
    assert said.tool_calls == (
        ToolCall("call_a", "read_file", '{"path": "x"}'),
        ToolCall("call_b", "search", '{"for": "é"}'),
    )
    assert said.stop == "end_turn"
    calls = [token for token in tokens.told if isinstance(token, Part) and token.kind != "text"]
    assert [(part.index, part.name) for part in calls if part.name] == [
        (0, "read_file"),
        (1, "search"),
    ]
    for number, call in enumerate(said.tool_calls):
        assert "".join(part.text for part in calls if part.index == number) == call.arguments


async def test_a_call_without_arguments_has_an_empty_object(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Call("plan"))
    said = await answer(open_model(ANTHROPIC))
    assert said.tool_calls == (ToolCall("toolu_0", "plan", "{}"),)


@pytest.mark.parametrize(
    ("name", "reason", "stop"),
    [
        (OPENAI, "stop", "end_turn"),
        (OPENAI, "length", "max_tokens"),
        (OPENAI, "content_filter", "refusal"),
        (ANTHROPIC, "stop_sequence", "end_turn"),
        (ANTHROPIC, "max_tokens", "max_tokens"),
        (ANTHROPIC, "model_context_window_exceeded", "max_tokens"),
        (ANTHROPIC, "refusal", "refusal"),
    ],
)
async def test_the_provider_s_reason_for_stopping_becomes_ours(
    server: ModelServer, open_model: Open, name: str, reason: str, stop: Stop
) -> None:
    server.say(Text("Well"), End(reason))
    assert (await answer(open_model(name))).stop == stop


async def test_usage_has_what_came_from_the_cache_and_what_it_cost(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hi"), Count(input=1000, output=100, cached=600))
    said = await answer(open_model(OPENAI))  # 2.50 in, 1.25 cached, 10 out: USD for a million
    assert counted(said) == (1000, 100, 600, 0.00275)


async def test_usage_of_anthropic_has_what_was_read_from_and_written_to_the_cache(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hi"), Count(input=100, output=100, cached=600, written=300))
    said = await answer(open_model(ANTHROPIC))  # 3 in, 0.30 read, 3.75 written, 15 out
    assert counted(said) == (1000, 100, 600, 0.003105)


async def test_the_cost_of_an_unknown_model_is_not_known(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hi"))
    said = await answer(open_model("openai/one-of-my-own"))
    assert counted(said) == (10, 5, 0, None)


async def test_signed_thoughts_come_back_as_they_were(
    server: ModelServer, open_model: Open
) -> None:
    server.say(
        Think("Hm, "), Think("well", "c2ln"), Think("", hidden="b3BhcXVl"), Call("read_file")
    )
    said = await answer(open_model(ANTHROPIC))
    assert (said.reasoning, said.provider is None) == ("Hm, well", False)
    server.say(Text("Done"))
    await answer(open_model(ANTHROPIC), [*ASK, *_history(said.reasoning, said.provider)])
    content = server.requests[1].body["messages"][1]["content"]
    assert content[:2] == [
        {"type": "thinking", "thinking": "Hm, well", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
    ]


async def test_another_provider_gets_neither_signed_thoughts_nor_reasoning(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Think("Hm", "c2ln"), Call("read_file"))
    said = await answer(open_model(ANTHROPIC))
    server.say(Text("Done"))
    await answer(open_model(OPENAI), [*ASK, *_history(said.reasoning, said.provider)])
    assert server.requests[1].body["messages"][2].keys() == {"role", "content", "tool_calls"}


async def test_reasoning_comes_back_to_a_provider_that_wants_it(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Done"))
    await answer(open_model("deepseek/deepseek-v4-pro"), [*ASK, *_history("Hm", None)])
    assert server.requests[0].body["messages"][2]["reasoning_content"] == "Hm"


async def test_details_of_reasoning_come_back_to_the_models_of_their_vendor_alone(
    server: ModelServer, open_model: Open
) -> None:
    details = [{"type": "reasoning.encrypted", "data": "c2ln", "index": 0}]
    server.say(Event({"choices": [{"delta": {"reasoning_details": details}}]}), Call("read_file"))
    said = await answer(open_model("openrouter/google/gemini-3.5-flash"))
    for name in ("google/gemini-2.5-pro", "openai/gpt-5.2"):
        server.say(Text("Done"))
        await answer(open_model(f"openrouter/{name}"), [*ASK, *_history("Hm", said.provider)])
    _, same, other = [request.body["messages"][-2] for request in server.requests]
    assert same["reasoning_details"] == details
    assert "reasoning_details" not in other


@pytest.mark.parametrize(
    ("name", "id", "sent"),
    [
        ("openai/gpt-4o", "call_1", "call_1"),
        ("openai/gpt-4o", "call_1__thought__" + "s" * 99, r"[0-9a-f]{9}"),
        ("mistral/mistral-large-latest", "call_1", r"[0-9a-f]{9}"),
        ("mistral/mistral-large-latest", "aB3456789", "aB3456789"),
    ],
)
async def test_the_ids_of_calls_are_such_as_the_provider_takes(
    server: ModelServer, open_model: Open, name: str, id: str, sent: str
) -> None:
    server.say(Text("Done"))
    await answer(open_model(name), [*ASK, *_history("", None, id)])
    said, result = server.requests[0].body["messages"][-2:]
    assert re.fullmatch(sent, said["tool_calls"][0]["id"])
    assert result["tool_call_id"] == said["tool_calls"][0]["id"]


@BOTH
async def test_an_answer_that_is_over_is_not_waited_for(
    server: ModelServer, open_model: Open, name: str
) -> None:
    over = [
        Event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        Event({"type": "message_stop"}),
    ]
    server.say(
        Text("Hello"), *(over if name == ANTHROPIC else [Raw(b"data: [DONE]\n\n")]), Gate("x")
    )
    assert (await answer(open_model(name))).text == "Hello"


def _history(reasoning: str, provider: Any, id: str = "toolu_0") -> list[Message]:
    """The answer that called `read_file`, and its result."""
    call = {
        "id": id,
        "type": "function",
        "function": {"name": "read_file", "arguments": "{}"},
    }
    said: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
    said["reasoning_content"] = reasoning
    if provider:
        said["provider"] = dict(provider)
    return [said, {"role": "tool", "tool_call_id": id, "content": "text"}]
