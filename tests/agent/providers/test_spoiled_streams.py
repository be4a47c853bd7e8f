"""Recorded answers of models, spoiled in any way: what was readable is told, and nothing hangs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.model import Completion, ModelError, Part
from agent.providers import library_stream
from agent.providers.anthropic_form import AnthropicForm
from agent.providers.chat_form import ChatForm
from agent.providers.failure import Failure
from agent.providers.outgoing import Target
from agent.providers.partial_completion import Form
from agent.providers.responses_form import ResponsesForm
from agent.providers.stops import read_end
from tests.agent.providers.recordings import CHAT, MESSAGES, RESPONSES
from tests.agent.providers.support import ANTHROPIC, ASK, OPENAI, RESPONDING, TOOLS, Open
from tests.agent.support import Tokens
from tests.support.model_replies import Body, Call, Count, More, Text, Think
from tests.support.model_server import ModelServer
from tests.support.mutations import spoiled


def texts_of_chat(event: Any) -> Iterator[str]:
    """The texts of an event that stand where they belong."""
    if not isinstance(event, dict) or not isinstance(event.get("choices"), list):
        return
    for choice in event["choices"]:
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and isinstance(delta.get("content"), str):
            yield delta["content"]
        if isinstance(delta, dict) and isinstance(delta.get("refusal"), str):
            yield delta["refusal"]


def texts_of_messages(event: Any) -> Iterator[str]:
    delta = event.get("delta") if isinstance(event, dict) else None
    if not isinstance(delta, dict) or event.get("type") != "content_block_delta":
        return
    if delta.get("type") == "text_delta" and isinstance(delta.get("text"), str):
        yield delta["text"]


def texts_of_responses(event: Any) -> Iterator[str]:
    kinds = ("response.output_text.delta", "response.refusal.delta")
    is_piece = isinstance(event, dict) and event.get("type") in kinds
    if is_piece and isinstance(event.get("delta"), str):
        yield event["delta"]


def no_reasons(event: Any) -> Iterator[Any]:
    yield from ()


def reasons_of_chat(event: Any) -> Iterator[Any]:
    choices = event.get("choices") if isinstance(event, dict) else None
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict):
            yield choice.get("finish_reason")


def reasons_of_messages(event: Any) -> Iterator[Any]:
    if isinstance(event, dict) and event.get("type") == "message_delta":
        delta = event.get("delta")
        yield delta.get("stop_reason") if isinstance(delta, dict) else None


def read(form: Form, events: Any) -> tuple[list[Part], int, bool]:
    """Returns what was told, of how many events, and True if an error was reported."""
    told: list[Part] = []
    for number, event in enumerate(events):
        try:
            told += form.read(event)
        except Failure:
            return told, number, True
        if form.failure is not None:
            return told, number + 1, True
    return told, len(events), False


def judge(
    form: Form,
    events: list[Any],
    texts: Callable[[Any], Iterator[str]],
    reasons: Callable[[Any], Iterator[Any]],
) -> Completion:
    told, heard, _ = read(form, events)
    said = form.partial.completion(None, "x")
    assert "".join(part.text for part in told if part.kind == "text") == said.text
    at = 0
    for text in (text for event in events[:heard] for text in texts(event)):
        found = said.text.find(text, at)
        assert found >= 0, f"{text!r} was readable and is not in {said.text!r}"
        at = found + len(text)
    whole = json.dumps(events)
    assert all(json.dumps(call.name)[1:-1] in whole for call in said.tool_calls)
    ended = [read_end(reason).stop for event in events[:heard] for reason in reasons(event)]
    if "refusal" in ended:
        assert said.stop == "refusal"
    json.dumps([said.text, said.reasoning, said.provider], ensure_ascii=False).encode()
    return said


@given(spoiled([*CHAT.values()]))
def test_a_spoiled_answer_in_the_form_of_chat_completions_keeps_what_is_readable(
    events: list[Any],
) -> None:
    judge(ChatForm(), events, texts_of_chat, reasons_of_chat)


@given(spoiled([*MESSAGES.values()]))
def test_a_spoiled_answer_in_the_form_of_messages_keeps_what_is_readable(
    events: list[Any],
) -> None:
    judge(AnthropicForm(), events, texts_of_messages, reasons_of_messages)


@given(spoiled([*RESPONSES.values()]))
def test_a_spoiled_answer_in_the_form_of_responses_keeps_what_is_readable(
    events: list[Any],
) -> None:
    judge(ResponsesForm(), events, texts_of_responses, no_reasons)


FORMS = [(ChatForm, CHAT), (AnthropicForm, MESSAGES), (ResponsesForm, RESPONSES)]


@pytest.mark.parametrize(("form", "recordings"), FORMS)
def test_the_recordings_are_read_whole(form: Any, recordings: dict[str, list[Any]]) -> None:
    for events in recordings.values():
        reading = form()
        _, heard, failed = read(reading, events)
        assert (heard, failed, reading.odd, reading.whole) == (len(events), False, False, True)


async def litellm_s_events(server: ModelServer) -> list[list[Any]]:
    """Records what LiteLLM's own stream makes of answers in the forms that we don't read."""
    recordings = []
    for name, provider in (("gemini-2.5-pro", "gemini"), ("gpt-6-astra", "openai")):
        server.say(
            Think("Hm"),
            Text("I look"),
            Text(" into it"),
            Call("read_file", '{"path"'),
            More(0, ': "x"}'),
            Count(100, 10),
        ) if provider == "openai" else server.say(
            Think("Hm"),
            Text("I look"),
            Text(" into it"),
            Call("read_file", '{"path": "x"}'),
            Count(100, 10),
        )
        target = Target(name, provider, server.openai_url, "key", "low")
        recording: list[Any] = []
        with anyio.fail_after(10):
            async for events in library_stream.events(f"{provider}/{name}", target, ASK, TOOLS, 5):
                recording += events
        recordings.append(recording)
    return recordings


@pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")
async def test_a_spoiled_answer_of_litellm_s_own_stream_keeps_what_is_readable(
    server: ModelServer,
) -> None:
    recordings = await litellm_s_events(server)

    @given(spoiled(recordings))
    def holds(events: list[Any]) -> None:
        judge(ChatForm(), events, texts_of_chat, reasons_of_chat)

    holds()
    for recording in recordings:
        assert judge(ChatForm(), recording, texts_of_chat, reasons_of_chat).text == "I look into it"


# bytes, over HTTP


@st.composite
def bodies(draw: st.DrawFn, recordings: list[Any], end: bytes) -> bytes:
    """A body with a spoiled answer; also a byte of it, or a part, may be another."""
    events = draw(spoiled(recordings))
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + end
    at = draw(st.integers(0, len(body)))
    match draw(st.sampled_from(["whole", "cut", "byte", "doubled"])):
        case "cut":
            return body[:at]
        case "byte":
            return (
                body[:at] + draw(st.sampled_from([b"\xff", b"\n", b"{", b"\x00"])) + body[at + 1 :]
            )
        case "doubled":
            return body[:at] + body[max(0, at - 40) :]
    return body


#: the level with which a model is asked for Responses
LEVELS = {RESPONDING: "low"}


@pytest.mark.parametrize(
    ("name", "recordings", "end"),
    [
        (OPENAI, CHAT, b"data: [DONE]\n\n"),
        (ANTHROPIC, MESSAGES, b""),
        (RESPONDING, RESPONSES, b""),
    ],
)
async def test_any_body_is_an_answer_or_an_error_of_ours(
    server: ModelServer, open_model: Open, name: str, recordings: dict[str, Any], end: bytes
) -> None:
    found: list[bytes] = []

    @settings(max_examples=60, suppress_health_check=[*HealthCheck], database=None)
    @given(bodies([*recordings.values()], end))
    def collect(body: bytes) -> None:
        found.append(body)

    collect()
    for body in found:
        server.answer = lambda _, body=body: [Body(body)]
        tokens = Tokens()
        try:
            with anyio.fail_after(5):
                said = await open_model(name, thought_level=LEVELS.get(name)).complete(
                    ASK, TOOLS, tokens
                )
        except ModelError:
            continue
        told = (part for part in tokens.told if isinstance(part, Part) and part.kind == "text")
        assert said.text == "".join(part.text for part in told)


@pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_any_body_through_litellm_s_own_stream_too(
    server: ModelServer, open_model: Open
) -> None:
    part = {"text": "I look", "thought": False}
    call = {"functionCall": {"name": "read_file", "args": {"path": "x"}}, "thoughtSignature": "c2"}
    content = {"role": "model", "parts": [part, call]}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}
    recording = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]},
        {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": usage,
            "modelVersion": "gemini-2.5-pro",
        },
    ]
    found: list[bytes] = []

    @settings(max_examples=40, suppress_health_check=[*HealthCheck], database=None)
    @given(bodies([recording], b""))
    def collect(body: bytes) -> None:
        found.append(body)

    collect()
    for body in found:
        server.answer = lambda _, body=body: [Body(body)]
        try:
            with anyio.fail_after(5):
                await open_model("gemini/gemini-2.5-pro").complete(ASK, TOOLS, Tokens())
        except ModelError:
            continue
