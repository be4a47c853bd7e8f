"""Converts the messages of a conversation into the form that a provider may get.

Invariants
- What one provider signed, and what only some providers understand, goes to no other, because the
  user may change the model in the middle of a conversation. A server that sent `reasoning_content`
  gets it back: many refuse the next request of a turn without it.
- The messages passed in are not changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from agent.model import Message

#: what only its signer gets back
_SIGNED = ("thinking_blocks", "reasoning_details")
#: providers whose models need their earlier thoughts back while they use tools, also those of other
#: models; some refuse a request without them. Any other server gets back what it sent itself
_WANT_REASONING = frozenset(["deepseek", "moonshot", "zai"])
#: providers for which LiteLLM replaces an answer's empty text by words of its own
_FILL_SILENCE = frozenset(["anthropic", "vertex_ai"])
#: providers of Claude that accept marks on what is to be cached
_TAKE_CACHE_MARKS = frozenset(["anthropic", "bedrock", "openrouter", "vertex_ai"])
#: the form of tool call ids that a provider accepts; Gemini's are long, because they are signed
_IDS = {"mistral": re.compile(r"[A-Za-z0-9]{9}"), "gemini": re.compile(r".*", re.DOTALL)}
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,40}")


class Target(Struct, frozen=True):
    """A model, its provider, and how to reach it."""

    #: the model's name at the provider
    model: str
    provider: str
    base_url: str | None
    key: str | None
    thought_level: str | None
    #: True if the key is sent as a bearer token, in Anthropic's form too
    bearer: bool = False
    #: the window in tokens that the server is asked for; None leaves it to the server
    window: int | None = None
    #: True if the user has declared that the model thinks, whatever LiteLLM says
    thinks: bool = False
    #: further parameters for LiteLLM's own stream, with their values
    parameters: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """Names model and provider alone: no log gets a key, or an address with a password."""
        return f"Target({self.model!r}, {self.provider!r})"

    @property
    def signs_as(self) -> str:
        """The name of the signer whose signatures the model can read.

        It is the provider, and at OpenRouter the provider with the model's vendor.
        """
        vendor = f"/{self.model.partition('/')[0]}" if self.provider == "openrouter" else ""
        return self.provider + vendor

    @property
    def sender(self) -> str:
        """A name of the server, which tells it from others; it has no part of an address."""
        whole = f"{self.provider} {self.base_url or ''}"
        return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:16]


def outgoing(messages: Sequence[Message], target: Target) -> list[dict[str, Any]]:
    sent = [_outgoing(message, target) for message in messages]
    if target.provider in _TAKE_CACHE_MARKS and "claude" in target.model:
        for message in (*sent[:1], *sent[-1:]):
            message["cache_control"] = {"type": "ephemeral"}
    return sent


def _outgoing(message: Message, target: Target) -> dict[str, Any]:
    sent: dict[str, Any] = {**message}
    signed = sent.pop("provider", None) or {}
    sent_here = signed.get("reasoning_from") == target.sender
    if signed.get("by") == target.signs_as:
        sent |= {name: signed[name] for name in _SIGNED if name in signed}
    if not sent_here and target.provider not in _WANT_REASONING:
        sent.pop("reasoning_content", None)
    if target.provider in _FILL_SILENCE and "tool_calls" in sent and not sent["content"].strip():
        sent["content"] = None
    if "tool_call_id" in sent:
        sent["tool_call_id"] = _id(sent["tool_call_id"], target.provider)
    if "tool_calls" in sent:
        sent["tool_calls"] = [_call(call, target.provider) for call in sent["tool_calls"]]
    return sent


def _call(call: Mapping[str, Any], provider: str) -> dict[str, Any]:
    return {**call, "id": _id(call["id"], provider)}


def _id(id: str, provider: str) -> str:
    if _IDS.get(provider, _ID).fullmatch(id):
        return id
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:9]
