"""Counts what the program does, in lines of its code: no machine is too slow for that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Count:
    """The lines of `acp_bridge` that have run; a loop's line counts each time."""

    def __init__(self) -> None:
        self.lines = 0

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if "/acp_bridge/" not in frame.f_code.co_filename:
            return None
        self.lines += 1
        return self._trace


@contextmanager
def counted() -> Iterator[Count]:
    """Count what runs in this thread until the block is left, in calls that begin meanwhile."""
    count, before = Count(), sys.gettrace()
    sys.settrace(count._trace)
    try:
        yield count
    finally:
        sys.settrace(before)
