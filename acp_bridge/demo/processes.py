"""Finds the processes that a bridge has started, from outside."""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from acp_bridge.agents.guard import processes

#: Seconds between two looks at processes that are no children of this one.
LOOK_AGAIN = 0.01


def children(parents: Iterable[int]) -> set[int]:
    """Return the living children of these processes; a zombie is dead."""
    wanted = set(parents)
    return {pid for pid, parent, _, zombie in processes() if parent in wanted and not zombie}


def descendants(root: int) -> set[int]:
    """Return children, their children and so on, without those that another process adopted."""
    found: set[int] = set()
    generation = {root}
    while generation := children(generation) - found:
        found |= generation
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Return those of these processes that live."""
    return {pid for pid, _, _, zombie in processes() if not zombie} & set(pids)


async def survivors(pids: Iterable[int], within: float) -> set[int]:
    """Wait up to `within` seconds for processes to be gone; returns those that are not."""
    left = alive(pids)
    with anyio.move_on_after(within):
        while left:
            await anyio.sleep(LOOK_AGAIN)
            left = alive(left)
    return left
