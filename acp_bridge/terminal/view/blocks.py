"""The blocks of which the picture of a session consists, in the order of what was said and done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Voice(Enum):
    """Who says a text."""

    #: a person at this terminal, or at another client.
    USER = "user"
    #: the agent, in Markdown.
    AGENT = "agent"
    #: the agent to itself, in Markdown.
    THOUGHT = "thought"
    #: the bridge, in Markdown.
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, or a few, that one voice says; `first`: nothing of the message stands before."""

    voice: Voice
    text: str
    first: bool = True


@dataclass(frozen=True, slots=True)
class Diff:
    """A change of a file; `old` is None for a file that was not there."""

    path: str
    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool call gave, or what it is to do: lines of plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Card:
    """A tool call as it stands; `whole`: all of it is shown, since it is to be decided on."""

    title: str
    kind: str
    status: str
    #: paths, perhaps with a line: `src/a.py:12`.
    locations: tuple[str, ...] = ()
    content: tuple[Diff | Output, ...] = ()
    whole: bool = False


class Step(Enum):
    """How far an entry of a plan is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan as it stands: what is to be done, and how far it is."""

    entries: tuple[tuple[Step, str], ...]


class Tone(Enum):
    """How a line of this program's own is meant."""

    #: something changed, such as the mode.
    NEWS = "news"
    #: something went wrong.
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of this program's own, such as a change of mode, or how a turn ended."""

    text: str
    tone: Tone = Tone.NEWS


Block = Text | Card | Plan | Line
