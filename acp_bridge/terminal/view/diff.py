"""Formats a change of a file as a unified diff."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import Final

from acp_bridge.terminal.view.blocks import Diff

#: lines of one side above which no diff is computed, since its time grows with their square.
_MOST_COMPARED: Final = 3_000


def unified(diff: Diff, most: int) -> tuple[list[str], int]:
    """Return at most `most` lines of the diff, each with its sign, and how many were left out."""
    old, new = (diff.old or "").splitlines(), diff.new.splitlines()
    if max(len(old), len(new)) > _MOST_COMPARED:
        lines = [f"-{line}" for line in old] + [f"+{line}" for line in new]
    elif not old:
        lines = [f"+{line}" for line in new]
    else:
        lines = list(islice(difflib.unified_diff(old, new, lineterm="", n=2), 2, None))
    return lines[:most], max(0, len(lines) - most)
