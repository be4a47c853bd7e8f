"""The help of a command, which a person wrote, read into its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_ENTRY: Final = re.compile(r"  (\S+(?: \S+)*?)(?:  +(\S.*))?$")
#: further lines of an entry begin this deep.
_DEEP: Final = " " * 8


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines that are read as one text."""

    text: str


@dataclass(frozen=True, slots=True)
class Heading:
    """A line above entries; `level` is 1, or 2 for one within a group."""

    text: str
    level: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An option or a command, and what it does; nothing is said of some."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Example:
    """A line that can be typed."""

    text: str


Part = Paragraph | Heading | Entry | Example


def usage_of(help: str) -> list[str]:
    """Return the ways to call a command, one a line."""
    lines = help.partition("\n\n")[0].splitlines()
    return [line.removeprefix("usage:").strip() for line in lines]


def parts_of(help: str) -> Iterator[Part]:
    """Give the parts of a help text below its usage, in order."""
    for block in help.partition("\n\n")[2].strip("\n").split("\n\n"):
        lines = block.split("\n")
        at = 0
        while at < len(lines):
            part, at = _part(lines, at)
            yield part


def _part(lines: Sequence[str], at: int) -> tuple[Part, int]:
    """Return the part that begins with a line, and the line after it."""
    line = lines[at]
    if line.startswith("  "):
        return _entry(lines, at)
    if line.startswith(" "):
        return Heading(line.strip(), 2), at + 1
    end = at + 1
    while end < len(lines) and not lines[end].startswith(" "):
        end += 1
    text = " ".join(lines[at:end])
    if text.endswith(":") and end < len(lines):
        return Heading(text[:-1], 1), end
    return Paragraph(text), end


def _entry(lines: Sequence[str], at: int) -> tuple[Part, int]:
    end = at + 1
    while end < len(lines) and lines[end].startswith(_DEEP):
        end += 1
    found = _ENTRY.match(lines[at])
    further = [line.strip() for line in lines[at + 1 : end]]
    if found is None or not (found[2] or further or found[1].startswith("-")):
        return Example(lines[at].strip()), end
    return Entry(found[1], " ".join([*([found[2]] if found[2] else []), *further])), end
