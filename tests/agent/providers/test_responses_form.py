"""OpenAI's Responses, as servers make it: each text is told once, wherever it comes."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from agent.model import Part
from agent.providers.responses_form import ResponsesForm
from tests.agent.providers.recordings import RESPONSES, THOUGHT, called, responses, said
from tests.agent.providers.support import RESPONDING, Open, answer, counted, fails
from tests.agent.support import Tokens
from tests.support.model_replies import Body, Gate, Pings, Raw, Step, sse
from tests.support.model_server import ModelServer

OPENAI = RESPONSES["OpenAI"]
CALLS = [("read_file", '{"path": "x"}'), ("search", '{"query": "y"}')]


def body(events: list[Any]) -> bytes:
    return b"".join(map(sse, events))


def without(*kinds: str) -> list[Any]:
    return [event for event in OPENAI if not event["type"].endswith(kinds)]


def changed(**members: Any) -> list[Any]:
    """The recording with members changed in each event that has them; None takes one away."""
    found = []
    for event in OPENAI:
        kept = {**event, **{name: value for name, value in members.items() if name in event}}
        found.append({name: value for name, value in kept.items() if value is not None})
    return found


def no_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: no_ids(v) for k, v in value.items() if k not in ("id", "item_id")}
    return [no_ids(each) for each in value] if isinstance(value, list) else value


def other_ids(events: list[Any]) -> list[Any]:
    """Each event has other ids for the same items."""
    return [
        json.loads(json.dumps(event).replace("fc_", f"fc{n}_").replace("msg_", f"msg{n}_"))
        for n, event in enumerate(events)
    ]


#: events, of which all texts and calls of the recording must come, once
SAME: dict[str, list[Any]] = {
    "as it is": OPENAI,
    "no pieces": without(".delta"),
    "the end of each text alone": without(".delta", "item.done", "part.done", "completed"),
    "whole items alone": without(".delta", "text.done", "part.done", "arguments.done"),
    "the whole response alone": [event for event in OPENAI if event["type"].endswith("completed")],
    "pieces alone": without("done", "completed"),
    "pieces without beginnings": without("item.added"),
    "pieces and the end of the response": without("item.added", "done"),
    "no numbers of items": changed(output_index=None),
    "no ids of items": changed(item_id=None),
    "no ids at all": no_ids(OPENAI),
    "other ids in each event": other_ids(OPENAI),
    "numbers as texts": [
        {**event, "output_index": str(event.get("output_index", "x"))} for event in OPENAI
    ],
    "no numbers of texts": changed(content_index=None, summary_index=None),
    "every event twice but for the pieces": [
        each for event in OPENAI for each in [event] * (1 if "delta" in event else 2)
    ],
    "the response without its type": [
        *OPENAI[:-1],
        {"type": "response.done", "response": OPENAI[-1]["response"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("events", SAME.values(), ids=SAME.keys())
def test_each_text_and_call_is_told_once(events: list[Any]) -> None:
    form = ResponsesForm()
    told = [part for event in events if not form.over for part in form.read(event)]
    found = form.partial.completion(None, "x")
    assert (found.reasoning, found.text, found.stop) == ("Hm, x.", "I look into it: é→", "end_turn")
    assert [(call.name, call.arguments) for call in found.tool_calls] == CALLS
    assert "".join(part.text for part in told if part.kind == "text") == found.text
    assert form.odd is False


async def test_over_http_too_with_its_usage(server: ModelServer, open_model: Open) -> None:
    server.say(Body(body(OPENAI)))
    tokens = Tokens()
    found = await answer(open_model(RESPONDING, thought_level="low"), tokens=tokens)
    assert server.requests[0].path.endswith("/responses")
    assert [
        part.text for part in tokens.told if isinstance(part, Part) and part.kind == "text"
    ] == [
        "I look",
        " into it: é→",
    ]
    assert [call.id for call in found.tool_calls] == ["call_0", "call_1"]
    assert counted(found)[:3] == (112, 42, 64)


@pytest.mark.parametrize("pieces", [["I can't", " help."], []])
async def test_a_refusal_is_shown_and_is_one(
    server: ModelServer, open_model: Open, pieces: list[str]
) -> None:
    server.say(Body(body(responses((said("I can't help.", "refusal"), pieces)))))
    found = await answer(open_model(RESPONDING, thought_level="low"))
    assert (found.text, found.stop) == ("I can't help.", "refusal")


@pytest.mark.parametrize("after", [Gate("never"), Pings()], ids=["silence", "pings"])
@pytest.mark.parametrize(("end", "stop"), [("completed", "end_turn"), ("incomplete", "max_tokens")])
async def test_nothing_is_waited_for_behind_the_end(
    server: ModelServer, open_model: Open, end: str, stop: str, after: Step
) -> None:
    server.say(Raw(body(responses((said("Well"), ["Well"]), end=end))), after)
    found = await answer(open_model(RESPONDING, thought_level="low"))
    assert (found.text, found.stop) == ("Well", stop)
    with anyio.fail_after(5):
        await server.requests[0].gone.wait()


FAILURES = {
    "failed": {"type": "response.failed", "response": {"error": {"message": "it is too hot"}}},
    "an error": {"type": "error", "code": "invalid", "message": "it is too hot"},
    "an error in it": {"type": "error", "error": {"message": "it is too hot"}},
    "completed with an error": {
        "type": "response.completed",
        "response": {"status": "failed", "error": {"message": "it is too hot"}},
    },
}


@pytest.mark.parametrize("event", FAILURES.values(), ids=FAILURES.keys())
async def test_a_failure_is_told_in_the_server_s_words(
    server: ModelServer, open_model: Open, event: Any
) -> None:
    server.say(Raw(body([*OPENAI[:4], event])), Pings())
    error = await fails(open_model(RESPONDING, thought_level="low"))
    assert 'The server says: "it is too hot"' in str(error)


async def test_a_whole_response_in_place_of_a_stream_is_an_answer(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Body(json.dumps(OPENAI[-1]["response"], indent=1).encode()))
    found = await answer(open_model(RESPONDING, thought_level="low"))
    assert found.text == "I look into it: é→"
    assert [(call.name, call.arguments) for call in found.tool_calls] == CALLS


async def test_chunks_of_chat_completions_are_read_here_too(
    server: ModelServer, open_model: Open
) -> None:
    chunks = [
        {"choices": [{"delta": {"content": "Hello"}}]},
        {"choices": [{"delta": {}, "finish_reason": "length"}]},
    ]
    server.say(Body(body(chunks) + b"data: [DONE]\n\n"))
    found = await answer(open_model(RESPONDING, thought_level="low"))
    assert (found.text, found.stop) == ("Hello", "max_tokens")


def test_two_messages_with_the_same_words_are_both_told() -> None:
    second = {**said("Yes."), "id": "msg_2"}
    form = ResponsesForm()
    for event in responses((said("Yes."), ["Yes."]), (THOUGHT, []), (second, ["Yes."])):
        form.read(event)
    assert form.partial.text == "Yes.Yes."


def test_a_call_that_only_the_whole_response_has_is_told() -> None:
    form = ResponsesForm()
    streamed = responses((said("Well"), ["Well"]))[:-1]
    whole = responses((said("Well"), []), (called(0, "search", "{}"), []))[-1]
    for event in [*streamed, whole]:
        form.read(event)
    found = form.partial.completion(None, "x")
    assert (found.text, [call.name for call in found.tool_calls]) == ("Well", ["search"])
