"""Reads answers in the form of Anthropic's messages.

The form: docs.anthropic.com/en/api/messages-streaming.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.model import Part, Stop
from agent.providers.failure import failure_in_stream
from agent.providers.partial_completion import PartialCompletion, Tokens

_STOPS: dict[str, Stop] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}


class AnthropicForm:
    def __init__(self) -> None:
        self.partial = PartialCompletion()
        self.whole = False
        self.over = False
        self._usage: dict[str, Any] = {}
        #: the number of a tool call, by the number of its content block
        self._calls: dict[int, int] = {}
        #: a thinking block, by the number of its content block
        self._thoughts: dict[int, dict[str, Any]] = {}

    def read(self, event: Any) -> list[Part]:
        match event["type"]:
            case "content_block_delta":
                return self._read_delta(event["index"], event["delta"])
            case "content_block_start":
                return self._start(event["index"], event["content_block"])
            case "message_start":
                self._count(event["message"].get("usage"))
            case "message_delta":
                self._count(event.get("usage"))
                if reason := event["delta"].get("stop_reason"):
                    self.whole = True
                    self.partial.stop = _STOPS.get(reason, "end_turn")
                    self.partial.ended_for_call = reason == "tool_use"
            case "message_stop":
                self.whole = self.over = True
            case "error":
                raise failure_in_stream(event["error"])
        return []

    def _start(self, number: int, block: Mapping[str, Any]) -> list[Part]:
        match block["type"]:
            case "text" if block.get("text"):
                return [self.partial.add_text(block["text"])]
            case "tool_use":
                self._calls[number] = self.partial.calls
                return [self.partial.begin_call(block["id"], block["name"])]
            case "thinking":
                thought = {"type": "thinking", "thinking": "", "signature": "", **block}
                self._thoughts[number] = thought
                self.partial.thinking_blocks.append(thought)
            case "redacted_thinking":
                self.partial.thinking_blocks.append(dict(block))
        return []

    def _read_delta(self, number: int, delta: Mapping[str, Any]) -> list[Part]:
        match delta["type"]:
            case "text_delta":
                return [self.partial.add_text(delta["text"])]
            case "thinking_delta":
                self._thoughts[number]["thinking"] += delta["thinking"]
                return [self.partial.add_reasoning(delta["thinking"])]
            case "signature_delta":
                self._thoughts[number]["signature"] += delta["signature"]
            # The provider's own tools are not in the table.
            case "input_json_delta" if number in self._calls:
                return [self.partial.add_arguments(self._calls[number], delta["partial_json"])]
        return []

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Replaces the token counts; each count covers the whole answer so far."""
        self._usage |= {name: n for name, n in (usage or {}).items() if isinstance(n, int)}
        count = self._usage.get
        cached, written = (count(f"cache_{way}_input_tokens", 0) for way in ("read", "creation"))
        self.partial.tokens = Tokens(
            input=count("input_tokens", 0) + cached + written,
            output=count("output_tokens", 0),
            cached=cached,
            written=written,
        )
