"""Tells if a process was started by an agent, however indirectly (invariant V6).

On Linux every agent and all that it starts carries the guard's mark, a lowered hard limit: it is
inherited over fork and exec, only root can raise it again, and it needs no ancestor that still
lives, nor any file. What somebody else starts on an agent's word has none.

Where there is no mark, the ancestors are looked at: a process that has lost one of them can't be
told any more. On macOS there is no such limit; that part is written for macOS and is tested on
Linux alone. On Linux it is for the agents of a bridge that was started before there was a mark, and
lives on: an update of acp-bridge ends no bridge.
"""

from __future__ import annotations

import os
import resource
import subprocess
from itertools import pairwise
from typing import Final

from acp_bridge.core.agents.guard import COMMAND_LINE, LINUX, MARKED_LIMIT

#: what follows the interpreter in the command line of a guard, or of the parent that has forked it:
#: the program that Python is given, which no path or title of a user's can be.
_GUARDS: Final = (
    os.fsencode(" " + " ".join(COMMAND_LINE[1:-1]) + " "),
    b" -I -m agent.fork_parent ",
)
#: how often the line of ancestors is read, since one of them may end meanwhile.
_TRIES: Final = 5
#: seconds that `ps` may take.
_PS: Final = 1.0


class Unseen(Exception):
    """The process can't be looked at, or its ancestors end faster than they can be read."""


def runs_in_agent() -> bool:
    """Return True if this process was started by an agent; False where nobody can tell."""
    try:
        return is_from_agent(os.getpid())
    except Unseen:
        return False


def is_from_agent(pid: int) -> bool:
    """Return True if a process is an agent or was started by one; raises Unseen.

    The caller makes sure that `pid` is that of the same process before and after.
    """
    return _is_marked(pid) or _is_below_guard(pid)


def _is_marked(pid: int) -> bool:
    if not LINUX:
        return False
    try:
        _, hard = resource.prlimit(pid, MARKED_LIMIT)
    except OSError as exc:  # it has ended, or it is another user's
        raise Unseen from exc
    return hard != resource.RLIM_INFINITY  # an agent may lower the limit further


def _is_below_guard(pid: int) -> bool:
    for _ in range(_TRIES):
        try:
            line = [pid]
            while (parent := _parent(line[-1])) > 1 and not _is_hidden(parent):
                line.append(parent)
            # A process whose child still has it as its parent has lived all the time, so that
            # what was read meanwhile is its own. From the top, as what is below a guard may lie.
            for above, below in pairwise(reversed(line)):
                if any(guard in _command(above) for guard in _GUARDS):
                    return True
                if _parent(below) != above:
                    raise ProcessLookupError
            return False
        except (OSError, ValueError, subprocess.SubprocessError):
            pass  # one has ended, or can't be looked at
    raise Unseen


def _parent(pid: int) -> int:
    """Return the parent of a process; raises OSError, ValueError, SubprocessError."""
    if not LINUX:
        return int(_ps(pid, "ppid"))
    with open(f"/proc/{pid}/stat", "rb") as file:
        # "PID (NAME) STATE PPID ...": only NAME may hold blanks and brackets
        return int(file.read().rpartition(b")")[2].split()[1])


def _command(pid: int) -> bytes:
    """Return the words of a process's command line; raises OSError, SubprocessError."""
    if not LINUX:
        return _ps(pid, "command")
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ")


def _is_hidden(pid: int) -> bool:
    """Return True for another user's process where /proc shows only one's own (hidepid)."""
    if not LINUX or os.path.exists(f"/proc/{pid}/stat"):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    return False


def _ps(pid: int, column: str) -> bytes:
    command = ["ps", "-ww", "-o", f"{column}=", "-p", str(pid)]
    found = subprocess.run(command, stdout=subprocess.PIPE, timeout=_PS, check=True).stdout
    return found.strip()
