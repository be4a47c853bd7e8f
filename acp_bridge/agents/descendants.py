"""Finds the processes that an agent has beside its main one."""

from __future__ import annotations

from acp_bridge.agents import guard


def descendants(main: int) -> frozenset[int] | None:
    """Return the ids of all processes of an agent's tree but its main one and its guard.

    None if they can't be seen. It reads the list of all processes: call it in a thread.
    """
    table = guard.processes()
    above = next((parent for pid, parent, _, zombie in table if pid == main and not zombie), None)
    if above is None:
        return None
    tree, size = {above}, 0  # the guard has adopted what lost its parent
    while len(tree) > size:
        size = len(tree)
        tree.update(pid for pid, parent, group, _ in table if parent in tree or group == main)
    return frozenset(pid for pid, _, _, dead in table if pid in tree and not dead) - {above, main}
