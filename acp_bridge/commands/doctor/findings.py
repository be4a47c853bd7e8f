"""What a check finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from threading import Thread
from typing import TypeVar

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token

from acp_bridge.commands.doctor.masking import Mask
from acp_bridge.protocol import Json
from acp_bridge.settings import Settings

_Found = TypeVar("_Found")


class Level(Enum):
    """Says how bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    level: Level
    text: str
    #: what to do about it, if there is something.
    next: str = ""
    #: figures and names for programs that read the report.
    data: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at."""

    settings: Settings
    #: the agent is one of this project's, and which model it is to have; None if it chooses.
    own_agent: bool
    model: str | None
    #: why the agent can't be started at all, if that is known.
    hindrance: str | None
    env: Mapping[str, str]
    mask: Mask
    #: the model may be asked.
    online: bool = False


def ok(text: str, next: str = "", **data: object) -> Finding:
    """Return a finding that is well."""
    return Finding(Level.OK, text, next, data)


def warning(text: str, next: str = "", **data: object) -> Finding:
    """Return a finding that the user should know."""
    return Finding(Level.WARNING, text, next, data)


def error(text: str, next: str = "", **data: object) -> Finding:
    """Return a finding that keeps something from working."""
    return Finding(Level.ERROR, text, next, data)


class Silent(Exception):
    """A disk has not answered in time."""


async def in_thread(look: Callable[[], _Found], within: float) -> _Found:
    """Return what a function returns that may wait for a disk. Raises Silent, and what it raises.

    A thread that hangs is left behind. It is a daemon, as anyio's own are not, so that it does not
    keep the process from ending.
    """
    token, done, outcome = current_token(), anyio.Event(), Future[_Found]()

    def work() -> None:
        try:
            outcome.set_result(look())
        except Exception as failed:
            outcome.set_exception(failed)
        with suppress(Exception):  # nobody waits any more
            from_thread.run_sync(done.set, token=token)

    Thread(target=work, name="doctor", daemon=True).start()
    try:
        with anyio.fail_after(within):
            await done.wait()
    except TimeoutError:
        raise Silent(f"the disk has not answered within {within:g} s") from None
    return outcome.result()
