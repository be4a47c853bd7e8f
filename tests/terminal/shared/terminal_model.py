"""A terminal in memory: what a person would see, and what has scrolled away."""

import io
import re
from collections.abc import Callable

import anyio
from wcwidth import wcwidth

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b.|[\r\n\b]|[^\x1b\r\n\b]", re.DOTALL)


class TerminalModel(io.StringIO):
    """Takes what is written to it as a terminal does; knows the few sequences that are used.

    An unknown sequence fails the test, so nothing of an agent's can pass unseen.
    """

    def __init__(self, columns: int = 60, rows: int = 20) -> None:
        super().__init__()
        self.columns, self.rows = columns, rows
        self.history: list[str] = []
        self.written: list[str] = []
        self._cells: list[list[str]] = [[]]
        self._row = self._column = 0
        self._wraps = True
        self.bells = 0
        #: the cursor is hidden: what is on the screen is half of a drawing.
        self._drawing = False
        self._news = anyio.Event()

    # -- what tests look at

    @property
    def screen(self) -> str:
        """The rows that are on the screen."""
        return "\n".join("".join(row).rstrip() for row in self._cells)

    @property
    def cells(self) -> list[list[str]]:
        """The rows that are on the screen, as cells; the second half of a wide one is empty."""
        return self._cells

    @property
    def everything(self) -> str:
        """What has scrolled away, and the screen."""
        return "\n".join([*self.history, self.screen])

    async def until(self, look: Callable[[], object], within: float = 5) -> None:
        """Wait until a whole drawing is on the screen that makes `look` true."""
        with anyio.fail_after(within):
            while self._drawing or not look():
                await self._news.wait()

    async def shows(self, text: str, within: float = 5) -> None:
        """Wait until a text is on the screen."""
        try:
            await self.until(lambda: text in self.screen, within)
        except TimeoutError:
            raise AssertionError(f"{text!r} is not on the screen:\n{self.screen}") from None

    async def hides(self, text: str) -> None:
        """Wait until a text is not on the screen any more."""
        await self.until(lambda: text not in self.screen)

    def resize(self, columns: int) -> None:
        """Become narrower, or wider; rows that don't fit are wrapped."""
        rows: list[list[str]] = []
        for number, row in enumerate(self._cells):
            pieces = [row[at : at + columns] for at in range(0, len(row), columns)] or [[]]
            if number == self._row:
                self._row = len(rows) + min(self._column // columns, len(pieces) - 1)
                self._column %= columns
            rows += pieces
        self._cells, self.columns = rows, columns
        self._scroll()

    # -- what is written

    def write(self, text: str) -> int:
        self.written.append(text)
        for found in _TOKEN.finditer(text):
            self._take(found)
        self._news.set()
        self._news = anyio.Event()
        return len(text)

    def isatty(self) -> bool:
        return True

    def _take(self, found: re.Match[str]) -> None:
        token = found[0]
        if token == "\r":
            self._column = 0
        elif token == "\a":
            self.bells += 1
        elif token == "\b":
            self._column = max(0, self._column - 1)
        elif token == "\n":
            self._row += 1
            self._scroll()
        elif found[2]:
            self._control(found[1], found[2])
        else:
            assert not token.startswith("\x1b"), f"an unknown sequence: {token!r}"
            self._put(token)

    def _control(self, arguments: str, final: str) -> None:
        count = int(arguments) if arguments.isdigit() else 1
        match final:
            case "A":
                self._row = max(0, self._row - count)
            case "C":
                self._column = min(self.columns - 1, self._column + count)
            case "D":
                self._column = max(0, min(self._column, self.columns - 1) - count)
            case "J":
                self._row_now()[self._column :] = []
                del self._cells[self._row + 1 :]
            case "K":
                self._row_now()[self._column :] = []
            case "h" | "l" if arguments == "?7":
                self._wraps = final == "h"
            case "h" | "l" if arguments == "?25":
                self._drawing = final == "l"
            case _:
                assert final in "mhl", f"an unknown sequence: {arguments}{final}"

    def cell(self, character: str) -> str:
        """Make the cell of a character that is put; one that knows colours can be made of it."""
        return character

    def _put(self, character: str) -> None:
        width = wcwidth(character)
        assert width >= 0, f"a control character on the screen: {character!r}"
        if self._column + width > self.columns:
            if self._wraps:
                self._column, self._row = 0, self._row + 1
                self._scroll()
            else:
                self._column = self.columns - width
        row = self._row_now()
        row += [" "] * (self._column + width - len(row))
        row[self._column : self._column + width] = [self.cell(character), *[""] * (width - 1)]
        self._column += width

    def _row_now(self) -> list[str]:
        while self._row >= len(self._cells):
            self._cells.append([])
        return self._cells[self._row]

    def _scroll(self) -> None:
        self._row_now()
        while self._row >= self.rows:
            self.history.append("".join(self._cells.pop(0)).rstrip())
            self._row -= 1
