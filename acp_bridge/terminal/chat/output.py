"""Adapts prompt_toolkit's output to the terminal, and corrects the cursor after a resize."""

from __future__ import annotations

import sys
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout.screen import Screen
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from acp_bridge.terminal.view.look import Look


class BufferedOutput(Vt100_Output):
    """Writes nothing while `buffering` is set, so that several steps become one write."""

    buffering = False

    def flush(self) -> None:
        """Write the buffered output, unless `buffering` is set."""
        if not self.buffering:
            super().flush()

    def show_cursor(self) -> None:
        """Show the cursor, unless `buffering` is set: in half a drawing it would jump."""
        if not self.buffering:
            super().show_cursor()

    def erase_down(self) -> None:
        """Erase from the cursor, which must be at the beginning of a row, to the end of the screen.

        The row is erased first: tmux would keep a screen erased from its first cell in its history.
        """
        self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")

    @property
    def responds_to_cpr(self) -> bool:
        """False: the cursor's position is not needed, and its report could be taken for typing."""
        return False


def terminal_output(look: Look) -> BufferedOutput:
    """Return the output to this process's terminal."""
    depth = ColorDepth.DEPTH_4_BIT if look.colours else ColorDepth.DEPTH_1_BIT
    output = BufferedOutput.from_pty(sys.stdout, default_color_depth=depth, enable_bell=False)
    assert isinstance(output, BufferedOutput)
    return output


class ReflowingApplication(Application[None]):
    """An application that accounts for a terminal that wraps its rows when it becomes narrower.

    Invariant: `reflow` is called before anything moves the cursor to the first row that was drawn.
    """

    def __init__(self, *, reflows: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self._reflows = reflows
        self._columns = 0
        self.before_render += lambda _: self.reflow()

    def reflow(self) -> None:
        """Move the cursor up by the rows that wrapping added above it since the last drawing."""
        before, self._columns = self._columns, self.output.get_size().columns
        screen = self.renderer.last_rendered_screen
        if self._columns < before and self._reflows and screen is not None:
            cursor = screen.get_cursor_position(self.layout.current_window)
            self.output.cursor_up(_wrapped(screen, cursor, self._columns))

    def _on_resize(self) -> None:
        self.reflow()
        super()._on_resize()


def _wrapped(screen: Screen, cursor: Point, columns: int) -> int:
    """Return by how many rows the cursor has moved down on a screen that is now `columns` wide."""
    above = sum(max(0, -(-_used(screen, row) // columns) - 1) for row in range(cursor.y))
    return above + cursor.x // columns


def _used(screen: Screen, row: int) -> int:
    cells = screen.data_buffer[row]
    return max((column + 1 for column, cell in cells.items() if cell.char != " "), default=0)
