"""The table of providers that are offered when their key is there.

Invariants
- Every model in the table is in LiteLLM's own map (a test checks this), except OpenRouter's, which
  has none there. The first is the best for coding at a medium price, because it becomes the
  default.
"""

from __future__ import annotations

import re

from msgspec import Struct

from acp_bridge.core.records import replace


class Provider(Struct, frozen=True):
    #: the prefix of its models in LiteLLM
    id: str
    name: str
    #: variables that may hold its key; if none does, the user is told the first; empty if it needs
    #: none
    keys: tuple[str, ...]
    #: variables that may hold another base URL
    base_urls: tuple[str, ...]
    #: the models that are offered when the key is there
    models: tuple[str, ...] = ()
    #: True if it works without these keys: Bedrock with those of AWS, Vertex with a login
    has_other_ways: bool = False
    #: the address of a server on this machine, where LiteLLM would go to OpenAI's
    address: str | None = None


def _provider(
    id: str,
    name: str,
    models: str = "",
    keys: str | None = None,
    stem: str = "",
    address: str | None = None,
) -> Provider:
    """Returns a provider. `stem`: the beginning of its variables' names, if that is not its id."""
    stem = stem or id.upper()
    found = f"{stem}_API_KEY" if keys is None else keys
    base_urls = (f"{stem}_BASE_URL", f"{stem}_API_BASE")
    return Provider(
        id, name, tuple(found.split()), base_urls, tuple(models.split()), address=address
    )


_ALL = (
    _provider(
        "anthropic",
        "Anthropic",
        "claude-sonnet-5-5 claude-opus-5-5 claude-haiku-5-5",
        keys="ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN",
    ),
    _provider("openai", "OpenAI", "gpt-6.1-sol gpt-6-astra gpt-6-luna gpt-5.2 gpt-5-mini"),
    _provider(
        "gemini",
        "Google Gemini",
        "gemini-4-argon gemini-3.8-flash gemini-2.5-pro",
        keys="GEMINI_API_KEY GOOGLE_API_KEY",
    ),
    _provider("mistral", "Mistral", "devstral-latest mistral-medium-latest mistral-large-latest"),
    _provider("deepseek", "DeepSeek", "deepseek-v4-pro deepseek-v4-flash"),
    _provider("xai", "xAI", "grok-4.7 grok-build-latest"),
    _provider("moonshot", "Moonshot", "kimi-k2.7-code kimi-k3"),
    _provider("zai", "Z.AI", "glm-5.3 glm-5-code"),
    _provider("groq", "Groq", "openai/gpt-oss-120b qwen/qwen3.8-27b"),
    _provider("cerebras", "Cerebras", "gpt-oss-120b qwen-3.8-27b"),
    _provider("openrouter", "OpenRouter", "openrouter/auto"),
    _provider(
        "fireworks_ai",
        "Fireworks",
        keys="FIREWORKS_API_KEY FIREWORKS_AI_API_KEY FIREWORKSAI_API_KEY FIREWORKS_AI_TOKEN",
    ),
    _provider(
        "together_ai",
        "Together",
        keys="TOGETHER_API_KEY TOGETHERAI_API_KEY TOGETHER_AI_API_KEY TOGETHER_AI_TOKEN",
    ),
    _provider("nvidia_nim", "NVIDIA"),
    _provider("ollama_chat", "Ollama", keys="", stem="OLLAMA"),
    _provider("ollama", "Ollama", keys=""),
    _provider("lm_studio", "LM Studio", keys="", address="http://127.0.0.1:1234/v1"),
    _provider("hosted_vllm", "vLLM", keys="", address="http://127.0.0.1:8000/v1"),
    _provider("llamafile", "llamafile", keys=""),
)
PROVIDERS = {provider.id: provider for provider in _ALL}

#: providers whose models have no prefix in LiteLLM, and a pattern of their names
_BARE = (("anthropic", re.compile(r"claude-")), ("openai", re.compile(r"gpt-|chatgpt-|o\d")))


def provider_of(model_id: str) -> Provider | None:
    """Returns the provider of a model, by its prefix or its name.

    Returns None if only LiteLLM can tell.
    """
    prefix, slash, _ = model_id.partition("/")
    if not slash:
        prefix = next((id for id, name in _BARE if name.match(model_id)), "")
    return PROVIDERS.get(prefix)


def variables(prefix: str) -> Provider:
    """Returns a provider for a prefix that is not in the table, with the usual variables."""
    return replace(_provider(prefix, prefix), has_other_ways=True)
