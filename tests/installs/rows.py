"""One row of the table: what was seen of an installation."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD = """\
| Python | installed with | from | packages | size | `acp-bridge demo` | `acp-bridge` alone | |
|---|---|---|---|---|---|---|---|"""

_PASSED = re.compile(r"^(\d+) of (\d+) checks passed", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """What was seen; `problem` says what went wrong before there was anything to see."""

    python: str
    way: str
    #: what was installed: a wheel or an sdist.
    kind: str = ""
    packages: int = 0
    #: bytes.
    size: int = 0
    demo: str = ""
    #: the exit code of `acp-bridge` without arguments and without input, and what it said.
    alone: tuple[int, str] = (0, "")
    slim: bool = False
    problem: str = ""

    @property
    def demo_passed(self) -> bool:
        """Tell if every check of the demo passed."""
        found = _PASSED.search(self.demo)
        return found is not None and found[1] == found[2] != "0"

    @property
    def serves(self) -> bool:
        """Tell if `acp-bridge` alone did what it must: serve, or name the command to run."""
        code, said = self.alone
        if not self.slim:
            return (code, said) == (0, "")
        return code == 2 and "not installed: litellm. Run: " in said and said.count("\n") == 1

    @property
    def right(self) -> bool:
        """Tell if everything is as it must be."""
        return not self.problem and self.demo_passed and self.serves

    def __str__(self) -> str:
        if self.problem:
            return f"| {self.python} | {self.way} | | | | | | {self.problem} |"
        found = _PASSED.search(self.demo)
        demo = f"{found[1]} of {found[2]}" if found else "no end"
        code, said = self.alone
        alone = f"exit code {code}" + (", names what to run" if self.slim and self.serves else "")
        verdict = "ok" if self.right else f"wrong: {said.strip() or self.demo.strip()[-200:]}"
        cells = (self.python, self.way, self.kind, str(self.packages), f"{self.size >> 20} MB")
        return f"| {' | '.join((*cells, demo, alone, verdict))} |"
