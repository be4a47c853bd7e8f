"""Prints the demo: one line for each check, in 80 columns of ASCII, with colour on a terminal.

Steps may run at the same time. They are printed in the order in which their sections were made;
lines of the first unfinished section appear at once.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TextIO

from acp_bridge.terminal.demo.recording import Finding, Unexpected

P = ParamSpec("P")

WIDTH = 80
#: the column in which the text of a line begins: after the mark, the step and the time.
INDENT = 31
#: how many characters of an expected or seen text are shown.
LONGEST = 600

_GREEN, _RED, _DIM, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
_CLEAR = "\r\x1b[K"


@dataclass(slots=True)
class Screen:
    """The output of the demo; `live`: it is a terminal, whose last line can be overwritten."""

    out: TextIO
    colour: bool = False
    live: bool = False
    #: how many checks were made, and how many failed.
    checks: int = 0
    failures: int = 0
    #: the sections that are not completely printed.
    _sections: list[Section] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print lines that belong to no step."""
        self._write(f"{_CLEAR if self.live else ''}{text}\n")

    def section(self, number: int, name: str) -> Section:
        """Add the section of a step, below those added before, and return it."""
        self._sections.append(Section(self, f"{number} {name}"))
        return self._sections[-1]

    def refresh(self) -> None:
        """Print the lines of sections whose turn has come, and on a terminal the current wait."""
        while self._sections:
            first = self._sections[0]
            if first.lines:
                self.say("\n".join(first.lines))
                first.lines.clear()
            if not first.closed:
                if self.live:
                    self._write(_CLEAR + self.paint(_DIM, first.awaiting))
                return
            self._sections.pop(0)

    def paint(self, colour: str, text: str) -> str:
        """Return the text between the escape sequences of a colour, if colours are on."""
        return f"{colour}{text}{_PLAIN}" if self.colour else text

    def _write(self, text: str) -> None:
        try:
            self.out.write(text)
            self.out.flush()
        except BrokenPipeError:  # `acp-bridge demo | head`: go on, the exit code still counts
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.out.fileno())
            os.close(null)


@dataclass(slots=True)
class Section:
    """The printed lines of one step."""

    screen: Screen
    step: str
    #: lines that the screen has not printed yet.
    lines: list[str] = field(default_factory=list)
    closed: bool = False
    _awaited: str = ""

    @property
    def awaiting(self) -> str:
        """The line that shows what the step waits for."""
        return f"     {self.step:<{INDENT - 5}}{_ascii(self._awaited)}"[: WIDTH - 1]

    def waiting(self, what: str) -> None:
        """Show on a terminal what the step waits for, until the section's next line."""
        self._awaited = f"waiting for {what}"
        self.screen.refresh()

    def check(
        self, title: str, check: Callable[P, Finding], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Run a check and print whether it passed."""
        try:
            finding = check(*args, **kwargs)
        except Unexpected as unexpected:
            self.fail(title, unexpected)
            return
        text = f"{title}: {finding.detail}" if finding.detail else title
        self._add("ok", _GREEN, _duration(finding.seconds), text)

    def fail(self, title: str, unexpected: Unexpected | None = None) -> None:
        """Print a failed check, with what was expected and what was seen."""
        self.screen.failures += 1
        self._add("FAIL", _RED, "", title)
        if unexpected:
            self.quote("expected:", unexpected.expected)
            self.quote("seen:", unexpected.seen)

    def quote(self, label: str, text: str) -> None:
        """Print an indented text below the line before; `label` says what the text is."""
        self.lines += _wrapped(text[:LONGEST], f"     {label:<10}", 15)
        self.screen.refresh()

    def close(self) -> None:
        """Mark the step as finished, so that the next section is printed."""
        self.closed = True
        self.screen.refresh()

    def _add(self, mark: str, colour: str, time: str, text: str) -> None:
        self.screen.checks += 1
        head = f"{self.step:<16}{time:>8}".ljust(INDENT - 5)
        first, *rest = _wrapped(text, head, INDENT)
        self.lines += [self.screen.paint(colour, f"{mark:<5}") + first, *rest]
        self.screen.refresh()


def _wrapped(text: str, head: str, indent: int) -> list[str]:
    first, *more = textwrap.wrap(_ascii(text), WIDTH - indent) or [""]
    return [f"{head}{first}".rstrip(), *(" " * indent + line for line in more)]


def _ascii(text: str) -> str:
    """Return a text in printable ASCII on one line; other characters are escaped."""
    return re.sub(r"[^ -~]", lambda found: ascii(found[0])[1:-1], text)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
