"""Named figures, in the units of their names."""

from __future__ import annotations

from typing import TypeAlias

Figures: TypeAlias = dict[str, float]


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(len(values) * 0.99) - 1)]


def ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
