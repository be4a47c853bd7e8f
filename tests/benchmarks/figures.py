"""Named figures, in the units of their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Figures: TypeAlias = dict[str, float]
#: What, what was to be reached, what was, whether it is, and how many times its floor that is.
TableRow: TypeAlias = tuple[str, str, str, bool, str]


class Time(float):
    """A time that knows how many times its floor it is."""

    ratio: float


def with_ratios(figures: Figures, ratio: Callable[[str, Figures], float | None]) -> Figures:
    """The figures, where those that have a floor are each a `Time`."""
    found = dict(figures)
    for name, value in figures.items():
        if (times := ratio(name, figures)) is not None:
            found[name] = time = Time(value)
            time.ratio = times
    return found


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(len(values) * 0.99) - 1)]


def ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def row(what: str, reach: str, *got: tuple[float, float, str]) -> TableRow:
    """A row of values, each with its limit and its unit."""
    values = ", ".join(f"{value:g} {unit}" for value, _, unit in got)
    ratios = ", ".join(f"{value.ratio:.1f}" for value, _, _ in got if isinstance(value, Time))
    return what, reach, values, all(value <= limit for value, limit, _ in got), ratios


def markdown(rows: list[TableRow]) -> list[str]:
    """Rows of a table in Markdown."""
    return [
        f"| {what} | {reach} | {got} | {ratios} | {'' if reached else 'falls short'} |"
        for what, reach, got, reached, ratios in rows
    ]
