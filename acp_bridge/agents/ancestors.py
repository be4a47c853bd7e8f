"""Tells if a process was started by an agent, however indirectly.

A guard adopts every orphan below it on Linux, so that no double fork leads out. On macOS, where
nothing is adopted, a process that has lost a parent can't be told any more.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from acp_bridge.agents.guard import COMMAND_LINE, LINUX

#: what stands in the command line of a guard, or of the parent that has forked it, and of nothing
#: else.
_MARKS: Final = frozenset({os.fsencode(COMMAND_LINE[-2]), b"agent.fork_parent"})
#: ancestors that end while they are looked at, one after the other.
_TRIES: Final = 5
#: seconds that `ps` may take.
_PS: Final = 1.0


class Unseen(Exception):
    """An ancestor can't be seen, or ancestors end faster than they can be looked at."""


def descends_from_guard() -> bool:
    """Return True if this process is below a guard: that is where agents and their processes are.

    On macOS, and where an ancestor is hidden, it returns False: nobody can tell.
    """
    parent = os.getppid()
    try:
        return LINUX and (is_guard(parent) or is_below(parent, is_guard))
    except (OSError, Unseen):
        return False


def is_below(pid: int, is_meant: Callable[[int], bool]) -> bool:
    """Return True if one of the ancestors of a process is meant; raises Unseen.

    The caller has to see to it that `pid` is of the same process before and after.
    """
    for _ in range(_TRIES):
        try:
            line = [pid]
            # The first process of a container is one of ours if a bridge was started as that.
            while (parent := _parent(line[-1])) > 1 or parent == os.getpid():
                line.append(parent)
            # A process whose child still has it as its parent has lived all the time, so that
            # what was read meanwhile is its own. From the top, as what is below a guard may lie.
            for above, below in pairwise(reversed(line)):
                if is_meant(above):
                    return True
                if _parent(below) != above:
                    raise ProcessLookupError
            return False
        except (OSError, ValueError, subprocess.SubprocessError):
            pass  # one has ended, or is hidden from us
    raise Unseen


def is_guard(pid: int) -> bool:
    """Return True for a guard, and for the parent of forked ones; raises OSError."""
    if not LINUX:
        return any(mark in _ps(pid, "command") for mark in _MARKS)
    return not _MARKS.isdisjoint(words_of(pid))


def words_of(pid: int) -> list[bytes]:
    """Return the command line of a process of Linux; raises OSError."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\0")


def _parent(pid: int) -> int:
    """Return the parent of a process; raises OSError, ValueError."""
    if not LINUX:
        return int(_ps(pid, "ppid"))
    with open(f"/proc/{pid}/stat", "rb") as file:
        # "PID (NAME) STATE PPID ...": only NAME may hold blanks and brackets
        return int(file.read().rpartition(b")")[2].split()[1])


def _ps(pid: int, column: str) -> bytes:  # macOS: written for, untested
    command = ["ps", "-ww", "-o", f"{column}=", "-p", str(pid)]
    found = subprocess.run(command, stdout=subprocess.PIPE, timeout=_PS, check=True).stdout
    return found.strip()
