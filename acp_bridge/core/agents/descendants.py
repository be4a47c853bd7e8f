"""Finds the processes that an agent has beside its main one. Every function needs a thread."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from acp_bridge.core.agents import guard
from acp_bridge.core.records import replace

#: seconds that `ps` may take.
_PS: Final = 5
#: the places, among the words of `_status`, of the CPU times of a process and of its children that
#: it has waited for, and of the moment when it began; in clock ticks.
_CPU_OF_CHILDREN: Final = (13, 14)
_CPU_TIMES: Final = (11, 12, *_CPU_OF_CHILDREN)
_BEGUN: Final = 19


class Program(Struct, frozen=True):
    """A process of an agent's tree; times in seconds."""

    #: the name of the file that it runs; "" if that can't be seen.
    name: str
    #: the CPU time that it has used, that of children which it has waited for included (Linux).
    cpu: float
    #: how long ago it began.
    age: float


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
    """Return what `descendants` does, quicker; one that begins or ends meanwhile may be missing.

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


def bytes_moved(main: int) -> int | None:
    """Return how many bytes an agent's processes have read and written; None if it can't be seen.

    Of one that has ended meanwhile they are missing (Linux alone tells them).
    """
    moved, seen = 0, False
    for pid in (main, *first_descendants(main)):
        try:
            with open(f"/proc/{pid}/io", "rb") as file:
                told = dict(line.split(b": ") for line in file.read().splitlines())
            moved += int(told[b"rchar"]) + int(told[b"wchar"])
            seen = True
        except (OSError, ValueError, KeyError):
            continue
    return moved if seen else None


def begun_before(moment: int, pids: Iterable[int]) -> frozenset[int]:
    """Return those of `pids` that had begun before `moment`, a time of `guard.now`.

    Processes that can't be looked at are left out.
    """
    ticks = _ticks(moment)
    return frozenset(pid for pid in pids if _begun(pid) < ticks)


def programs_since(main: int, moment: int) -> list[str]:
    """Return the names of the programs in an agent's tree that have begun since `moment`.

    Each is named once, in the order of their beginning; none where the system doesn't tell it.
    `moment` is a time of `guard.now`.
    """
    found = first_descendants(main)
    later = sorted(found - begun_before(moment, found), key=lambda pid: (_begun(pid), pid))
    return list(dict.fromkeys(name for pid in later if (name := _program(pid))))


def programs_below(main: int) -> dict[int, Program] | None:
    """Return the processes in an agent's tree, by id; None if they can't be seen.

    The main one is there without a name, and with the CPU time of its ended children alone (Linux).
    """
    found = descendants(main)
    if found is None:
        return None
    try:
        times = _times(found, _CPU_TIMES) if guard.LINUX else _times_by_ps()
        ended = _times([main], _CPU_OF_CHILDREN) if guard.LINUX else {}
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    below = {pid: times[pid] for pid in sorted(found) if pid in times}
    return below | {pid: replace(each, name="") for pid, each in ended.items()}


def cpu_since(before: dict[int, Program], now: dict[int, Program]) -> float:
    """Return the seconds of CPU time that an agent's processes have used from `before` to `now`."""
    used = (each.cpu - (before[pid].cpu if pid in before else 0) for pid, each in now.items())
    return sum(seconds for seconds in used if seconds > 0)


def _times(pids: Iterable[int], counted: Iterable[int]) -> dict[int, Program]:
    """Return the processes by id, with the sum of the `counted` CPU times of their `_status`."""
    found = dict[int, Program]()
    now, second = _ticks(guard.now()), os.sysconf("SC_CLK_TCK")
    for pid in pids:
        try:
            status = _status(pid)
            used, begun = sum(int(status[at]) for at in counted), int(status[_BEGUN])
        except (OSError, ValueError, IndexError):  # it has ended meanwhile
            continue
        found[pid] = Program(_program(pid), used / second, max(0, now - begun) / second)
    return found


def _times_by_ps() -> dict[int, Program]:
    """Return every process of the system by id, from `ps`, where there is no /proc (macOS)."""
    command = ["ps", "-axo", "pid=,time=,etime=,comm="]
    told = subprocess.run(command, stdout=subprocess.PIPE, timeout=_PS, check=True).stdout
    found = dict[int, Program]()
    for line in told.decode("utf-8", "replace").splitlines():
        pid, used, age, path = line.split(maxsplit=3)
        found[int(pid)] = Program(os.path.basename(path), seconds_of(used), seconds_of(age))
    return found


def seconds_of(told: str) -> float:
    """Return a time as `ps` tells it, such as `01:02.50` or `3-04:05:06`, in seconds."""
    days, _, clock = told.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds + 86400 * int(days or 0)


def _program(pid: int) -> str:
    """Return the name of the file that a process runs; "" if that can't be seen."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
    except OSError:
        return ""


def _ticks(moment: int) -> int:
    """Return a time of `guard.now` in the system's clock ticks, as proc(5) has it."""
    return moment * os.sysconf("SC_CLK_TCK") // 10**9


def _begun(pid: int) -> float:
    try:
        return int(_status(pid)[_BEGUN])
    except (OSError, ValueError, IndexError):
        return float("inf")


def _status(pid: int) -> list[bytes]:
    """Return the words of the process's `stat` (proc(5)) from the third on, which is its state."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _children(pid: int) -> set[int]:
    found = set[int]()
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
            found.update(map(int, file.read().split()))
    return found
