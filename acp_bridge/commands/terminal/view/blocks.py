"""The blocks that make up what a session shows, in the order of what was said and done.

`Said`, `Call` and `Plan` are read from updates (`from_updates`) and are the same for every medium;
their texts are as they came. `Paragraph` and `Line` are what a terminal adds to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from acp_bridge.protocol import Json, follows_apart


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
    #: a hook, which tells the agent to go on working.
    HOOK = "hook"


@dataclass(frozen=True, slots=True)
class Content:
    """A content block of ACP; what it doesn't have is empty."""

    #: such as `text`, `resource_link` or `image`.
    type: str
    #: of a text, and of a resource that holds one.
    text: str | None = None
    uri: str = ""
    name: str = ""
    mime_type: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of a message, and the update that brought it."""

    voice: Voice
    content: Content | None
    update: Json

    def goes_on(self, before: Said | None) -> bool:
        """Return True if this piece belongs to the same message as the piece before it."""
        if before is None or before.voice is not self.voice:
            return False
        return not follows_apart(before.update, self.update)


@dataclass(frozen=True, slots=True)
class Call:
    """An update of a tool call, and all that is known of the call before and after it."""

    call_id: str
    update: Json
    #: None for a call that was not heard of before.
    before: Json | None
    now: Json


@dataclass(frozen=True, slots=True)
class Diff:
    """A change of a file; `old` is None for a file that was not there."""

    path: str
    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class Card:
    """A tool call as it stands; `whole`: show all of it, since a person is to decide on it."""

    title: str
    kind: str = ""
    status: str = ""
    #: paths, perhaps with a line: `src/a.py:12`.
    locations: tuple[str, ...] = ()
    #: what it changes or gives, or is to do.
    content: tuple[Diff | Content, ...] = ()
    #: its raw output, for a medium that has nothing else to show.
    output: str = ""
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


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a message, or a few; `first`: nothing of the message stands before."""

    voice: Voice
    text: str
    first: bool = True


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


#: what a terminal shows.
Block = Paragraph | Card | Plan | Line
