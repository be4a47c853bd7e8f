"""Judges and runs lines, one worker a core, and makes what differs short."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from tests.fuzz_rules import scratch as folder
from tests.fuzz_rules.compare import differences
from tests.fuzz_rules.faults import FAULTS
from tests.fuzz_rules.judge import Judge
from tests.fuzz_rules.lines import Lines
from tests.fuzz_rules.sandbox import Sandbox

#: lines that follow from one seed.
EACH = 250
#: how often what differs runs again: shells of a pipeline may write into each other's trace.
_AGAIN = 4
#: how many tries one line may take to be made shorter.
_TRIES = 150


@dataclass
class Found:
    """A line that did something else than what the rules have read."""

    line: str
    short: str
    shell: str
    said: list[str]
    read: list[str]


@dataclass
class Tally:
    """What came of some lines."""

    judged: int = 0
    allowed: int = 0
    found: list[Found] = field(default_factory=list)


@contextmanager
def a_scratch() -> Iterator[str]:
    """Make a folder with the project, for the rules to look at."""
    made = os.path.realpath(tempfile.mkdtemp(prefix="fuzz-rules-"))
    os.chmod(made, 0o755)
    try:
        folder.furnish(made)
        yield made
    finally:
        shutil.rmtree(made)


class Bench:
    """The rules and a sandbox in one scratch folder."""

    def __init__(self, scratch: str) -> None:
        self.judge = Judge(scratch)
        self.sandbox = Sandbox(scratch)

    def differs(self, line: str) -> tuple[str, list[str]] | None:
        """Run an allowed line; returns a shell and what it did that was not read, else None."""
        read = self.judge.read(line)
        for ran in self.sandbox.run(line):
            if said := differences(line, read, ran, self.judge.place):
                return ran.shell, said
        return None

    def surely_differs(self, line: str) -> tuple[str, list[str]] | None:
        """Run a line several times; returns what differs each time."""
        shell, said = self.differs(line) or ("", [])
        for _ in range(_AGAIN if said else 0):
            other = self.differs(line)
            said = [each for each in said if other and each in other[1]]
        return (shell, said) if said else None

    def found(self, line: str, *, shorten: bool = True) -> Found | None:
        """Return what an allowed line does that was not read; None: nothing."""
        if found := self.surely_differs(line):
            short = self._shortened(line) if shorten else line
            shell, said = self.surely_differs(short) or found
            read = [" ".join(map(repr, each.words)) for each, _ in self.judge.read(short).commands]
            return Found(line, short, shell, said, list(dict.fromkeys(read)))
        return None

    def _shortened(self, line: str) -> str:
        """Return a line that still differs, with pieces left out; shorter ones last."""
        size, tries = max(len(line) // 2, 1), 0
        while size and tries < _TRIES:
            at = 0
            while at < len(line) and tries < _TRIES:
                shorter, tries = line[:at] + line[at + size :], tries + 1
                if shorter and self.judge.allows(shorter) and self.surely_differs(shorter):
                    line = shorter
                else:
                    at += size
            size //= 2
        return line


def work(
    seed: str, count: int, fault: str = "", most: int = 1_000_000, *, shorten: bool = True
) -> Tally:
    """Judge `count` lines of a seed, and run what is allowed.

    `fault`: the name of a fault that the rules have meanwhile; `most`: end after so many findings;
    `shorten`: what differs is made short, in hundreds of runs.
    """
    tally, lines = Tally(), Lines(seed)
    with a_scratch() as scratch:
        bench = Bench(scratch)
        try:
            with FAULTS[fault]() if fault else nullcontext():
                while tally.judged < count and len(tally.found) < most:
                    line = lines.line()
                    tally.judged += 1
                    if bench.judge.allows(line):
                        tally.allowed += 1
                        found = bench.found(line, shorten=shorten)
                        tally.found += [found] if found else []
        finally:
            bench.sandbox.close()
    return tally
