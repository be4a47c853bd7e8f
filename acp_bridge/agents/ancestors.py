"""Tells if this process was started by an agent, however indirectly."""

from __future__ import annotations

import os
from typing import Final

from acp_bridge.agents.guard import COMMAND_LINE, LINUX

#: what stands in the command line of a guard, or of the parent that has forked it, and of nothing
#: else.
_MARKS: Final = frozenset({os.fsencode(COMMAND_LINE[-2]), b"agent.fork_parent"})


def descends_from_guard() -> bool:
    """Return True below a guard: that is where agents and all their processes are.

    A guard adopts every orphan below it, so that no double fork leads out. On macOS nobody can
    tell.
    """
    pid = os.getppid() if LINUX else 0
    while pid > 1:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat", "rb") as file:
                # "PID (NAME) STATE PPID ...": only NAME may hold blanks and brackets
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError):  # it ended, or is hidden from us
            return False
        if not _MARKS.isdisjoint(words):
            return True
        pid = parent
    return False
