"""Tells if a process was started by an agent, however indirectly (invariant V6).

On Linux every agent and all that it starts carries the guard's mark, a lowered hard limit: it is
inherited over fork and exec, only root can raise it again, and it needs no ancestor that still
lives, nor any file. What somebody else starts on an agent's word has none.

macOS has no such limit, so the ancestors are looked at there: a process that has lost one of them
can't be told any more. That part is written for macOS and is tested on Linux alone.
"""

from __future__ import annotations

import os
import resource
import subprocess
from itertools import pairwise
from typing import Final

from acp_bridge.agents.guard import COMMAND_LINE, LINUX, MARKED_LIMIT

#: the words of a guard's command line behind the interpreter, up to its own folder: the program
#: that Python is given, and no argument which a path or a title could be.
_GUARD: Final = os.fsencode(" " + " ".join(COMMAND_LINE[1:-1]) + " ")
#: ancestors that end while they are looked at, one after the other.
_TRIES: Final = 5
#: seconds that `ps` may take.
_PS: Final = 1.0


class Unseen(Exception):
    """The process can't be looked at, or its ancestors end faster than they can be."""


def runs_in_agent() -> bool:
    """Return True if this process was started by an agent; False where nobody can tell."""
    try:
        return is_from_agent(os.getpid())
    except Unseen:
        return False


def is_from_agent(pid: int) -> bool:
    """Return True if a process is an agent or was started by one; raises Unseen.

    The caller has to see to it that `pid` is of the same process before and after.
    """
    if not LINUX:
        return _is_below_guard(pid)
    try:
        _, hard = resource.prlimit(pid, MARKED_LIMIT)
    except OSError as exc:  # it has ended, or it is another user's
        raise Unseen from exc
    return hard != resource.RLIM_INFINITY  # an agent may lower the limit further


def _is_below_guard(pid: int) -> bool:
    for _ in range(_TRIES):
        try:
            line = [pid]
            while (parent := int(_ps(line[-1], "ppid"))) > 1:
                line.append(parent)
            # A process whose child still has it as its parent has lived all the time, so that
            # what was read meanwhile is its own. From the top, as what is below a guard may lie.
            for above, below in pairwise(reversed(line)):
                if _GUARD in _ps(above, "command"):
                    return True
                if int(_ps(below, "ppid")) != above:
                    raise ProcessLookupError
            return False
        except (OSError, ValueError, subprocess.SubprocessError):
            pass  # one has ended, or is hidden from us
    raise Unseen


def _ps(pid: int, column: str) -> bytes:
    command = ["ps", "-ww", "-o", f"{column}=", "-p", str(pid)]
    found = subprocess.run(command, stdout=subprocess.PIPE, timeout=_PS, check=True).stdout
    return found.strip()
