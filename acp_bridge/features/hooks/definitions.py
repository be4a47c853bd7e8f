"""One hook: the moment at which it runs, its command, and its limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: seconds that a hook may take, if it says nothing else, and at most.
DEFAULT_TIMEOUT: Final = 60.0
MAX_TIMEOUT: Final = 600.0


class HookEvent(StrEnum):
    """The moments at which hooks run, named as in Claude Code where it has the same moment."""

    SESSION_START = "SessionStart"
    SESSION_END = "SessionEnd"
    PROMPT = "UserPromptSubmit"
    PERMISSION = "PermissionRequest"
    TURN_END = "Stop"
    WAITING = "Notification"
    DEATH = "AgentDied"


#: the events whose hooks may have a matcher.
MATCHED: Final = frozenset(
    {HookEvent.SESSION_START, HookEvent.SESSION_END, HookEvent.PERMISSION, HookEvent.WAITING}
)


@dataclass(frozen=True, slots=True)
class Hook:
    """A command and when it runs."""

    event: HookEvent
    #: a text for /bin/sh, or the words of a command.
    command: str | tuple[str, ...]
    #: a regular expression for the whole name; empty or "*": every name.
    matcher: str = ""
    #: seconds after which the hook is killed.
    timeout: float = DEFAULT_TIMEOUT
    #: the hook is a project's, and runs only while the user trusts it.
    project: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The command line to be executed."""
        if isinstance(self.command, str):
            return ("/bin/sh", "-c", self.command)
        return self.command

    @property
    def shown(self) -> str:
        """The command as a person reads it."""
        return self.command if isinstance(self.command, str) else " ".join(self.command)

    def matches(self, names: tuple[str, ...]) -> bool:
        """Return True if the hook is for one of these names.

        A call without a name may be anything, so every hook is for it.
        """
        if self.matcher in ("", "*") or not any(names):
            return True
        return any(re.fullmatch(self.matcher, name) for name in names if name)
