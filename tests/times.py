"""`make test-times`: how much CPU the targets of .ci/run take, and each test in them.

Runs the targets one after the other (all, or those named: `ARGS="test test-slow"`), and prints
their sum, the folders of tests and the dearest tests. `tests/support/cpu_times.py` says what is
counted. Seconds of CPU hardly depend on what else the machine does; seconds of the clock do.
The exit code is 1 if a target failed; its figures are printed all the same.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.support import cpu_times

ROOT = Path(__file__).parent.parent
#: By these `make test-times ARGS=...` would hand its ARGS on to the targets.
OF_MAKE = ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")
#: How many of the dearest tests are printed.
DEAREST = 100


class Run(NamedTuple):
    """One target that was run."""

    name: str
    #: seconds of CPU, and of the clock
    cpu: float
    wall: float
    passed: bool
    #: seconds of CPU by test; empty for a target that is no run of pytest
    tests: dict[str, float]


def targets(steps: str) -> dict[str, list[str]]:
    """The commands of .ci/run by the name of their target."""
    found = re.findall(r"^step \d+ (make ([\w-]+).*)$", steps, re.MULTILINE)
    return {name: command.split() for command, name in found}


def run(name: str, command: list[str]) -> Run:
    """Run one target in a group of its own; it writes to our stdout."""
    with tempfile.TemporaryDirectory(prefix="times-") as folder:
        group = cpu_times.Group.made(f"times-{os.getpid()}-{name}")
        env = {
            **{name: value for name, value in os.environ.items() if name not in OF_MAKE},
            cpu_times.FOLDER: folder,
            "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} -p tests.support.cpu_times",
        }
        waited, began = cpu_times.used_and_waited_for(), time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, env=env, check=False, preexec_fn=group.join if group else None
        )
        cpu = group.used() if group else cpu_times.used_and_waited_for() - waited
        wall = time.monotonic() - began
        if group:
            group.remove()
        return Run(name, cpu, wall, done.returncode == 0, read(Path(folder)))


def read(folder: Path) -> dict[str, float]:
    """What the plugin wrote there."""
    lines = [line for file in folder.iterdir() for line in file.read_text().splitlines()]
    return dict(json.loads(line) for line in lines)


def by_folder(tests: dict[str, float]) -> list[tuple[str, float, int]]:
    """The folders `tests/x` or `tests/x/y`, their seconds of CPU and their count of tests."""
    found: dict[str, list[float]] = defaultdict(list)
    for test, seconds in tests.items():
        found["/".join(test.partition("::")[0].split("/")[:-1][:3])].append(seconds)
    sums = [(folder, sum(each), len(each)) for folder, each in found.items()]
    return sorted(sums, key=lambda row: -row[1])


def table(runs: Iterable[Run]) -> Iterable[str]:
    """The lines that are printed."""
    runs = list(runs)
    yield f"{'target':<16}{'CPU s':>9}{'wall s':>9}{'tests':>8}"
    for one in runs:
        failed = "" if one.passed else "  failed"
        yield f"{one.name:<16}{one.cpu:>9.0f}{one.wall:>9.0f}{len(one.tests):>8}{failed}"
    cpu, wall = sum(one.cpu for one in runs), sum(one.wall for one in runs)
    yield f"{'all':<16}{cpu:>9.0f}{wall:>9.0f}{sum(len(one.tests) for one in runs):>8}"
    for one in runs:
        if not one.tests:
            continue
        yield f"\n{one.name} by folder: CPU s, tests"
        for folder, seconds, count in by_folder(one.tests):
            yield f"{seconds:>9.1f}{count:>8}  {folder}"
    dearest = sorted(((s, test) for one in runs for test, s in one.tests.items()), reverse=True)
    if dearest:
        yield f"\nthe {DEAREST} dearest tests: CPU s"
    for seconds, test in dearest[:DEAREST]:
        yield f"{seconds:>9.2f}  {test}"


def main() -> int:
    """Run the targets and print the table; 1 if one failed."""
    known = targets((ROOT / ".ci" / "run").read_text("utf-8"))
    parser = argparse.ArgumentParser(prog="python -m tests.times", description=__doc__)
    parser.add_argument("targets", nargs="*", help="default: " + ", ".join(known))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    args = parser.parse_args()
    runs = [run(name, known.get(name, ["make", name])) for name in args.targets or known]
    print("\n", *table(runs), sep="\n")
    if args.json:
        args.json.write_text(json.dumps([one._asdict() for one in runs]))
    return 0 if all(one.passed for one in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
