"""Words of the user that join a running turn. No I/O.

Invariants
- Words that were taken stand in the messages of the next model call of the turn, once: it ends only
  when none wait (`close`), unless it is cancelled, refused or fails.
- A turn that begins no other model call takes none.
"""

from __future__ import annotations

from collections import deque
from typing import Any


class Steering:
    """The words that wait to join the turn of one prompt."""

    def __init__(self) -> None:
        """No words are taken before `open`."""
        self._open = False
        self._waiting: deque[list[dict[str, Any]]] = deque()

    def open(self) -> None:
        """Takes words from now on."""
        self._open = True

    def add(self, blocks: list[dict[str, Any]]) -> bool:
        """Takes words for the next model call; returns False if the turn takes none."""
        if self._open:
            self._waiting.append(blocks)
        return self._open

    @property
    def waits(self) -> bool:
        """True if words wait for the next model call."""
        return bool(self._waiting)

    def next(self) -> list[dict[str, Any]] | None:
        """Removes and returns the words that have waited longest; None if no words wait."""
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> bool:
        """Stops taking words and returns True; if words wait, returns False and goes on."""
        if self._waiting:
            return False
        self._open = False
        return True

    def end(self) -> None:
        """Takes no words from now on, and drops those that wait."""
        self._waiting.clear()
        self._open = False
