"""The interface of a language model: what a turn gives it, and what the turn gets back.

Invariants
- A model passes every token to `on_token` before `complete` returns, in order.
- A model keeps no memory: everything it knows is in `messages`.
- Cancelling `complete` stops the model; no token comes afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

from msgspec import Struct


class Message(TypedDict, total=False):
    """One message to a model, in the form of chat completions."""

    role: Literal["system", "user", "assistant", "tool"]
    #: a text, or parts: `{"type": "text", "text"}` or
    #: `{"type": "image_url", "image_url": {"url"}}` with a `data:` URL
    content: str | list[dict[str, Any]]
    #: assistant: its reasoning before the answer
    reasoning_content: str
    #: assistant: a list of `{"id", "type": "function", "function": {"name", "arguments"}}`
    tool_calls: list[dict[str, Any]]
    #: assistant: JSON for the provider that must get it back unchanged (see `Completion.provider`)
    provider: dict[str, Any]
    #: tool: the id of the call whose result this is
    tool_call_id: str


#: the id of the model with prepared answers that is used if there is no key
DEMO = "demo"

#: the beginning of a `user` message that has images of tools, and is no prompt
TOOL_IMAGES = "What the tools showed:"

#: the beginning of a `user` message in which the agent itself tells the model something
NOTE = "[From acp-bridge, not from the user]"

#: `{"type": "function", "function": {"name", "description", "parameters"}}`
ToolSpec = dict[str, Any]

SpokenKind = Literal["text", "reasoning"]
#: `notice`: a sentence on why nothing comes yet; it is shown to the user and not recorded
PartKind = Literal["text", "reasoning", "tool_call", "notice"]


class Part(Struct, frozen=True):
    """A piece of a streamed answer; a plain string stands for a `text` part."""

    kind: PartKind
    #: in a `tool_call` part, the next piece of the arguments' JSON
    text: str
    #: in a `tool_call` part, the number of the call in its answer, from 0
    index: int = 0
    #: the name of the tool, in the first part of its call
    name: str = ""


Token = str | Part | None
OnToken = Callable[[Token], Awaitable[None]]

#: how a completion ended; the turn's stop reason follows from it
Stop = Literal["end_turn", "max_tokens", "refusal"]


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    #: JSON as the model wrote it, perhaps malformed
    arguments: str


class Usage(Struct, frozen=True):
    """The tokens of one model call. `cost`: USD, None if it is not known."""

    input: int
    output: int
    #: the part of `input` that was read from the provider's cache
    cached: int = 0
    cost: float | None = None


class Completion(Struct, frozen=True):
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: Stop = "end_turn"
    usage: Usage | None = None
    #: JSON that the provider wants back in the next call (signed thoughts); the transcript keeps
    #: it, and the message's `provider` returns it
    provider: Mapping[str, Any] | None = None
    #: True if the provider says that the answer ended for a tool call, and it has none
    announced: bool = False


#: `missing_key`: no key was found; `auth`: the provider doesn't accept the key; `context`: the
#: messages do not fit the model's window; `refused`: by the provider's policy
ErrorKind = Literal[
    "missing_key",
    "auth",
    "rate_limit",
    "context",
    "refused",
    "unreachable",
    "unknown_model",
    "other",
]


class ModelError(Exception):
    """The model could not answer.

    The text tells the user what is wrong and what to do, then what the provider's server says. It
    has no words of a library; the details are the error's cause, for the log. `window`: the size of
    the model's window in tokens, if the provider named it when it refused the input. `wait`: the
    seconds after which the provider takes requests again, if it has told. `may_be_context`: of
    another kind than `context`, but the provider's words don't tell it from that.
    """

    may_be_context = False

    def __init__(
        self,
        text: str,
        kind: ErrorKind = "other",
        window: int | None = None,
        wait: float | None = None,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.window = window
        self.wait = wait


#: the providers' names for how hard a model thinks, weakest first
THOUGHT_LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class ModelInfo(Struct, frozen=True):
    #: the window in tokens, input and output together; None if it is not known
    window: int | None = None
    takes_images: bool = False
    #: the thought levels that the model takes, weakest first; empty if it takes none
    thought_levels: tuple[str, ...] = ()


class Model(Protocol):
    """One model with its settings."""

    id: str

    async def info(self) -> ModelInfo:
        """Returns the model's window and abilities, as far as they are known.

        May wait for a library's import, and some seconds for a server on the user's own machine,
        but never for the internet.
        """
        ...

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        """Answers `messages`, passing every token to `on_token`. Raises ModelError."""
        ...


class ModelChoice(Struct, frozen=True):
    """A model as it is offered to the client."""

    id: str
    name: str
    description: str | None = None


class Models(Protocol):
    """The models that can be used."""

    @property
    def default(self) -> str:
        """The id of the model that a new session begins with."""
        ...

    def offered(self) -> Sequence[ModelChoice]:
        """Returns the models to choose from, `default` among them.

        They are looked up each time, because a key may have been added.
        """
        ...

    def takes(self, model_id: str) -> bool:
        """Returns True for a model that is not offered, but whose provider is known."""
        ...

    async def warm(self) -> None:
        """Loads, in a thread, what the first call of the default model would have to wait for."""
        ...

    def open(self, model_id: str, thought_level: str | None = None) -> Model:
        """Returns the model with these settings.

        Raises ModelError: `missing_key` if its key is missing (the text names the variable), or
        `unknown_model`.
        """
        ...
