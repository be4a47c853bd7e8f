"""What checks take and return: the subject and the findings; and a thread for slow disks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

import anyio

from acp_bridge.core.keys.masking import Mask
from acp_bridge.core.protocol import Json
from acp_bridge.core.runtime.threads import in_daemon_thread
from acp_bridge.core.settings import Settings

_Found = TypeVar("_Found")
#: seconds for a disk to answer.
_DISK: Final = 10.0


class Level(Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check, a line of the report."""

    level: Level
    text: str
    #: what the user should do about it; "" for nothing.
    next: str = ""
    #: figures and names, for programs that read the report.
    data: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subject:
    """What the checks examine: a bridge's settings, its agent and the user's environment."""

    settings: Settings
    #: the agent is one of this project's.
    own_agent: bool
    #: the agent's model; None if the agent chooses.
    model: str | None
    #: why the agent can't be started, if that is known without a try.
    hindrance: str | None
    env: Mapping[str, str]
    mask: Mask
    #: the model may be sent a request.
    online: bool = False
    #: the data folder can be looked into; if not, the check of the data folder has said why.
    home_usable: bool = True


def ok(text: str, next: str = "", **data: object) -> Finding:
    """Return a finding that all is well."""
    return Finding(Level.OK, text, next, data)


def warning(text: str, next: str = "", **data: object) -> Finding:
    """Return a finding that the user should know about."""
    return Finding(Level.WARNING, text, next, data)


def error(text: str, next: str = "", **data: object) -> Finding:
    """Return a finding about something that keeps acp-bridge from working."""
    return Finding(Level.ERROR, text, next, data)


#: the finding of a check whose only trouble is the data folder's: one cause has one finding.
NO_HOME: Final = ok("not looked at: the data folder can't be used")


class Silent(Exception):
    """A disk did not answer in time; the text is for the user."""


async def from_disk(look: Callable[[], _Found], within: float = _DISK) -> _Found:
    """Call `look`, which may wait for a disk, in a thread, and return its result.

    Raises Silent after `within` seconds, when the thread is abandoned, and what `look` raises.
    """
    with anyio.move_on_after(within):
        return await in_daemon_thread(look)
    raise Silent(f"the disk has not answered within {within:g} s")


async def in_home(subject: Subject, named: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """Return what `look` finds in the data folder, or a finding that says why it found nothing.

    `named`: what is looked at, for the finding that the disk does not answer.
    """
    if not subject.home_usable:
        return [NO_HOME]
    try:
        return await from_disk(look)
    except Silent as silent:
        return [warning(f"{named} can't be looked at: {silent}")]
