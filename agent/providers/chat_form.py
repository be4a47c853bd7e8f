"""Reads answers in the form of OpenAI's chat completions, which most providers speak.

Invariants
- Known deviations of providers are read as what they mean: reasoning under another name or as
  content, calls that all have the number 0, usage in another place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.model import Part, Stop
from agent.providers.failure import failure_in_stream
from agent.providers.partial_completion import PartialCompletion, Tokens

_STOPS: dict[str, Stop] = {"length": "max_tokens", "content_filter": "refusal"}
_FOR_CALLS = ("tool_calls", "function_call")


class ChatForm:
    def __init__(self) -> None:
        self.partial = PartialCompletion()
        self.whole = False
        self.over = False  # `[DONE]`, which is no event, marks the end
        #: the number of a call in our answer, by the provider's number or else the call's id
        self._numbers: dict[Any, int] = {}

    def read(self, event: Any) -> list[Part]:
        if error := event.get("error"):
            raise failure_in_stream(error)
        if usage := event.get("usage") or (event.get("x_groq") or {}).get("usage"):
            self.partial.tokens = _tokens(usage)
        parts: list[Part] = []
        for choice in event.get("choices") or ():
            if delta := choice.get("delta"):
                parts += self._read_delta(delta)
            if reason := choice.get("finish_reason"):
                self.whole = True
                self.partial.stop = _STOPS.get(reason, self.partial.stop)
                self.partial.ended_for_call = reason in _FOR_CALLS
        return parts

    def _read_delta(self, delta: Mapping[str, Any]) -> list[Part]:
        parts = []
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            parts.append(self.partial.add_reasoning(_text(reasoning)))
        content = delta.get("content")
        if isinstance(content, list):
            parts += [self._read_piece(piece) for piece in content]
        elif content:
            parts.append(self.partial.add_text(_text(content)))
        if refusal := delta.get("refusal"):
            self.partial.stop = "refusal"
            parts.append(self.partial.add_text(_text(refusal)))
        for call in delta.get("tool_calls") or ():
            parts.append(self._read_call(call))
        for block in delta.get("thinking_blocks") or ():
            self._read_thinking_block(block)
        for detail in delta.get("reasoning_details") or ():
            self._read_detail(detail)
        if content == "" and not parts:
            parts.append(self.partial.add_text(""))
        return parts

    def _read_piece(self, piece: Mapping[str, Any]) -> Part:
        """Adds one piece of a content that is a list, as Mistral sends it, and returns the part.

        A piece is a text or `{"type": "thinking", "thinking": [...]}`.
        """
        if piece["type"] == "thinking":
            thoughts = "".join(_text(part["text"]) for part in piece["thinking"])
            return self.partial.add_reasoning(thoughts)
        return self.partial.add_text(_text(piece["text"]))

    def _read_call(self, call: Mapping[str, Any]) -> Part:
        function = call.get("function") or {}
        arguments = _text(function.get("arguments") or "")
        id = call.get("id") or ""
        key = call.get("index", id)
        number = self._numbers.get(key)
        if key == "" and self.partial.calls:  # no number and no id: a piece of the last call
            number = self.partial.calls - 1
        if number is not None and id in ("", self.partial.id_of(number)):
            return self.partial.add_arguments(number, arguments)
        self._numbers[key] = self.partial.calls
        return self.partial.begin_call(_text(id), _text(function.get("name") or ""), arguments)

    def _read_thinking_block(self, block: Mapping[str, Any]) -> None:
        """Adds a piece of a thinking block; the last piece of a block has its signature."""
        blocks = self.partial.thinking_blocks
        if block.get("type") != "thinking":
            blocks.append(dict(block))
            return
        if not blocks or blocks[-1]["type"] != "thinking" or blocks[-1].get("signature"):
            blocks.append({"type": "thinking", "thinking": ""})
        blocks[-1]["thinking"] += block.get("thinking") or ""
        if signature := block.get("signature"):
            blocks[-1]["signature"] = signature

    def _read_detail(self, piece: Mapping[str, Any]) -> None:
        """Adds a piece of OpenRouter's reasoning (openrouter.ai/docs, "Preserving reasoning")."""
        details = self.partial.reasoning_details
        place = (piece["type"], piece.get("index"))
        if not details or place != (details[-1]["type"], details[-1].get("index")):
            details.append(dict(piece))
            return
        whole = details[-1]
        for name, value in piece.items():
            if name in ("text", "summary", "data"):
                whole[name] = (whole.get(name) or "") + (value or "")
            elif value is not None:
                whole[name] = value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no text: {type(value)}")
    return value


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    details = usage.get("prompt_tokens_details") or {}
    cost = usage.get("cost")
    return Tokens(
        input=int(usage.get("prompt_tokens") or 0),
        output=int(usage.get("completion_tokens") or 0),
        cached=int(details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0),
        written=int(details.get("cache_creation_tokens") or 0),
        cost=float(cost) if isinstance(cost, int | float) else None,  # Perplexity's is an object
    )
