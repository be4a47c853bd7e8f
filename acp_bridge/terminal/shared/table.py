"""Formats tables for a terminal: plain harmless text, columns aligned also with wide characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

from acp_bridge.terminal.cli.harmless import one_line

_GAP: Final = "  "
#: columns of a cell at most, but for the last cell of a row.
_WIDEST: Final = 40


def table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None) -> str:
    """Return a table as lines; `columns`: cut lines to this width, None: don't cut."""
    cells = [list(head), *([one_line(cell) for cell in row] for row in rows)]
    last = len(head) - 1
    if columns is not None:
        cells = [[cut(cell, _WIDEST) for cell in row[:last]] + row[last:] for row in cells]
    widths = [max(width(row[at]) for row in cells) for at in range(last)]
    lines = []
    for row in cells:
        padded = [
            cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=False)
        ]
        line = _GAP.join([*padded, row[last]]).rstrip()
        lines.append(line if columns is None else cut(line, columns))
    return "".join(f"{line}\n" for line in lines)


def width(text: str) -> int:
    """Return how many terminal columns a harmless line takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """Return a line cut to `columns`; "..." marks that it was cut."""
    if width(text) <= columns:
        return text
    taken, kept = 0, []
    for char in text:
        taken += _columns(char)
        if taken > columns - 3:
            break
        kept.append(char)
    return "".join(kept) + "..."


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
