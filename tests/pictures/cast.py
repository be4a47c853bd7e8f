"""Recordings of a terminal in the form of asciicast 2: a header, and what was written, with times.

The pictures are made of these and of nothing else, so the same recording gives the same picture.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.pictures.screen import ColourTerminal, Row


@dataclass(frozen=True, slots=True)
class Cast:
    """What was written to a terminal of this size: seconds since the start, and text."""

    columns: int
    rows: int
    title: str
    written: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """What is shown, and from when on (seconds)."""

    start: float
    rows: tuple[Row, ...]


#: seconds. What changes faster is shown together, and what stands still longer is cut.
SHORTEST, LONGEST = 0.08, 1.5
#: seconds that the last frame is shown.
END = 6.0


def write(cast: Cast, path: Path) -> None:
    """Write a recording to a file."""
    header = {"version": 2, "width": cast.columns, "height": cast.rows, "title": cast.title}
    lines = [header, *([round(time, 3), "o", text] for time, text in cast.written)]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")


def read(path: Path) -> Cast:
    """Read a recording from a file."""
    header, *lines = map(json.loads, path.read_text("utf-8").splitlines())
    written = tuple((float(time), str(text)) for time, _, text in lines)
    return Cast(header["width"], header["height"], header["title"], written)


def frames(cast: Cast) -> tuple[list[Frame], float]:
    """Return what is seen of a recording, and how long it takes, in seconds."""
    terminal = ColourTerminal(cast.columns, cast.rows)
    found: list[Frame] = []
    clock = before = pending = 0.0
    for number, (time, text) in enumerate(cast.written):
        clock += min(time - before, LONGEST)
        before = time
        terminal.write(text)
        after = cast.written[number + 1][0] if number + 1 < len(cast.written) else time + END
        pending = pending or clock
        settled, overdue = after - time >= SHORTEST, clock - pending >= SHORTEST
        if settled or overdue:
            pending = 0.0
            if not found or terminal.look() != found[-1].rows:
                found.append(Frame(clock, terminal.look()))
    return found, clock + END
