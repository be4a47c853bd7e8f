"""A terminal in memory that knows colours, and what it shows as runs of equal style."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from acp_bridge.core.records import replace
from tests.terminal.shared.terminal_model import TerminalModel


@dataclass(frozen=True, slots=True)
class Style:
    """How a character is drawn; colours are numbers from 0 to 15, None for the usual one."""

    colour: int | None = None
    background: int | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underlined: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Characters beside each other that are drawn alike."""

    column: int
    text: str
    style: Style
    #: columns, of which a wide character takes two.
    width: int


Row = tuple[Run, ...]

PLAIN = Style()
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_SWITCHES = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    4: {"underlined": True},
    7: {"reverse": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underlined": False},
    27: {"reverse": False},
}


class Cell(str):
    """A character with its style."""

    __slots__ = ("style",)
    style: Style


class ColourTerminal(TerminalModel):
    """Knows the 16 colours beside all that its base knows."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self._style = PLAIN

    def cell(self, character: str) -> str:
        made = Cell(character)
        made.style = self._style
        return made

    def _control(self, arguments: str, final: str) -> None:
        if final == "m":
            self._style = styled(self._style, arguments)
        super()._control(arguments, final)

    def look(self) -> tuple[Row, ...]:
        """Return what is on the screen."""
        return tuple(runs(cells) for cells in self.cells)


def styled(style: Style, arguments: str) -> Style:
    """Return the style after a sequence with these numbers. Raises ValueError for one unknown."""
    for number in (int(word or 0) for word in arguments.split(";")):
        if number == 0:
            style = PLAIN
        elif number in _SWITCHES:
            style = replace(style, **_SWITCHES[number])
        elif (found := _coloured(style, number)) is not None:
            style = found
        else:
            raise ValueError(f"unknown style: {arguments}")
    return style


def _coloured(style: Style, number: int) -> Style | None:
    """Return the style with one of its colours changed; None for a number that means no colour."""
    place, colour = divmod(number, 10)
    if colour == 9 and place in (3, 4):
        return replace(style, colour=None) if place == 3 else replace(style, background=None)
    if colour > 7 or place not in (3, 4, 9, 10):
        return None
    bright = 8 if place > 4 else 0
    if place in (3, 9):
        return replace(style, colour=bright + colour)
    return replace(style, background=bright + colour)


def runs(cells: list[str]) -> Row:
    """Return a row as runs, without the blanks that nobody sees."""
    found = []
    placed = [(at, cell, getattr(cell, "style", PLAIN)) for at, cell in enumerate(cells) if cell]
    for style, group in groupby(placed, key=lambda each: each[2]):
        pieces = list(group)
        text = "".join(cell for _, cell, _ in pieces)
        if text.strip() or style.background is not None or style.reverse:
            first, last = pieces[0][0], pieces[-1][0]
            blank = len(text) - len(text.lstrip())
            wide = last + 1 < len(cells) and cells[last + 1] == ""
            width = last - first + 1 + wide
            if style.background is None and not style.reverse:
                first, width = first + blank, width - blank - (len(text) - len(text.rstrip()))
                text = text.strip()
            found.append(Run(first, text, style, width))
    return tuple(found)
