"""What servers make of chat completions, and what we make of that."""

from typing import Any

import pytest

from agent.model import Part
from agent.providers.chat_form import ChatForm
from agent.providers.failure import Failure
from agent.providers.partial_completion import Tokens


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


def call(index: int | None, id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    piece: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    if index is not None:
        piece["index"] = index
    if id is not None:
        piece["id"] = id
    return delta(tool_calls=[piece])


def read(*events: dict[str, Any]) -> tuple[list[Part], ChatForm]:
    form = ChatForm()
    return [part for event in events for part in form.read(event)], form


def calls(*events: dict[str, Any]) -> list[tuple[str, str, str]]:
    said = read(*events)[1].partial.completion(None, "x")
    return [(call.id, call.name, call.arguments) for call in said.tool_calls]


def test_an_empty_text_is_told_and_none_is_not() -> None:
    parts, _ = read(delta(role="assistant", content=""), delta(content=None), delta())
    assert parts == [Part("text", "")]


def test_an_empty_text_beside_reasoning_is_not_told() -> None:
    parts, _ = read(delta(content="", reasoning="Hm"))  # it would end the thought
    assert parts == [Part("reasoning", "Hm")]


def test_content_in_pieces_may_be_thoughts() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    parts, _ = read(delta(content=[thought, {"type": "text", "text": "Well"}]))
    assert parts == [Part("reasoning", "Hm"), Part("text", "Well")]


def test_a_refusal_is_told_and_stops() -> None:
    parts, form = read(delta(refusal="I won't"))
    assert (parts, form.partial.stop) == ([Part("text", "I won't")], "refusal")


def test_calls_that_all_count_0_are_told_apart_by_their_ids() -> None:
    assert calls(
        call(0, "a", "read", '{"x":'), call(0, "a", None, "1}"), call(0, "b", "read", "{}")
    ) == [("a", "read", '{"x":1}'), ("b", "read", "{}")]


def test_calls_that_do_not_count_are_told_apart_by_their_ids() -> None:
    assert calls(
        call(None, "a", "read", "{"), call(None, None, None, "}"), call(None, "b", "read", "{}")
    ) == [("a", "read", "{}"), ("b", "read", "{}")]


def test_a_call_may_begin_at_any_number() -> None:
    parts, _ = read(call(3, "a", "read", "{}"))
    assert parts == [Part("tool_call", "{}", 0, "read")]


def test_every_call_has_an_id_of_its_own() -> None:
    found = calls(call(0, None, "read", "{}"), call(1, "a", "read", "{}"), call(2, "a", "read", ""))
    ids = [id for id, _, _ in found]
    assert len({*ids}) == 3
    assert all(ids)
    assert ids[1] == "a"


@pytest.mark.parametrize(
    "event",
    [
        {"usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 6}},
        {
            "choices": [],
            "x_groq": {
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 6},
                }
            },
        },
    ],
)
def test_usage_is_found_in_several_places(event: dict[str, Any]) -> None:
    assert read(event)[1].partial.tokens == Tokens(9, 4, 6)


def test_a_cost_that_the_provider_tells_is_taken() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "cost": 0.02}
    assert read({"usage": usage})[1].partial.tokens == Tokens(9, 4, cost=0.02)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": 429, "message": "slow down"}, 429),
        ({"code": "502", "message": "sorry"}, 502),
        ({"type": "server_error", "code": None}, 500),
        ({"message": "sorry"}, None),
        ("sorry", None),
    ],
)
def test_an_error_in_the_stream_is_raised_with_its_status(error: Any, status: int | None) -> None:
    with pytest.raises(Failure) as raised:
        read({"error": error})
    assert raised.value.status == status


def test_signed_thoughts_that_come_in_pieces_are_put_together() -> None:
    pieces = [
        {"type": "thinking", "thinking": "H"},
        {"type": "thinking", "thinking": "m"},
        {"type": "thinking", "thinking": "", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "thinking", "thinking": "x", "signature": "s2"},
    ]
    _, form = read(*(delta(thinking_blocks=[piece]) for piece in pieces))
    said = form.partial.completion(None, "bedrock")
    assert said.provider == {
        "by": "bedrock",
        "thinking_blocks": [
            {"type": "thinking", "thinking": "Hm", "signature": "s1"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "thinking", "thinking": "x", "signature": "s2"},
        ],
    }


def test_details_of_reasoning_that_come_in_pieces_are_put_together() -> None:
    pieces = [
        {"type": "reasoning.text", "text": "H", "index": 0, "format": "f", "signature": None},
        {"type": "reasoning.text", "text": "m", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "d", "index": 1},
        {"type": "reasoning.text", "text": "x", "index": 2},
    ]
    _, form = read(*(delta(reasoning_details=[piece]) for piece in pieces))
    said = form.partial.completion(None, "openrouter/google")
    assert said.provider == {
        "by": "openrouter/google",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "Hm", "index": 0, "format": "f", "signature": "s"},
            {"type": "reasoning.encrypted", "data": "d", "index": 1},
            {"type": "reasoning.text", "text": "x", "index": 2},
        ],
    }


@pytest.mark.parametrize("reason", ["tool_calls", "function_call"])
def test_an_answer_that_ends_for_a_call_and_has_none_announces_one(reason: str) -> None:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    without = read(delta(content="I look."), end)[1].partial.completion(None, "x")
    assert without.announced
    called = read(call(0, "a", "read", "{}"), end)[1].partial.completion(None, "x")
    assert not called.announced
    stopped = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    assert not read(delta(content="Done."), stopped)[1].partial.completion(None, "x").announced
