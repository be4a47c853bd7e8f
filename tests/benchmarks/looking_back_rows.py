"""What commands take that look back: a search over many sessions, the changes of a long one."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.benchmarks.client import now
from tests.benchmarks.client_rows import run, taken
from tests.benchmarks.figures import Figures, ms
from tests.benchmarks.journals import RARE, edited, many

_SESSIONS, _MESSAGES = 1000, 40
_LONG = 10_000


def looking_back(home: Path) -> Figures:
    """Whole processes: the search that makes the index, later ones, `show --diff`."""
    many(home, _SESSIONS, _MESSAGES)

    def searched(word: str, sessions: int) -> None:
        lines = run(home, "sessions", "--json", "--search", word).splitlines()
        if len(lines) != sessions:
            raise RuntimeError(f"found in {len(lines)} sessions: {lines[:2]}")

    began = now()
    searched(RARE, _SESSIONS // 100)
    first = now() - began
    few, _ = _measured(lambda: searched(RARE, _SESSIONS // 100))
    every, used = _measured(lambda: searched("because", _SESSIONS))
    many(home, 1, _MESSAGES)
    began = now()
    searched("because", _SESSIONS + 1)
    return {
        "search_first_ms": ms(first),
        "search_few_ms": ms(few),
        "search_all_ms": ms(every),
        "search_one_more_ms": ms(now() - began),
        "search_all_cpu_ms": ms(used),
        **_diff(home / "long", home / "folder"),
    }


def _diff(home: Path, folder: Path) -> Figures:
    session_id = uuid4().hex
    edited(home, session_id, _LONG, folder)

    def shown() -> None:
        patch = run(home, "show", session_id, "--diff")
        if patch.count(b"\n+++ ") != len(list(folder.glob("*.py"))):
            raise RuntimeError(f"not all files: {patch[:300]!r}")

    seconds, used = _measured(shown)
    return {"show_diff_10000_ms": ms(seconds), "show_diff_10000_cpu_ms": ms(used)}


def _measured(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds that it takes, the median, and of CPU, the least: what else runs is not in that."""
    used = []

    def once() -> None:
        before = _of_children()
        work()
        used.append(_of_children() - before)

    return taken(once), min(used)


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
