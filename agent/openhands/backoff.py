"""Computes how long to wait before the next attempt (sans-IO)."""

from __future__ import annotations

from typing import Final

#: doublings after which every pause is the longest one
_MOST: Final = 20


def pause_after(failures: int, first: float, longest: float) -> float:
    """Returns the seconds to wait after `failures` (at least one) failures in a row.

    It is `first`, doubled with each further failure, and `longest` at most.
    """
    return min(first * 2.0 ** min(failures - 1, _MOST), longest)
