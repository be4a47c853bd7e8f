"""What a provider is sent."""

import json
import logging
from typing import Any

import pytest

from agent.model import Message
from agent.providers.request import DIRECT
from tests.agent.providers.support import ANTHROPIC, ASK, BOTH, KEY, OPENAI, Open, answer
from tests.support.model_replies import Text
from tests.support.model_server import ModelRequest, ModelServer

IMAGE = "data:image/png;base64,iVBORw0KGgo="
CALL = {"id": "call_a", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
#: everything that a conversation may hold
LONG: list[Message] = [
    *ASK,
    {"role": "assistant", "content": "", "reasoning_content": "Hm", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_a", "content": "text"},
    {"role": "assistant", "content": "Look:"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image_url", "image_url": {"url": IMAGE}},
        ],
    },
]
#: a model of each provider, and a level that it takes
MODELS = {
    "openai": "gpt-5.2",
    "anthropic": "claude-sonnet-4-5",
    "cerebras": "gpt-oss-120b",
    "deepseek": "deepseek-v4-pro",
    "fireworks_ai": "accounts/fireworks/models/kimi-k2-instruct",
    "groq": "openai/gpt-oss-120b",
    "hosted_vllm": "qwen3",
    "lm_studio": "qwen3",
    "mistral": "mistral-large-latest",
    "moonshot": "kimi-k2.7-code",
    "nvidia_nim": "meta/llama3-70b-instruct",
    "openrouter": "anthropic/claude-sonnet-4.5",
    "together_ai": "openai/gpt-oss-120b",
    "xai": "grok-4.7",
    "zai": "glm-5.3",
}
#: who we are and when it was: nothing that the model sees
UNTOLD = ("user-agent", "host", "content-length", "accept-encoding", "connection", "accept")


def told(request: ModelRequest) -> dict[str, str]:
    return {
        name: value
        for name, value in request.headers.items()
        if name not in UNTOLD and not name.startswith(("x-stainless", "http-referer", "x-title"))
    }


@pytest.mark.parametrize("level", [None, "low"])
@pytest.mark.parametrize("provider", DIRECT)
async def test_it_is_what_litellm_would_send(
    server: ModelServer,
    open_model: Open,
    provider: str,
    level: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    name = f"{provider}/{MODELS[provider]}"
    for direct in (True, False):
        server.say(Text("Hello"))
        await answer(open_model(name, direct=direct, thought_level=level), LONG)
    ours, theirs = server.requests
    assert ours.path == theirs.path
    assert ours.body == theirs.body
    assert told(ours) == told(theirs)
    assert "could be built" not in caplog.text


@pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")
async def test_a_request_for_responses_is_what_litellm_would_send(
    server: ModelServer, open_model: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for direct in (True, False):
        server.say(Text("Hello"))
        model = open_model("openai/gpt-6-astra", direct=direct, thought_level="low")
        await answer(model, LONG)
    ours, theirs = server.requests
    assert (ours.path, ours.body) == (theirs.path, theirs.body)
    assert ours.path == "/v1/responses"
    assert told(ours) == told(theirs)
    assert "could be built" not in caplog.text


@BOTH
async def test_the_model_gets_the_messages_the_tools_and_the_key(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("Hello"))
    await answer(open_model(name))
    [request] = server.requests
    sent = json.dumps(request.body)
    assert request.prompt == "Hi"
    assert "Be short." in sent
    assert "Reads a file." in sent
    assert request.body["stream"] is True
    assert KEY in (request.headers.get("x-api-key") or request.headers["authorization"])


async def test_images_are_sent(server: ModelServer, open_model: Open) -> None:
    server.say(Text("A picture"))
    await answer(open_model(ANTHROPIC), LONG)
    image = server.requests[0].body["messages"][-1]["content"][1]
    assert image["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": IMAGE.partition(",")[2],
    }


async def test_anthropic_is_told_what_to_cache(server: ModelServer, open_model: Open) -> None:
    server.say(Text("Hello"))
    await answer(open_model(ANTHROPIC))
    body = server.requests[0].body
    mark = {"type": "ephemeral"}
    assert body["system"][-1]["cache_control"] == mark
    assert body["messages"][-1]["content"][-1]["cache_control"] == mark


async def test_results_of_tools_are_cached_too(server: ModelServer, open_model: Open) -> None:
    server.say(Text("Hello"))
    await answer(open_model(ANTHROPIC), LONG[:4])
    result = server.requests[0].body["messages"][-1]["content"][-1]
    assert (result["type"], "cache_control" in result) == ("tool_result", True)


async def test_others_are_told_nothing_of_caches(server: ModelServer, open_model: Open) -> None:
    server.say(Text("Hello"))
    await answer(open_model(OPENAI), LONG)
    assert "cache_control" not in json.dumps(server.requests[0].body)


async def test_the_given_messages_stay_as_they_are(server: ModelServer, open_model: Open) -> None:
    before = json.dumps(LONG)
    for name in (OPENAI, ANTHROPIC, "mistral/mistral-large-latest"):
        server.say(Text("Hello"))
        await answer(open_model(name), LONG)
    assert json.dumps(LONG) == before


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("openai/gpt-5.2", {"reasoning_effort": "high"}),
        ("anthropic/claude-opus-4-6", {"output_config": {"effort": "high"}}),
    ],
)
async def test_the_thought_level_is_told_in_the_provider_s_way(
    server: ModelServer, open_model: Open, name: str, sent: dict[str, Any]
) -> None:
    server.say(Text("Hello"))
    await answer(open_model(name, thought_level="high"))
    body = server.requests[0].body
    assert {name: body.get(name) for name in sent} == sent


async def test_a_level_that_the_model_has_not_is_left_out(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hello"))
    await answer(open_model(OPENAI, thought_level="high"))
    assert "reasoning_effort" not in server.requests[0].body


async def test_thinking_after_an_answer_without_thoughts_is_left_out(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hello"))  # or Anthropic would refuse it
    await answer(open_model(ANTHROPIC, thought_level="low"), LONG[:4])
    assert "thinking" not in server.requests[0].body


@BOTH
async def test_half_a_surrogate_pair_does_no_harm(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("Hello"))
    odd: list[Message] = [{"role": "user", "content": "a\ud800b"}]
    assert (await answer(open_model(name), odd)).text == "Hello"


async def test_a_base_url_of_anthropic_s_may_end_in_its_version(
    server: ModelServer, open_model: Open
) -> None:
    server.anthropic_url += "/v1"
    server.say(Text("Hello"))
    await answer(open_model(ANTHROPIC))
    assert server.requests[0].path == "/v1/messages"


async def test_an_answer_that_was_nothing_but_calls_is_said_to_have_no_words(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hello"))
    await answer(open_model(ANTHROPIC), LONG)
    [said, *_] = [m for m in server.requests[0].body["messages"] if m["role"] == "assistant"]
    assert [part["type"] for part in said["content"]] == ["tool_use"]
