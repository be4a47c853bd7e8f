"""The help of a command, which a person wrote, read into its parts."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_ENTRY: Final = re.compile(r"  (\S+(?: \S+)*?)(?:  +(\S.*))?$")
#: further lines of an entry begin this deep.
_DEEP: Final = " " * 8
#: columns that a text is given at least.
_NARROWEST: Final = 40


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


def fitted(help: str, width: int | None) -> str:
    """Return a help text whose lines fit a terminal; as it is where they do, or for no terminal."""
    if width is None or all(len(line) < width for line in help.split("\n")):
        return help
    room = max(width - 1, _NARROWEST)
    first, *blocks = help.rstrip("\n").split("\n\n")
    usage = [_wrapped(line, room, 2 * _DEEP) for line in first.split("\n")]
    return "\n\n".join(["\n".join(usage), *(_fitted(each, room) for each in blocks)]) + "\n"


def _fitted(block: str, width: int) -> str:
    """Return the lines of a block; the text of an entry stands as deep as it did, where it can."""
    lines, at = block.split("\n"), 0
    found: list[str] = []
    while at < len(lines):
        begin = at
        part, at = _part(lines, at)
        if isinstance(part, Example) or (isinstance(part, Entry) and not part.text):
            found += lines[begin:at]  # what is typed is one line
            continue
        if not isinstance(part, Entry):
            found.append(_wrapped(" ".join(lines[begin:at]), width))
            continue
        head, column = _head(lines[begin:at], width)
        if len(head) > column:
            found.append(head)
            head = " " * column
        found.append(_wrapped(f"{head}{part.text}", width, " " * column))
    return "\n".join(found)


def _head(lines: Sequence[str], width: int) -> tuple[str, int]:
    """Return an entry up to its text, and the column in which that text stands."""
    match = _ENTRY.match(lines[0])
    column = match.start(2) if match and match[2] else len(lines[1]) - len(lines[1].lstrip())
    if width - column < _NARROWEST // 2:
        column = len(_DEEP)
    name = lines[0][: match.start(2)] if match and match[2] else lines[0]
    return (name if len(name.rstrip()) >= column else name.rstrip().ljust(column)), column


def _wrapped(text: str, width: int, deep: str = "") -> str:
    return textwrap.fill(
        text, width, subsequent_indent=deep, break_long_words=False, break_on_hyphens=False
    )
