"""Puts times and texts of others into the form in which notices show them. SANS-IO."""

from __future__ import annotations

import re


def duration(seconds: float) -> str:
    """Return a time in words, in its two largest units: `1 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if number := left // size:
            parts.append(f"{number} {unit}")
        left %= size
    return " ".join(parts[:2])


def code(text: str) -> str:
    """Return a text as one short line that can stand between backticks."""
    line = " ".join(text.split()).replace("`", "'")
    return line if len(line) <= 80 else f"{line[:79]}…"


def as_code(line: str) -> str:
    """Return a line as code in Markdown, whole and with its own backticks."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    edge = " " if len(fence) > 1 else ""
    return f"{fence}{edge}{line}{edge}{fence}"


def named(names: list[str], most: int) -> str:
    """Return the first `most` names, as a list in a sentence, and how many more there are."""
    told = [as_code(code(each)) for each in names[:most]]
    return ", ".join([*told, *([f"{len(names) - most} more"] if len(names) > most else [])])
