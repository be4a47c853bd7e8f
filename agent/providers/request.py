"""Builds the HTTP request for a provider, with LiteLLM's own classes for it.

Invariants
- For the providers of `DIRECT` the request is what `litellm.acompletion` would send (a test
  compares them). That would take 6 ms, and with the OpenAI client 1 ms more for each message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal

from msgspec import Struct
from pydantic_core import PydanticSerializationError, to_json

from agent.model import Message, ToolSpec
from agent.providers import library
from agent.providers.outgoing import Target, outgoing

#: the providers whose answers are read here, with their base URL; None if LiteLLM knows it
DIRECT = {
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "anthropic": "https://api.anthropic.com",
    **dict.fromkeys(
        """cerebras deepseek fireworks_ai groq hosted_vllm lm_studio mistral moonshot nvidia_nim
        together_ai xai zai""".split()  # noqa: SIM905
    ),
}


#: providers that LiteLLM tells in another form how hard the model should think
_OWN_THINKING = frozenset(["anthropic", "ollama", "ollama_chat"])


#: the form of an answer
AnswerForm = Literal["chat", "messages", "responses"]


class Request(Struct, frozen=True):
    url: str
    headers: dict[str, str]
    body: bytes
    form: AnswerForm

    def __repr__(self) -> str:
        """Names the form alone: the headers have the key."""
        return f"Request({self.form!r})"


def options(target: Target, tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Returns the parameters of chat completions that the request has."""
    found: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    if tools:
        found["tools"] = [*tools]
    if target.thought_level:
        found["reasoning_effort"] = target.thought_level
        if target.thinks and target.provider not in _OWN_THINKING:
            found["allowed_openai_params"] = ["reasoning_effort"]
    if target.window is not None:
        found["num_ctx"] = target.window
    return found


def build(target: Target, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Request:
    """Builds the HTTP request for a provider of `DIRECT`.

    Blocks for some milliseconds. Raises what LiteLLM raises.
    """
    utils, types = library.part("utils"), library.part("types.utils")
    model, key = target.model, target.key
    base = target.base_url or DIRECT[target.provider]
    config = utils.ProviderConfigManager.get_provider_chat_config(
        model, types.LlmProviders(target.provider)
    )
    sent = outgoing(messages, target)
    wanted = utils.get_optional_params(
        model=model, custom_llm_provider=target.provider, messages=sent, **options(target, tools)
    )
    wanted.pop("extra_body", None)  # only the OpenAI client reads it
    common = {"model": model, "optional_params": wanted, "litellm_params": {}}
    headers = config.validate_environment(
        headers={}, messages=sent, api_key=key, api_base=base, **common
    )
    if target.bearer:
        headers.pop("x-api-key", None)
        headers["authorization"] = f"Bearer {key}"
    body = config.transform_request(messages=sent, headers=headers, **common)
    url = config.get_complete_url(api_base=base, api_key=key, stream=True, **common)
    form: AnswerForm = "messages" if target.provider == "anthropic" else "chat"
    return Request(
        _with_path(url, target.provider), headers, as_json({**body, "stream": True}), form
    )


def build_responses(
    target: Target, messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> Request:
    """Builds the HTTP request for OpenAI's Responses.

    Blocks for some milliseconds. Raises what LiteLLM raises.
    """
    utils, types = library.part("utils"), library.part("types.utils")
    bridge = library.part("completion_extras.litellm_responses_transformation.transformation")
    router = library.part("types.router")
    provider = types.LlmProviders(target.provider)
    config = utils.ProviderConfigManager.get_provider_responses_api_config(
        model=target.model, provider=provider
    )
    sent = outgoing(messages, target)
    wanted = utils.get_optional_params(
        model=target.model,
        custom_llm_provider=target.provider,
        messages=sent,
        **options(target, tools),
    )
    asked = bridge.LiteLLMResponsesTransformationHandler().transform_request(
        model=target.model,
        messages=sent,
        optional_params=wanted,
        litellm_params={},
        headers={},
        litellm_logging_obj=SimpleNamespace(),
    )
    ours = {name: asked[name] for name in asked if name not in _NOT_SENT}
    own = router.GenericLiteLLMParams(api_key=target.key, api_base=target.base_url)
    headers = config.validate_environment(headers={}, model=target.model, litellm_params=own)
    body = config.transform_responses_api_request(
        model=target.model,
        input=asked["input"],
        response_api_optional_request_params=ours,
        litellm_params=own,
        headers=headers,
    )
    base = target.base_url or DIRECT[target.provider]
    url = config.get_complete_url(api_base=base, litellm_params={})
    return Request(url, headers, as_json({**body, "stream": True}), "responses")


#: what LiteLLM puts into a request for itself, and what is given apart
_NOT_SENT = ("model", "input", "client", "litellm_logging_obj")


def _with_path(url: str, provider: str) -> str:
    if provider != "anthropic" or url.endswith("/v1/messages"):
        return url
    return url.removesuffix("/").removesuffix("/v1") + "/v1/messages"


def as_json(body: dict[str, Any]) -> bytes:
    """Returns the body of a request; half of a surrogate pair in it is escaped."""
    try:
        return to_json(body)
    except (PydanticSerializationError, UnicodeEncodeError):  # half of a surrogate pair in a text
        return json.dumps(body).encode()


def needs_responses(target: Target, tools: Sequence[ToolSpec]) -> bool:
    """Returns True if the model takes tools only in OpenAI's Responses, as LiteLLM knows."""
    if target.provider != "openai":
        return False
    return _needs_responses(target.model, bool(tools), target.thought_level, target.base_url)


@cache
def _needs_responses(model: str, tools: bool, level: str | None, base_url: str | None) -> bool:
    info, _ = library.load().main.responses_api_bridge_check(
        model=model,
        custom_llm_provider="openai",
        tools=[{"type": "function", "function": {}}] if tools else [],
        reasoning_effort=level,
        api_base=base_url,
    )
    return bool(info.get("mode") == "responses")
