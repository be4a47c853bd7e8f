"""The processes that a bridge has started, seen from outside: children, and theirs."""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from acp_bridge.agents.guard import processes

#: Seconds between two looks at processes that are not our children.
LOOK_AGAIN = 0.01


def children(parents: Iterable[int]) -> set[int]:
    """The living children of these processes; a zombie is dead."""
    wanted = set(parents)
    return {pid for pid, parent, _, zombie in processes() if parent in wanted and not zombie}


def descendants(root: int) -> set[int]:
    """Children, their children and so on; not those that another process has adopted."""
    found: set[int] = set()
    generation = {root}
    while generation := children(generation) - found:
        found |= generation
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Which of these processes live."""
    return {pid for pid, _, _, zombie in processes() if not zombie} & set(pids)


async def survivors(pids: Iterable[int], within: float) -> set[int]:
    """Wait until these processes are gone; which are not, after so many seconds."""
    left = alive(pids)
    with anyio.move_on_after(within):
        while left:
            await anyio.sleep(LOOK_AGAIN)
            left = alive(left)
    return left
