"""The last lines of a process's stderr, for people who ask why the process does not start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

#: how many of the last lines are kept; enough to mask a private key as a whole.
KEPT: Final = 200
#: how many lines are told, and characters of each.
_TOLD, _LONGEST = 5, 300


def end_of(lines: Iterable[str], mask: Callable[[str], str] = str) -> list[str]:
    """Return the last lines that are not empty, cut to a length for people; `mask` goes first."""
    told = [line for line in mask("\n".join(lines)).split("\n") if line.strip()]
    return [cut(line) for line in told[-_TOLD:]]


def cut(text: str) -> str:
    """Return a text as one line of 300 characters at most, and `...` if it was longer."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
