"""Named figures, in the units of their names."""

from __future__ import annotations

from typing import TypeAlias

Figures: TypeAlias = dict[str, float]
#: What, what was to be reached, what was, whether it is.
TableRow: TypeAlias = tuple[str, str, str, bool]


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(len(values) * 0.99) - 1)]


def ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def row(what: str, reach: str, *got: tuple[float, float, str]) -> TableRow:
    """A row of values, each with its limit and its unit."""
    values = ", ".join(f"{value:g} {unit}" for value, _, unit in got)
    return what, reach, values, all(value <= limit for value, limit, _ in got)


def markdown(rows: list[TableRow]) -> list[str]:
    """Rows of a table in Markdown."""
    return [
        f"| {what} | {reach} | {got} | {'' if reached else 'falls short'} |"
        for what, reach, got, reached in rows
    ]
