"""Reads answers in the form of Anthropic's messages.

The form: docs.anthropic.com/en/api/messages-streaming. Servers that are not Anthropic's speak it
too, and leave out what is not needed to understand them.

Invariants
- What can't be read is left out, and the rest is used. An error is raised only when all that came
  with it was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.loose import arguments, count, members, number, objects, words
from agent.model import Part
from agent.providers.failure import Failure, error_in, failure_in_stream
from agent.providers.partial_completion import Form, Tokens
from agent.providers.stops import read_end

#: the type of an event, and of a delta, by a member that only it has
_EVENTS = {
    "content_block": "content_block_start",
    "delta": "content_block_delta",
    "message": "message_start",
}
_DELTAS = {
    "text": "text_delta",
    "thinking": "thinking_delta",
    "partial_json": "input_json_delta",
    "signature": "signature_delta",
}
#: what an event of a type is nothing without
_NEEDED = {"content_block_start": "content_block", "content_block_delta": "delta"}
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


class AnthropicForm(Form):
    def __init__(self) -> None:
        super().__init__()
        self._usage: dict[str, int] = {}
        #: the number of the content block that came last
        self._last = 0
        #: the number of a tool call, by the number of its content block
        self._calls: dict[int, int] = {}
        #: the input that came with the start of a call, by the number of its content block
        self._inputs: dict[int, str] = {}
        #: a thinking block, by the number of its content block
        self._thoughts: dict[int, dict[str, Any]] = {}

    def _read(self, event: Mapping[str, Any]) -> list[Part]:
        parts: list[Part] = []
        kind = _type_of(event, _EVENTS, dict)
        needed = _NEEDED.get(kind)
        self.odd = self.odd or (needed is not None and not isinstance(event.get(needed), dict))
        match kind:
            case "content_block_delta":
                parts = self._read_delta(self._number(event), members(event.get("delta")))
            case "content_block_start":
                parts = self._start(self._number(event), members(event.get("content_block")))
            case "content_block_stop":
                parts = self._given(self._number(event))
            case "message_start":
                parts = self._read_message(members(event.get("message")))
            case "message":  # the answer to a request that was not streamed
                parts = self._read_message(event)
                self.whole = self.whole or bool(parts)
            case "message_delta":
                self._count(event.get("usage"))
                delta = members(event.get("delta"))
                parts = self._end(delta.get("stop_reason") or event.get("stop_reason"))
            case "message_stop":
                parts = self._all_given()
                self.whole = self.over = True
            case _:
                if (error := error_in(event)) is not None:
                    self.failure = failure_in_stream(error)
        return parts

    def _number(self, event: Mapping[str, Any]) -> int:
        """Returns the number of an event's content block; the last one's if the event has none."""
        found = number(event.get("index"))
        self._last = self._last if found is None else found
        return self._last

    def _read_message(self, message: Mapping[str, Any]) -> list[Part]:
        self._count(message.get("usage"))
        parts: list[Part] = []
        content = message.get("content")
        if self.partial.begun:  # most of it is told
            texts = [b for b in objects(content) if b.get("type", "text") == "text"]
            parts = self.partial.add_more(words(texts if isinstance(content, list) else content))
            content = [] if self.partial.calls else _calls(content)
        if isinstance(content, str) and content:
            parts.append(self.partial.add_text(content))
        for at, block in enumerate(objects(content)):
            parts += [*self._start(at, block), *self._given(at)]
        return parts + self._end(message.get("stop_reason"))

    def _end(self, reason: Any) -> list[Part]:
        if not reason:
            return []
        end = read_end(reason)
        if end.broken:
            self.failure = Failure("given_up", words(reason))
            return []
        self.whole = True
        if self.partial.stop != "refusal":
            self.partial.stop = end.stop
            self.partial.ended_for_call = end.for_call
        return self._all_given()

    def _start(self, at: int, block: Mapping[str, Any]) -> list[Part]:
        self._last = at
        match block.get("type"):
            case "tool_use":
                self._calls[at] = self.partial.calls
                if given := block.get("input"):
                    self._inputs[at] = arguments(given)
                return [self.partial.begin_call(words(block.get("id")), words(block.get("name")))]
            case "thinking":
                said = words(block.get("thinking"))
                thought = {**block, "thinking": said, "signature": words(block.get("signature"))}
                self._thoughts[at] = thought
                self.partial.thinking_blocks.append(thought)
                return [self.partial.add_reasoning(said)] if said else []
            case "redacted_thinking":
                self.partial.thinking_blocks.append(dict(block))
            case _ if text := words(block.get("text")):
                return [self.partial.add_text(text)]
        return []

    def _read_delta(self, at: int, delta: Mapping[str, Any]) -> list[Part]:
        match _type_of(delta, _DELTAS, str | dict):
            case "thinking_delta":
                said = words(delta.get("thinking"))
                self._thought(at)["thinking"] += said
                return [self.partial.add_reasoning(said)]
            case "signature_delta":
                self._thought(at)["signature"] += words(delta.get("signature"))
            case "input_json_delta":
                # The provider's own tools are not in the table.
                if at in self._calls:
                    self._inputs.pop(at, None)
                    piece = arguments(delta.get("partial_json"))
                    return [self.partial.add_arguments(self._calls[at], piece)]
            case kind if kind == "text_delta" or words(delta.get("text")):
                return [self.partial.add_text(words(delta.get("text")))]
        return []

    def _thought(self, at: int) -> dict[str, Any]:
        if at not in self._thoughts:  # its start did not come
            self._thoughts[at] = {"type": "thinking", "thinking": "", "signature": ""}
            self.partial.thinking_blocks.append(self._thoughts[at])
        return self._thoughts[at]

    def _given(self, at: int) -> list[Part]:
        """Adds the input that came with the start of a call, if no other came since."""
        given = self._inputs.pop(at, None)
        return [] if given is None else [self.partial.add_arguments(self._calls[at], given)]

    def _all_given(self) -> list[Part]:
        return [part for at in list(self._inputs) for part in self._given(at)]

    def _count(self, usage: Any) -> None:
        """Replaces the token counts; each count covers the whole answer so far."""
        if not isinstance(usage, dict):
            return
        self._usage |= {name: count(usage[name]) for name in _COUNTS if number(usage.get(name))}
        got = self._usage.get
        cached, written = (got(f"cache_{way}_input_tokens", 0) for way in ("read", "creation"))
        self.partial.tokens = Tokens(
            input=got("input_tokens", 0) + cached + written,
            output=got("output_tokens", 0),
            cached=cached,
            written=written,
        )


def _calls(content: Any) -> list[Any]:
    return [block for block in objects(content) if block.get("type") == "tool_use"]


def _type_of(value: Mapping[str, Any], types: Mapping[str, str], form: Any) -> Any:
    """Returns the type that a value names, or that its members of this form show."""
    named = value.get("type")
    if isinstance(named, str) and named:
        return named
    shown = (type for name, type in types.items() if isinstance(value.get(name), form))
    return next(shown, None)
