"""Tells in words for the user why an agent process did not start, or how it ended.

The words name the user's command, never a path, and no text of the system's.
"""

import errno
import signal
from dataclasses import dataclass
from typing import Final, Self

NOT_FOUND = "command not found"
_NOT_EXECUTABLE = "command is not executable"

#: Errors of exec that another try would have again.
_PERMANENT = {
    errno.ENOENT: NOT_FOUND,
    errno.ENOTDIR: NOT_FOUND,
    errno.ENAMETOOLONG: NOT_FOUND,
    errno.ELOOP: NOT_FOUND,
    errno.EACCES: _NOT_EXECUTABLE,
    errno.EPERM: _NOT_EXECUTABLE,
    errno.EISDIR: _NOT_EXECUTABLE,
    errno.ENOEXEC: _NOT_EXECUTABLE,
    errno.E2BIG: "arguments or environment too long for",
}

#: why there is no agent where the system has no room for one.
NO_ROOM: Final = (
    "the system could not start a process. If you run many, end some, or raise your limit"
    " (ulimit -u)"
)


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of an agent's main process, by an exit code or a signal; the other one is None."""

    code: int | None
    signal: int | None

    @property
    def by_others(self) -> bool:
        """True if another process has ended it: by a signal that no fault of its own causes."""
        return self.signal in (signal.SIGKILL, signal.SIGTERM)

    def describe(self) -> str:
        """Return e.g. "exit code 3" or "signal SIGKILL"."""
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(self.signal).name}"
        except ValueError:  # one of the real-time signals
            return f"signal {self.signal}"


class StartFailed(Exception):
    """The agent could not be started; `permanent` if another try would fail too."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent

    @classmethod
    def by_exec(cls, number: int, command: str) -> Self:
        """Return the failure for the errno with which `command` could not be executed."""
        if reason := _PERMANENT.get(number):
            return cls(f"{reason}: {command}", permanent=True)
        why = NO_ROOM if number == errno.EAGAIN else f"cannot be started now: {command}"
        return cls(why, permanent=False)


class GuardDied(StartFailed):
    """The guard has ended before it told of the start: somebody has killed it."""

    def __init__(self) -> None:
        super().__init__("its guard has ended", permanent=False)
