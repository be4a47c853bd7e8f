"""`make bench ARGS="--against COMMIT"`: that commit and this one in turn, so that a loss is seen.

Each commit has a worktree with a `.venv` from its own lock, below `build/bench`, and is run as its
users run it. The rows are this commit's: they speak to a bridge over stdin and stdout alone.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks import client
from tests.benchmarks.figures import Figures
from tests.benchmarks.floors import floors, ratio
from tests.benchmarks.rows import ROWS

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = ROOT / "build" / "bench"
#: what is compared if no rows are named: the start, an update, a Stop, an accept, and memory.
USUAL: Final = ("start", "early", "throughput", "cancel", "accept", "memory")


def against(commit: str, names: Sequence[str], rounds: int) -> list[str]:
    """Run the rows on both commits, in turn; returns the lines of a table of their medians."""
    there, here = _hash(commit), _hash("HEAD")
    programs = {each: _program(each) for each in (there, here)}
    found: dict[str, list[Figures]] = {there: [], here: []}
    least: list[Figures] = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as home:
            least.append(floors(Path(home)))
        for name in names:
            for each, figures in found.items():
                client.PROGRAM = programs[each]
                with tempfile.TemporaryDirectory() as home:
                    row = ROWS[name](Path(home))
                if name == names[0]:
                    figures.append({})
                figures[-1].update(row)
    return _table(there, _medians(found[there]), _medians(found[here]), _medians(least))


def _table(there: str, before: Figures, now: Figures, least: Figures) -> list[str]:
    lines = [
        f"| figure | {there[:8]} | now | now of before | times its floor |",
        "|---|---|---|---|---|",
    ]
    for name, value in now.items():
        was, floor = before.get(name), ratio(name, {**now, **least})
        part = f"{value / was:.2f}" if was else ""
        lines.append(
            f"| {name} | {'' if was is None else f'{was:g}'} | {value:g} | {part} |"
            f" {'' if floor is None else f'{floor:.1f}'} |"
        )
    return [*lines, *(f"| {name} | | {value:g} | | |" for name, value in least.items())]


def _medians(runs: list[Figures]) -> Figures:
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in names}


def _hash(commit: str) -> str:
    ask = ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"]
    return subprocess.check_output(ask, cwd=ROOT, text=True).strip()


def _program(commit: str) -> list[str]:
    """The command of the program at a commit, in an environment of its own."""
    tree = PLACE / commit
    if not tree.exists():
        words = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        subprocess.run(words, cwd=ROOT, check=True)
    subprocess.run(["make", "-s", ".venv/.ready"], cwd=tree, check=True, stdout=sys.stderr)
    return [str(tree / ".venv" / "bin" / "acp-bridge")]
