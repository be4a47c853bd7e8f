"""Servers that say the end and keep the connection open: the turn ends all the same."""

from typing import Any

import anyio
import pytest

from agent.model import Part
from agent.providers import http_connection
from tests.agent.providers.support import ANTHROPIC, ASK, OPENAI, Open, answer, fails
from tests.agent.support import Tokens
from tests.support.model_replies import Event, Gate, Pings, Raw, Step, Text
from tests.support.model_server import ModelServer

#: LiteLLM looks into its own objects in a way that their library advises against
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")

STOP = Event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
USAGE = Event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
DELTA = Event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})

#: a model, and how its server says the end
ENDS: dict[str, tuple[str, list[Step]]] = {
    "finish_reason": (OPENAI, [STOP]),
    "finish_reason, then usage": (OPENAI, [STOP, USAGE]),
    "[DONE]": (OPENAI, [Raw(b"data: [DONE]\n\n")]),
    "[DONE] without a blank line": (OPENAI, [Raw(b"data:[DONE]\n")]),
    "stop_reason": (ANTHROPIC, [DELTA]),
    "message_stop": (ANTHROPIC, [Event({"type": "message_stop"})]),
}


@pytest.mark.parametrize("after", [Gate("never"), Pings()], ids=["silence", "pings"])
@pytest.mark.parametrize(("name", "end"), ENDS.values(), ids=ENDS.keys())
async def test_nothing_more_is_waited_for_once_the_end_was_said(
    server: ModelServer,
    open_model: Open,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    end: list[Step],
    after: Step,
) -> None:
    monkeypatch.setattr(http_connection, "AFTER_END", 0.2)
    server.say(Text("Hello"), *end, after)
    said = await answer(open_model(name))
    assert (said.text, said.stop) == ("Hello", "end_turn")
    with anyio.fail_after(5):
        await server.requests[0].gone.wait()


@pytest.mark.parametrize("after", [Gate("never"), Pings()], ids=["silence", "pings"])
async def test_nor_where_litellm_s_own_stream_reads_the_answer(
    server: ModelServer, open_model: Open, monkeypatch: pytest.MonkeyPatch, after: Step
) -> None:
    monkeypatch.setattr(http_connection, "AFTER_END", 0.2)
    server.say(Text("Hello"), STOP, USAGE, after)
    said = await answer(open_model(OPENAI, direct=False))
    assert (said.text, said.stop) == ("Hello", "end_turn")


@pytest.mark.parametrize("after", [Gate("never"), Pings()], ids=["silence", "pings"])
async def test_nor_behind_an_answer_of_gemini_s(
    server: ModelServer, open_model: Open, monkeypatch: pytest.MonkeyPatch, after: Step
) -> None:
    monkeypatch.setattr(http_connection, "AFTER_END", 0.2)
    content = {"role": "model", "parts": [{"text": ""}]}
    end = Event({"candidates": [{"index": 0, "content": content, "finishReason": "MAX_TOKENS"}]})
    server.say(Text("Hello"), Gate("end"), end, after)
    asked = open_model("gemini/gemini-2.5-pro")

    async def open_gate(token: Any) -> None:
        server.open("end")

    with anyio.fail_after(5):
        said = await asked.complete(ASK, [], open_gate)
    assert (said.text, said.stop) == ("Hello", "max_tokens")


async def test_the_usage_that_comes_behind_the_end_is_waited_for_and_ends_the_wait(
    server: ModelServer, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "AFTER_END", 60)
    server.say(Text("Hello"), STOP, Gate("usage"), USAGE, Gate("never"))
    async with anyio.create_task_group() as tasks:

        async def open_gate() -> None:
            await server.reached("usage")
            server.open("usage")

        tasks.start_soon(open_gate)
        said = await answer(open_model(OPENAI))
    assert said.usage
    assert (said.usage.input, said.usage.output) == (9, 4)


async def test_a_server_that_says_the_end_with_every_part_is_heard_to_the_end(
    server: ModelServer, open_model: Open
) -> None:
    def part(text: str) -> Event:
        return Event({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]})

    server.say(part("one "), Gate("two"), part("two "), Gate("three"), part("three"))

    async def open_gate(token: Any) -> None:
        if isinstance(token, Part) and token.text.strip():
            server.open({"one": "two", "two": "three"}.get(token.text.strip(), ""))

    with anyio.fail_after(5):
        said = await open_model(OPENAI).complete(ASK, [], open_gate)
    assert said.text == "one two three"


@pytest.mark.parametrize("after", [Gate("never"), Pings()], ids=["silence", "pings"])
async def test_a_whole_answer_in_place_of_a_stream_is_an_end(
    server: ModelServer, open_model: Open, monkeypatch: pytest.MonkeyPatch, after: Step
) -> None:
    monkeypatch.setattr(http_connection, "AFTER_END", 0.2)
    whole = (
        b'{\n "object": "chat.completion",\n "choices": [\n  {\n   "message": {"content": "Hello"}'
        b"\n  }\n ]\n}\n"
    )
    server.say(Raw(whole), after)
    assert (await answer(open_model(OPENAI))).text == "Hello"


async def test_an_error_ends_the_answer_whatever_is_kept_open(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Event({"error": {"code": 400, "message": "no such thing"}}), Pings())
    assert "no such thing" in str(await fails(open_model(OPENAI)))


async def test_an_answer_without_an_end_is_waited_for(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hel"), Gate("never"))
    tokens = Tokens()
    assert "has sent nothing" in str(await fails(open_model(OPENAI, silence=0.3), tokens))
    assert tokens.texts[-1] == "Hel"
