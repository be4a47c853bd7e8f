"""The entries of a history: prompts, and answers with their tool calls. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from agent.model import SpokenKind, ToolCall

#: a line of the transcript (see `agent.conversation.history`)
Record: TypeAlias = dict[str, Any]
Entry: TypeAlias = "Prompt | Answer | Note"

#: the beginning of the result of a call whose tool is unknown
NO_TOOL = "There is no tool named "
#: the result for a call that has none
INTERRUPTED = "interrupted by the user"


class Outcome(Struct):
    """The end of a tool call, for the model and for the client's card."""

    status: str
    text: str
    raw: Any = None
    #: ACP tool call content for the card; None: the card shows the text
    content: list[dict[str, Any]] | None = None
    #: `data:` URLs for the model
    images: list[str] = field(default_factory=list)
    #: False: nothing of the call was run
    ran: bool = True


class Call(Struct):
    """A tool call and its card; `outcome` is None while it runs."""

    call: ToolCall
    card: dict[str, Any]
    outcome: Outcome | None = None
    #: True if the model is no longer given the result
    trimmed: bool = False


class Prompt(Struct):
    """A prompt of the user, as ACP content blocks, or words that joined a turn."""

    blocks: list[dict[str, Any]]
    #: the mode of the session at this prompt and at the one before; "" if not known
    mode: str = ""
    mode_before: str = ""
    #: the tools that were called earlier and are missing at this prompt, and at the one before
    gone: tuple[str, ...] = ()
    gone_before: tuple[str, ...] = ()
    #: the message's `content` for a model that takes images (True) or none (False), cached
    contents: dict[bool, str | list[dict[str, Any]]] = field(default_factory=dict)
    #: True for words that joined the turn of the prompt before them
    joined: bool = False
    #: True if the model refused the turn: no model is given it any more
    refused: bool = False


class Note(Struct):
    """A text of the agent itself for the model in a turn; the user is not shown it."""

    text: str
    #: True if the model refused the turn: no model is given it any more
    refused: bool = False


class Run(Struct):
    """Consecutive tokens of one kind, joined."""

    kind: SpokenKind
    tokens: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        if len(self.tokens) != 1:
            self.tokens = ["".join(self.tokens)]
        return self.tokens[0]


class Answer(Struct):
    """One completion of the model: its texts and reasoning in order, then its tool calls."""

    runs: list[Run] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    #: see `Completion.provider`
    provider: Mapping[str, Any] | None = None
    #: the last plan of this answer, as ACP plan entries
    plan: list[dict[str, Any]] | None = None
    #: True if the provider says that the answer ended for a tool call, and it has none
    announced: bool = False
    #: True if the model refused the turn: no model is given it any more
    refused: bool = False

    def run(self, kind: SpokenKind) -> Run:
        """Returns the run to which the next token of this kind belongs."""
        if not self.runs or self.runs[-1].kind != kind:
            self.runs.append(Run(kind))
        return self.runs[-1]

    def said(self, kind: SpokenKind) -> str:
        return "".join(run.text for run in self.runs if run.kind == kind)

    @property
    def has_results(self) -> bool:
        return any(call.outcome is not None for call in self.calls)


class Summary(Struct, frozen=True):
    """A text that the model is given in place of the first `entries` entries."""

    text: str
    entries: int
    #: the prompt that the entry after the summarised ones answers, and the words that joined its
    #: turn before: the model is given them again, after the summary
    prompts: Sequence[Prompt] = ()


class Spent(Struct, frozen=True):
    """The tokens and money that a session has spent.

    `cost`: USD of all calls whose cost is known, None if there was none. `context`: tokens of the
    last call that answered the user, input and output together. `input`, `output`, `cached`: tokens
    of all calls; those read from a provider's cache are a part of `input`.
    """

    cost: float | None = None
    context: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
