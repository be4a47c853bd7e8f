"""`make bench`: measure, keep the raw rows as JSON, write the table in docs/benchmarks.md.

make bench                       everything (about 10 minutes; leave the machine alone)
make bench ARGS="--only cancel"  one row, printed, nothing written
make bench ARGS="--only clients" a group of rows; with their lines of the table, to be pasted
make bench ARGS=--postgres       sessions in a database beside those in files; the table, printed
make bench ARGS="--against HEAD~9"  that commit and this one in turn; the table, printed
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.against import USUAL, against
from tests.benchmarks.client_table import client_rows
from tests.benchmarks.figures import Figures, markdown, with_ratios
from tests.benchmarks.floors import ratio
from tests.benchmarks.postgres_rows import postgres
from tests.benchmarks.rows import GROUPS, ROWS
from tests.benchmarks.table import write_table

RESULTS = Path(__file__).with_name("results.json")


def machine() -> str:
    """The machine in words."""
    with open("/proc/meminfo") as file:
        memory = round(int(file.readline().split()[1]) / 1024 / 1024)
    return (
        f"{os.cpu_count()} cores, {memory} GiB, Linux {platform.release().split('-')[0]}"
        f" {platform.machine()}, Python {platform.python_version()}"
    )


def commit() -> str:
    """The commit that was measured, with a + if the tree has changes."""
    ask = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()


def measure(names: list[str]) -> Figures:
    figures: Figures = {}
    for name in names:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as home:
            row = ROWS[name](Path(home))
        figures |= row
        print(f"{name} ({time.monotonic() - began:.0f} s)", flush=True)
        for figure, value in row.items():
            times = ratio(figure, figures)
            of_floor = "" if times is None else f"  {times:.1f} x its floor"
            print(f"  {figure:36} {value:g}{of_floor}", flush=True)
    return figures


def main() -> int:
    # Where this is set nothing keeps what was compiled, so each process would compile all again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", choices=[*ROWS, *GROUPS], action="append")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=3, help="with --against")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.7:
        print(f"note: the machine is busy (load {load:.1f}); these figures will be too high")
    if options.postgres:
        print(*postgres(), sep="\n")
        return 0
    asked = [row for name in options.only or ROWS for row in GROUPS.get(name, (name,))]
    if options.against:
        named = asked if options.only else USUAL
        print(*against(options.against, named, options.rounds), sep="\n")
        return 0
    figures = measure(["floors", *(name for name in asked if name != "floors")])
    if options.only:
        print(*markdown(client_rows(with_ratios(figures, ratio))), sep="\n")
        return 0
    about = {"commit": commit(), "machine": machine(), "date": time.strftime("%Y-%m-%d")}
    RESULTS.write_text(
        json.dumps({**about, "load_before": load, "figures": figures}, indent=1) + "\n"
    )
    write_table(json.loads(RESULTS.read_text()))
    print(f"written: {RESULTS.name}, and the table in docs/benchmarks.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
