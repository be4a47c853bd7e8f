"""What the demo prints: a line a check, within 80 columns, ASCII; colour on a terminal only."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from typing import TextIO

from acp_bridge.demo.recording import Unexpected

WIDTH = 80
#: Where the text of a line begins: after the mark, the step and the time.
INDENT = 31
#: How much of what was expected or seen is shown.
LONGEST = 600

_GREEN, _RED, _DIM, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
_CLEAR = "\r\x1b[K"


@dataclass(slots=True)
class Screen:
    """`live`: the output is a terminal, on which a line can be written over."""

    out: TextIO
    colour: bool = False
    live: bool = False
    #: how many checks were printed, and how many of them failed.
    checks: int = 0
    failures: int = 0
    _step: str = ""

    def say(self, text: str) -> None:
        """Some lines between the checks, cut where they are too wide."""
        self._clear()
        for line in text.split("\n"):
            self._print(_ascii(line)[:WIDTH])

    def step(self, number: int, name: str) -> None:
        """What follows belongs to this step."""
        self._step = f"{number} {name}"
        self.waiting("")

    def waiting(self, what: str) -> None:
        """What the step waits for now; shown on a terminal, until something else is."""
        if self.live:
            head = f"     {self._step:<16}"
            line = f"{head}{'waiting for ' * bool(what)}{what}"[: WIDTH - 1]
            self._write(f"{_CLEAR}{self._paint(_DIM, line)}")

    def passed(self, title: str, detail: str, seconds: float) -> None:
        """A check that holds."""
        self.checks += 1
        text = f"{title}: {detail}" if detail else title
        self._line("ok", _GREEN, f"{_duration(seconds):>8}", text)

    def failed(self, title: str, unexpected: Unexpected) -> None:
        """A check that doesn't, with what it wanted and what it found."""
        self.checks += 1
        self.failures += 1
        self._line("FAIL", _RED, " " * 8, title)
        for label, text in (("expected", unexpected.expected), ("seen", unexpected.seen)):
            for line in _wrapped(_ascii(text)[:LONGEST], f"     {label + ':':<10}", 15):
                self._print(line)

    def _line(self, mark: str, colour: str, time: str, text: str) -> None:
        self._clear()
        first, *more = _wrapped(_ascii(text), f"{self._step:<16}{time}  ".ljust(INDENT - 5), INDENT)
        self._print(f"{self._paint(colour, f'{mark:<5}')}{first}")
        for line in more:
            self._print(line)

    def _clear(self) -> None:
        if self.live:
            self._write(_CLEAR)

    def _paint(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self.colour else text

    def _print(self, line: str) -> None:
        self._write(f"{line.rstrip()}\n")

    def _write(self, text: str) -> None:
        try:
            self.out.write(text)
            self.out.flush()
        except BrokenPipeError:  # `acp-bridge demo | head`: go on, the exit code still counts
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.out.fileno())
            os.close(null)


def _wrapped(text: str, head: str, indent: int) -> list[str]:
    width = WIDTH - indent
    first, *more = textwrap.wrap(text, width) or [""]
    return [head + first, *(" " * indent + line for line in more)]


def _ascii(text: str) -> str:
    """Whatever an agent said: on one line, and harmless to any terminal."""
    return text.encode("ascii", "backslashreplace").decode().replace("\x1b", "\\x1b")


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
