"""What a history is made of: prompts and answers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent.model import SpokenKind, ToolCall

#: a line of the transcript (see `agent.conversation.history`)
Record: TypeAlias = dict[str, Any]
Entry: TypeAlias = "Prompt | Answer"

#: the result of a call that has none
INTERRUPTED = "interrupted by the user"


@dataclass(slots=True)
class Outcome:
    status: str
    text: str
    raw: Any = None
    #: ACP tool call content for the card; None: the text
    content: list[dict[str, Any]] | None = None
    #: `data:` URLs for the model
    images: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Call:
    """A tool call with the card it was shown as; `outcome` is None while it runs."""

    call: ToolCall
    card: dict[str, Any]
    outcome: Outcome | None = None
    #: the model is no longer given the result
    trimmed: bool = False


@dataclass(slots=True)
class Prompt:
    blocks: list[dict[str, Any]]
    #: the session's when it was said ("" if not known), and before
    mode: str = ""
    mode_before: str = ""
    #: what a model is given of them, with images or without; made when it is needed first
    contents: dict[bool, str | list[dict[str, Any]]] = field(default_factory=dict)
    #: its turn was: no model is given it any more
    refused: bool = False


@dataclass(slots=True)
class Run:
    """Tokens of one kind in a row."""

    kind: SpokenKind
    tokens: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        if len(self.tokens) != 1:
            self.tokens = ["".join(self.tokens)]
        return self.tokens[0]


@dataclass(slots=True)
class Answer:
    """One completion: runs of text and reasoning as they came, then calls."""

    runs: list[Run] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    #: see `Completion.provider`
    provider: Mapping[str, Any] | None = None
    #: the plan as it was last told (ACP plan entries)
    plan: list[dict[str, Any]] | None = None
    #: its turn was: no model is given it any more
    refused: bool = False

    def run(self, kind: SpokenKind) -> Run:
        """The one that a token of that kind belongs to."""
        if not self.runs or self.runs[-1].kind != kind:
            self.runs.append(Run(kind))
        return self.runs[-1]

    def said(self, kind: SpokenKind) -> str:
        return "".join(run.text for run in self.runs if run.kind == kind)

    @property
    def has_results(self) -> bool:
        return any(call.outcome is not None for call in self.calls)


@dataclass(frozen=True, slots=True)
class Summary:
    """Stands for the first `entries` entries."""

    text: str
    entries: int
    #: the prompt that the first entry after them answers, which is said again
    prompt: Prompt | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """`cost`: USD of all calls whose cost is known, None if there was none; `context`: tokens of
    the last call that answered the user, input and output."""

    cost: float | None = None
    context: int = 0
