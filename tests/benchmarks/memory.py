"""Memory of processes, and which processes there are."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.client import children


def tree(pid: int) -> list[int]:
    """The process and all its descendants, itself first."""
    pids, todo = [], [pid]
    while todo:
        pids.append(todo.pop())
        todo += children(pids[-1])
    return pids


def pss_mb(pid: int) -> float:
    """Memory of a process, what it shares divided among those that share it."""
    return _mb(pid, "Pss:")


def private_mb(pid: int) -> float:
    """What would be free without the process."""
    return _mb(pid, "Private_Clean:") + _mb(pid, "Private_Dirty:")


def _mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no {name}")
