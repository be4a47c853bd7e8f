"""The blocks that a session consists of when it is shown, in the order of their beginning.

`Said`, `Call` and `Plan` are read from updates (`from_updates`) and are the same for every medium;
their texts are unchanged. `Paragraph` and `Line` exist on terminals only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from acp_bridge.core.protocol import Json, follows_apart


class Voice(Enum):
    """The speaker of a text."""

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
    """A content block of ACP; members that it doesn't have are empty."""

    #: `text`, `resource_link`, `image` and so on.
    type: str
    #: the text of a `text` block, or of a `resource` that contains text.
    text: str | None = None
    uri: str = ""
    name: str = ""
    mime_type: str = ""
    #: the base64 of an image, or of a resource that may be one.
    data: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of a message, with the update that brought it."""

    voice: Voice
    content: Content | None
    update: Json

    def goes_on(self, before: Said | None) -> bool:
        """Return True if this piece continues the message of the piece `before`."""
        if before is None or before.voice is not self.voice:
            return False
        return not follows_apart(before.update, self.update)


@dataclass(frozen=True, slots=True)
class Call:
    """An update of a tool call, and all that was known of the call before it and is known now."""

    call_id: str
    update: Json
    #: None for the first update of a call.
    before: Json | None
    now: Json


@dataclass(frozen=True, slots=True)
class Diff:
    """A change of a file; `old` is None for a new file."""

    path: str
    old: str | None
    new: str


class Extent(Enum):
    """How much of a tool call's output and diffs is shown."""

    #: a few lines.
    SHORT = "short"
    #: enough for a person to decide on a permission.
    ASKED = "asked"
    #: all of it.
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Card:
    """The current state of a tool call."""

    title: str
    kind: str = ""
    #: ACP's status; `completed` only for a success, else `ended` (`command_ends.status`).
    status: str = ""
    #: paths, with a line number if there is one: `src/a.py:12`.
    locations: tuple[str, ...] = ()
    #: its changes of files and its content.
    content: tuple[Diff | Content, ...] = ()
    #: its raw output, for calls that have no content.
    output: str = ""
    #: how its command ended, such as "exit code 1"; "" for a success and where it is not known.
    end: str = ""
    #: it runs a command, whose output matters most at its end.
    command: bool = False
    extent: Extent = Extent.SHORT


class Step(Enum):
    """The status of an entry of a plan."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Plan:
    """The current plan: its entries, each with its status and text."""

    entries: tuple[tuple[Step, str], ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One or several paragraphs of a message; `first`: they are the first of the message."""

    voice: Voice
    text: str
    first: bool = True


class Tone(Enum):
    """The meaning of a line of this program's own."""

    #: something changed, such as the mode.
    NEWS = "news"
    #: something went wrong.
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of this program's own, such as a change of mode, or how a turn ended."""

    text: str
    tone: Tone = Tone.NEWS


#: a block as a terminal shows it.
Block = Paragraph | Card | Plan | Line
