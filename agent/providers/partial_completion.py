"""One answer of a model while it comes, whatever its form on the wire.

Invariants
- What is added is returned as the part that is to be told; nothing is told that isn't in it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.model import Completion, Part, Stop, ToolCall, Usage


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What was counted. `input` has all that was read, `cached` and `written` (to the provider's
    cache) included; `cost` in USD if the provider said it."""

    input: int
    output: int
    cached: int = 0
    written: int = 0
    cost: float | None = None


@dataclass(slots=True)
class PartialCompletion:
    stop: Stop = "end_turn"
    tokens: Tokens | None = None
    #: signed thoughts, in the form that Claude gets them back in through LiteLLM
    thinking_blocks: list[dict[str, Any]] = field(default_factory=list)
    #: the same of others, in the form of OpenRouter
    reasoning_details: list[dict[str, Any]] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """Whether the user has seen anything of it."""
        return any(self._text) or any(self._reasoning) or bool(self._calls)

    @property
    def calls(self) -> int:
        return len(self._calls)

    def add_text(self, text: str) -> Part:
        self._text.append(text)
        return Part("text", text)

    def add_reasoning(self, text: str) -> Part:
        self._reasoning.append(text)
        return Part("reasoning", text)

    def begin_call(self, id: str, name: str, arguments: str = "") -> Part:
        """A further tool call begins."""
        self._calls.append(_Call(id, name, [arguments]))
        return Part("tool_call", arguments, len(self._calls) - 1, name)

    def add_arguments(self, index: int, arguments: str) -> Part:
        """More of the arguments of the call with that number."""
        self._calls[index].arguments.append(arguments)
        return Part("tool_call", arguments, index)

    def id_of(self, index: int) -> str:
        return self._calls[index].id

    def completion(self, usage: Usage | None, by: str) -> Completion:
        """`by`: who alone can read what it signed."""
        signed: dict[str, Any] = {"by": by}
        if self.thinking_blocks:
            signed["thinking_blocks"] = self.thinking_blocks
        if self.reasoning_details:
            signed["reasoning_details"] = self.reasoning_details
        return Completion(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=self._tool_calls(),
            stop=self.stop,
            usage=usage,
            provider=signed if len(signed) > 1 else None,
        )

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        """Each with an id of its own: results are matched by it, and not every server gives one."""
        given: set[str] = set()
        calls = []
        for call in self._calls:
            id = call.id if call.id and call.id not in given else f"call_{uuid.uuid4().hex}"
            given.add(id)
            calls.append(ToolCall(id, call.name, "".join(call.arguments) or "{}"))
        return tuple(calls)


class Form(Protocol):
    """How a provider's events are read. Sans-IO."""

    partial: PartialCompletion
    #: the connection may end now, but the usage may still come
    whole: bool
    #: nothing comes after it
    over: bool

    def read(self, event: Any) -> list[Part]:
        """What one event adds. Raises Failure for the provider's own error; anything else that it
        raises means that the event makes no sense."""
        ...
