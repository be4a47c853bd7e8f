"""LiteLLM: the one module that imports it, and what is asked of it besides requests.

Invariants
- It is loaded in a worker thread: its import takes 3 s and what it does first another.
- It fetches nothing, prints nothing and reads no `.env` of the folder that we happen to run in,
  which would let a cloned project send the user's key to a base URL of its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from agent.model import THOUGHT_LEVELS, ModelInfo
from agent.providers.partial_completion import Tokens

#: read by LiteLLM when it is imported; the second keeps it from raising at repeated chunks
_SWITCHES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "REPEATED_STREAMING_CHUNK_LIMIT": str(10**9),
}


@cache
def load() -> Any:
    """The module. Blocks; twice at once is harmless."""
    with _environment(_SWITCHES), _collector_resting():
        litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.drop_params = True  # of two providers with one model only one may know a parameter
    litellm.modify_params = True  # e.g. no thinking where an earlier answer has no thoughts
    # Its own objects don't fit its own types.
    warnings.filterwarnings("ignore", category=UserWarning, module="pydantic")
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


def is_loaded() -> bool:
    return load.cache_info().currsize > 0


@contextlib.contextmanager
def _collector_resting() -> Iterator[None]:
    """What is made here stays for good. The collector would look through it again and again, a
    fifth of the import's time, and stop the event loop for 270 ms each time later on."""
    rests = not gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if not rests:
            gc.enable()


def part(name: str) -> Any:
    """A module of it. Blocks."""
    load()  # with its switches set
    return importlib.import_module(f"litellm.{name}")


@cache
def load_stream(provider: str) -> None:
    """What its own stream would load on the event loop when it is first used, in seconds and with
    warnings: the schemas of its answers, a tokenizer, OpenAI's client. Blocks."""
    litellm = load()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        litellm.ModelResponse()
        litellm.ModelResponseStream()
        litellm.encoding.encode("")
        if provider in ("openai", "azure"):
            importlib.import_module("openai.resources")


@contextlib.contextmanager
def _environment(switches: Mapping[str, str]) -> Iterator[None]:
    """For the import alone: our environment is what the user's commands get."""
    before = {name: os.environ.get(name) for name in switches}
    os.environ.update(switches)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@cache
def split(model_id: str) -> tuple[str, str, str | None]:
    """The model's name at its provider, LiteLLM's name of the provider, and its base URL if that
    is known. Raises what LiteLLM raises if it doesn't know the provider."""
    model, provider, _, base_url = load().get_llm_provider(model_id, api_key="none")
    return model, provider, base_url


def asks_server(provider: str) -> bool:
    """Whether `model_info` may have to ask the provider's server."""
    return provider in ("ollama", "ollama_chat")


def model_info(model: str, provider: str, base_url: str | None = None) -> ModelInfo | None:
    """From LiteLLM's own map of models, or Ollama's at `base_url`; None if it isn't in there."""
    known = _model_info(model, provider, base_url)
    if asks_server(provider) and (known is None or known.window is None):
        # It isn't running yet, or has no such model: it may the next time.
        _model_info.cache_clear()
        with contextlib.suppress(AttributeError):  # not every release keeps it
            load().get_model_info.cache_clear()
    return known


@cache
def _model_info(model: str, provider: str, base_url: str | None) -> ModelInfo | None:
    litellm = load()
    asked = {"api_base": base_url} if asks_server(provider) else {}
    try:
        entry = litellm.get_model_info(model, provider, **asked)
        parameters = litellm.get_supported_openai_params(model, provider) or ()
    except Exception:  # it raises a bare one for a model that it doesn't know
        return None
    entry = {**(litellm.model_cost.get(entry.get("key")) or {}), **_said(entry)}
    return ModelInfo(
        window=entry.get("max_input_tokens") or entry.get("max_tokens"),
        takes_images=bool(entry.get("supports_vision")),
        thought_levels=_levels(entry) if "reasoning_effort" in parameters else (),
    )


def _said(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if value is not None}


def _levels(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """`reasoning_effort_levels` if the map has them; else low to high, and the others if it says
    that the model takes them."""
    if not entry.get("supports_reasoning"):
        return ()
    declared = entry.get("reasoning_effort_levels")
    if isinstance(declared, list | tuple):
        return tuple(level for level in THOUGHT_LEVELS if level in declared)
    usual = {"low": True, "medium": True, "high": True}
    return tuple(
        level
        for level in THOUGHT_LEVELS
        if entry.get(f"supports_{level}_reasoning_effort", usual.get(level, False))
    )


def cost(model: str, provider: str, tokens: Tokens) -> float | None:
    """USD, by LiteLLM's map of prices; None if the model isn't in there."""
    try:
        spent = load().cost_per_token(
            model=model,
            custom_llm_provider=provider,
            prompt_tokens=tokens.input,
            completion_tokens=tokens.output,
            cache_read_input_tokens=tokens.cached,
            cache_creation_input_tokens=tokens.written,
        )
    except Exception:  # a bare one for a model that it doesn't know
        return None
    return float(sum(spent))
