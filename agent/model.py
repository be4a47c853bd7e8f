"""The seam to a language model: what the loop gives it, and what it gets back.

Invariants
- A model tells every token to `on_token` before `complete` returns, in order.
- A model keeps no memory: everything it knows is in `messages`.
- Cancelling `complete` stops the model; nothing is told afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict


class Message(TypedDict, total=False):
    """One entry of the history, in the shape of chat completions that every model library takes."""

    role: Literal["user", "assistant", "tool"]
    content: str
    #: assistant: what it thought before it spoke
    reasoning_content: str
    #: assistant: `{"id", "type": "function", "function": {"name", "arguments"}}` each
    tool_calls: list[dict[str, Any]]
    #: tool: the call that this is the result of
    tool_call_id: str


#: `{"type": "function", "function": {"name", "description", "parameters"}}`
ToolSpec = dict[str, Any]

PartKind = Literal["text", "reasoning"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a streamed answer; a bare string stands for a `text` part."""

    kind: PartKind
    text: str


Token = str | Part | None
OnToken = Callable[[Token], Awaitable[None]]

#: how one completion ended; the loop turns it into the turn's stop reason
Stop = Literal["end_turn", "max_tokens", "refusal"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    #: JSON text exactly as the model wrote it, perhaps not valid
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens."""

    input: int
    output: int


@dataclass(frozen=True, slots=True)
class Completion:
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: Stop = "end_turn"
    usage: Usage | None = None


class ModelError(Exception):
    """The model could not answer. Its text is for the log, not for the wire."""


class Model(Protocol):
    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        """Answer `messages`, telling every token to `on_token`. Raises ModelError."""
        ...


def open_model(spec: str) -> Model:
    """The model that `spec` names: `demo`, or `scripted:PATH`.

    Raises ValueError for a name that is neither, OSError for a file that can't be read, and
    `agent.dialogue.DialogueError` for one that is no dialogue.
    """
    from agent.dialogue import demo_dialogue, read_dialogue
    from agent.scripted_model import ScriptedModel

    if spec == "demo":
        return ScriptedModel(demo_dialogue())
    kind, _, path = spec.partition(":")
    if kind == "scripted" and path:
        return ScriptedModel(read_dialogue(path))
    raise ValueError(f"no such model: {spec!r} (known: demo, scripted:PATH)")
