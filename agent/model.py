"""The seam to a language model: what the loop gives it, and what it gets back.

Invariants
- A model tells every token to `on_token` before `complete` returns, in order.
- A model keeps no memory: everything it knows is in `messages`.
- Cancelling `complete` stops the model; nothing is told afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict


class Message(TypedDict, total=False):
    """One entry of the history, in the shape of chat completions that every model library takes."""

    role: Literal["system", "user", "assistant", "tool"]
    #: a text, or parts: `{"type": "text", "text"}`, `{"type": "image_url", "image_url": {"url"}}`
    #: where the URL is a `data:` one
    content: str | list[dict[str, Any]]
    #: assistant: what it thought before it spoke
    reasoning_content: str
    #: assistant: `{"id", "type": "function", "function": {"name", "arguments"}}` each
    tool_calls: list[dict[str, Any]]
    #: assistant: what the provider wants back unchanged (see `Completion.provider`)
    provider: dict[str, Any]
    #: tool: the call that this is the result of
    tool_call_id: str


#: how a `user` message begins that brings the images of tools instead of a prompt
TOOL_IMAGES = "What the tools showed:"

#: `{"type": "function", "function": {"name", "description", "parameters"}}`
ToolSpec = dict[str, Any]

SpokenKind = Literal["text", "reasoning"]
#: `notice`: why nothing is said yet, a sentence that the user is shown and nobody keeps
PartKind = Literal["text", "reasoning", "tool_call", "notice"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a streamed answer; a bare string stands for a `text` part."""

    kind: PartKind
    #: of a tool call: the next piece of its arguments' JSON
    text: str
    #: of a tool call: which one of the answer, from 0, and, in its first piece, its name
    index: int = 0
    name: str = ""


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
    """Tokens of one call, and what it cost in USD if that is known."""

    input: int
    output: int
    #: of `input`: read from the provider's cache
    cached: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: Stop = "end_turn"
    usage: Usage | None = None
    #: what the provider wants to see again in the next call (signed thoughts): JSON, kept in the
    #: transcript and given back in the message's `provider`
    provider: Mapping[str, Any] | None = None


#: `context`: the messages don't fit the model's window
ErrorKind = Literal[
    "auth", "rate_limit", "context", "refused", "unreachable", "unknown_model", "other"
]


class ModelError(Exception):
    """The model could not answer. The text is one sentence for the user: what is wrong and what
    to do, nothing of a library's; what happened in detail is the cause, for the log."""

    def __init__(self, text: str, kind: ErrorKind = "other") -> None:
        super().__init__(text)
        self.kind = kind


#: what providers call how hard a model thinks, weakest first
THOUGHT_LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    #: tokens that fit, input and output together; None if not known
    window: int | None = None
    takes_images: bool = False
    #: how hard it can be told to think, weakest first; empty if it can't be told
    thought_levels: tuple[str, ...] = ()


class Model(Protocol):
    """One model with its settings."""

    id: str

    async def info(self) -> ModelInfo:
        """May wait for a library to be imported, never for the internet, and for a server on the
        user's own machine some seconds at most."""
        ...

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        """Answer `messages`, telling every token to `on_token`. Raises ModelError."""
        ...


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model as it is offered to the client."""

    id: str
    name: str
    description: str | None = None


class Models(Protocol):
    """The models that there are."""

    @property
    def default(self) -> str:
        """The id of the model that a new session begins with."""
        ...

    def offered(self) -> Sequence[ModelChoice]:
        """`default` among them. Looked up anew each time: a key may have been added."""
        ...

    async def warm(self) -> None:
        """Do what the first call of the default model would have to wait for, in a thread."""
        ...

    def open(self, model_id: str, thought_level: str | None = None) -> Model:
        """Raises ModelError: `auth` if its key is missing (the text names the variable),
        `unknown_model`."""
        ...
