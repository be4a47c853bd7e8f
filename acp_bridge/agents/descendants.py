"""Finds the processes that an agent has beside its main one. Every function needs a thread."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from acp_bridge.agents import guard


def descendants(main: int) -> frozenset[int] | None:
    """Return the ids of all processes of an agent's tree but its main one and its guard.

    None if they can't be seen. It reads the list of all processes of the system.
    """
    try:
        table = guard.processes()
    except (OSError, ValueError):
        return None
    above = next((parent for pid, parent, _, zombie in table if pid == main and not zombie), None)
    if above is None:
        return None
    tree, size = {above}, 0  # the guard has adopted what lost its parent
    while len(tree) > size:
        size = len(tree)
        tree.update(pid for pid, parent, group, _ in table if parent in tree or group == main)
    return frozenset(pid for pid, _, _, dead in table if pid in tree and not dead) - {above, main}


def first_descendants(main: int) -> frozenset[int]:
    """Return the same quickly; a process that begins or ends meanwhile may be missing.

    It reads the tree alone where the system tells the children of a process (Linux).
    """
    try:
        above = int(_status(main)[1])
        found, todo = set[int](), [above]
        while todo:
            children = _children(todo.pop()) - found
            found |= children
            todo += children
    except (OSError, ValueError, IndexError):
        return descendants(main) or frozenset()
    return frozenset(found) - {main}


def tick() -> int:
    """Return the time now for `begun_before`: the system's clock ticks since its boot."""
    boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return int(time.clock_gettime(boot) * os.sysconf("SC_CLK_TCK"))


def begun_before(moment: int, pids: Iterable[int]) -> frozenset[int]:
    """Return those of the processes that had begun by that moment; none if that can't be seen."""
    return frozenset(pid for pid in pids if _begun(pid) < moment)


def programs_since(main: int, moment: int) -> list[str]:
    """Return the names of the programs in an agent's tree that have begun since that moment.

    Each is named once, in the order of their beginning; none is where the system doesn't tell.
    """
    found = first_descendants(main)
    later = sorted(found - begun_before(moment, found), key=lambda pid: (_begun(pid), pid))
    return list(dict.fromkeys(name for pid in later if (name := _program(pid))))


def _program(pid: int) -> str:
    """Return the name of the file that a process runs; "" if that can't be seen."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
    except OSError:
        return ""


def _begun(pid: int) -> float:
    try:
        return int(_status(pid)[19])
    except (OSError, ValueError, IndexError):
        return float("inf")


def _status(pid: int) -> list[bytes]:
    """Return the words of proc(5)'s `stat` from the state on, which is its third."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _children(pid: int) -> set[int]:
    found = set[int]()
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
            found.update(map(int, file.read().split()))
    return found
