"""Asks models of the user's own server without LiteLLM, where it would add nothing.

They are plain: in OpenAI's form, over HTTP, and not in LiteLLM's map, so that it knows no window,
price or ability of theirs and passes on what it gets. A process that has loaded LiteLLM for another
model asks them through that.

Invariants
- The request is what LiteLLM's classes would build (a test compares them). Whatever might differ
  is left to LiteLLM: names like those of known models, proxies, TLS, LiteLLM's own settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from agent.model import Message, ToolSpec
from agent.providers import library
from agent.providers.outgoing import Target, outgoing
from agent.providers.proxies import proxy_variable
from agent.providers.request import Request, as_json, options

_PROVIDERS = frozenset(["hosted_vllm", "lm_studio", "openai"])
#: matches names for which LiteLLM has rules beside its map
_OWN_RULES = re.compile(
    r"gpt|codex|davinci|babbage|\bo\d|ft:|claude|gemini|deepseek", re.IGNORECASE
)
#: matches an address without TLS, without a name and password, and in which nothing is quoted
_ADDRESS = re.compile(r"http://[\w.:\[\]-]+(/[\w./~-]*)?\Z", re.ASCII)
_PATH = "/chat/completions"


def split(model_id: str) -> tuple[str, str] | None:
    """Returns the model's name and its provider; None if LiteLLM is needed to ask it."""
    provider, _, model = model_id.partition("/")
    if provider not in _PROVIDERS or not model or _OWN_RULES.search(model):
        return None
    return None if library.may_know(model, provider) else (model, provider)


def suits(target: Target, *, own_server: bool, env: Mapping[str, str] = os.environ) -> bool:
    """Returns True if a model that `split` found is asked in the plain way by these settings."""
    if not own_server or target.base_url is None or target.key is None:
        return False
    takes_level = target.thought_level is None or target.thinks
    changed = any(value and name.startswith("LITELLM_") for name, value in env.items())
    plain = _ADDRESS.match(target.base_url) and not proxy_variable(target.base_url, env)
    return takes_level and bool(plain) and not changed


def build(target: Target, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Request:
    """Builds the HTTP request for a model that suits."""
    base = (target.base_url or "").rstrip("/")
    wanted = options(target, tools)
    wanted.pop("allowed_openai_params", None)  # for LiteLLM alone
    body = {"model": target.model, "messages": outgoing(messages, target), **wanted}
    headers = {"Authorization": f"Bearer {target.key}", "Content-Type": "application/json"}
    url = base if base.endswith(_PATH) else base + _PATH
    return Request(url, headers, as_json(body), "chat")
