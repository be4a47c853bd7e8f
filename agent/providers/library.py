"""Loads LiteLLM and asks it about models, providers and prices; no other module imports it.

Invariants
- LiteLLM is loaded in a worker thread: its import takes 3 s, and its first call another second.
- LiteLLM fetches nothing, prints nothing, and reads no `.env` of the folder that the agent runs in,
  because a cloned project could so send the user's key to a base URL of its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agent.model import THOUGHT_LEVELS, ModelError, ModelInfo
from agent.providers.partial_completion import Tokens

#: environment variables that LiteLLM reads at its import; the last keeps it from raising at
#: repeated chunks
_SWITCHES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "REPEATED_STREAMING_CHUNK_LIMIT": str(10**9),
}
#: the file with LiteLLM's map of models
_MAP = "model_prices_and_context_window_backup.json"


class Withheld(Exception):
    """This process must not load LiteLLM: it is light."""


_withheld: list[bool] = []
_NOT_INSTALLED = (
    "LiteLLM, which asks models, is not installed: `acp-bridge` in a terminal says how to add it;"
    " or choose the demo."
)


def withhold() -> None:
    """Makes `load` raise Withheld from now on: the process is light and will be replaced."""
    _withheld.append(True)


@cache
def load() -> Any:
    """Returns the module LiteLLM. Blocks the thread; two threads may load it at once.

    Raises Withheld, and ModelError if LiteLLM is not installed.
    """
    if _withheld:
        raise Withheld
    try:
        with _environment(_SWITCHES), _collector_resting():
            litellm: Any = importlib.import_module("litellm")
    except ModuleNotFoundError as error:
        if error.name != "litellm":
            raise
        raise ModelError(_NOT_INSTALLED) from error
    # 13 MB that LiteLLM keeps a second time, as a string.
    vars(litellm.utils).pop("json_data", None)
    litellm.suppress_debug_info = True
    # The same model may have a parameter at one provider and not at another.
    litellm.drop_params = True
    litellm.modify_params = True  # e.g. no thinking where an earlier answer has no thoughts
    # Pydantic warns because LiteLLM's own objects don't fit its own types.
    warnings.filterwarnings("ignore", category=UserWarning, module="pydantic")
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


def is_loaded() -> bool:
    return load.cache_info().currsize > 0


@cache
def may_know(model: str, provider: str) -> bool:
    """Returns False if LiteLLM is installed and its map lacks the model; imports nothing of it."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return True
    try:
        known = Path(spec.origin).with_name(_MAP).read_bytes()
    except OSError:
        return True
    names = (model, f"{provider}/{model}", model.rpartition("/")[2])
    return any(json.dumps(name).encode() in known for name in names)


@contextlib.contextmanager
def _collector_resting() -> Iterator[None]:
    """Stops the garbage collector for the block, and hides the block's objects from it for good.

    The collector would take a fifth of the import's time, and later stop the event loop for 270 ms
    each time that it scanned those objects.
    """
    rests = not gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if not rests:
            gc.enable()


def part(name: str) -> Any:
    """Returns the module `litellm.<name>`. Blocks the thread."""
    load()  # first, since it sets the switches
    return importlib.import_module(f"litellm.{name}")


@cache
def load_stream(provider: str) -> None:
    """Loads what LiteLLM's own stream would load at its first use. Blocks the thread.

    These are the schemas of its answers, a tokenizer and OpenAI's client. On the event loop they
    would take seconds, and they warn.
    """
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
    """Sets environment variables for the block only, because the user's commands inherit them."""
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
    """Returns the model's name at its provider, LiteLLM's name of the provider, and its base URL.

    The base URL is None if it is not known. Raises LiteLLM's error for an unknown provider.
    """
    model, provider, _, base_url = load().get_llm_provider(model_id, api_key="none")
    return model, provider, base_url


@cache
def model_info(model: str, provider: str) -> ModelInfo | None:
    """Returns a model's window and abilities by LiteLLM's map; None if the map lacks the model."""
    litellm = load()
    try:
        entry = litellm.get_model_info(model, provider)
        parameters = litellm.get_supported_openai_params(model, provider) or ()
    except Exception:  # LiteLLM raises Exception itself for an unknown model
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
    """Returns the model's thought levels, weakest first; () if it doesn't think.

    They are `reasoning_effort_levels` if the map has them; otherwise low, medium and high unless
    the map excludes them, and each other level that it includes.
    """
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


def speaks_openai(provider: str) -> bool:
    """Returns True if LiteLLM hands on what a provider says in the form of chat completions."""
    return provider in load().openai_compatible_providers


def cost(model: str, provider: str, tokens: Tokens) -> float | None:
    """Returns the cost in USD by LiteLLM's map of prices; None if the model is not in it."""
    try:
        spent = load().cost_per_token(
            model=model,
            custom_llm_provider=provider,
            prompt_tokens=tokens.input,
            completion_tokens=tokens.output,
            cache_read_input_tokens=tokens.cached,
            cache_creation_input_tokens=tokens.written,
        )
    except Exception:  # LiteLLM raises a bare Exception for an unknown model
        return None
    return float(sum(spent))
