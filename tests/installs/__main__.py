"""`make test-install`: what was built is installed as users do it, and its demo is run.

Each way has an empty home and an empty environment, and the packages come from the index, each
once. Without arguments it is this Python; `--python NAME` names others, and `--every` takes all
that are found. `--every` also has pip compile all modules, which counts in the size.
Prints the rows of the table in docs/installing.md; exit 1 if one of them is not as it must be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.installs.rows import HEAD, Row
from tests.installs.ways import WAYS, Failed, Place, install_tools

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def main() -> int:
    """Try every way on every Python; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.installs")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--way", action="append", choices=list(WAYS), default=[])
    given = parser.parse_args()
    pythons = [*given.python, *(every() if given.every else ())] or [sys.executable]
    with tempfile.TemporaryDirectory(prefix="acp-bridge-installs-") as folder:
        ways = given.way or list(WAYS)
        rows = list(tried(Path(folder), pythons, ways, compiles=given.every))
    return 0 if rows and all(row.right for row in rows) else 1


def tried(
    folder: Path, pythons: Sequence[str], ways: Sequence[str], *, compiles: bool
) -> Iterator[Row]:
    """Yield a row for each Python and way, and print it."""
    sdist, wheel = built(folder, "sdist"), built(folder, "wheel")
    place = Place(folder, ROOT, sdist, wheel, compiles)
    install_tools(place)
    print(HEAD, flush=True)
    for python in pythons:
        for name in ways:
            try:
                row = WAYS[name](place, python)
            except Failed as why:
                row = Row(python, name, problem=str(why))
            print(row, flush=True)
            yield row


def built(folder: Path, kind: str) -> Path:
    """Build a wheel or an sdist; returns its path. `make dist` has the same command."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder / kind)
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, capture_output=True)
    (path,) = (folder / kind).iterdir()
    return path


def every() -> Iterator[str]:
    """Yield the Pythons that can be started here and that acp-bridge is for."""
    for version in VERSIONS:
        name = f"python{version}"
        try:
            asked = subprocess.run([name, "-V"], capture_output=True, check=False)
        except FileNotFoundError:
            continue
        if asked.returncode == 0:  # a shim may stand for one that is not there
            yield name


if __name__ == "__main__":
    sys.exit(main())
