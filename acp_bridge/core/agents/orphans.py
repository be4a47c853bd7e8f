"""Adopts and kills the processes that a killed guard leaves behind (Linux).

A guard is the subreaper of its agent's tree. When it is killed, the kernel gives what it had to the
next subreaper above it, which is the bridge. So a child of the bridge that is no guard of its own,
and is not in the bridge's process group, belongs to a tree whose guard is dead, and is to die as
well (invariant P1). The built-in agent does the same for the guards of its tools.

A process that the bridge did not make a subreaper, as in tests, adopts nothing and kills nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from acp_bridge.core.agents import guard

#: seconds to wait for a guard that is being started.
_BIRTH: Final = 0.1


class Started(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its process id."""


_Started = TypeVar("_Started", bound=Started)


class Orphans:
    """Knows the guards of this process, and kills the children that it adopts from dead ones."""

    def __init__(self) -> None:
        """Begin without adopting."""
        self._adopts = False
        self._guards: set[int] = set()
        #: held while a guard is started: until that is over it looks like an orphan.
        self._births = threading.Lock()

    def adopt(self) -> None:
        """Make this process adopt the descendants that lose their guard, from now on."""
        guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
        self._adopts = guard.LINUX

    def start_guard(self, start: Callable[[], _Started]) -> _Started:
        """Call `start`, mark the guard that it returns as an agent's, and return it.

        The guard counts as no orphan until `forget_guard`. The parent that guards are forked from
        is started this way, too.
        """
        with self._births:
            process = start()
            # It needs no bridge: whoever gets into it while it starts has gained nothing (V6).
            with suppress(OSError):  # it has ended
                guard.mark(process.pid)
            self._guards.add(process.pid)
        return process

    def forget_guard(self, pid: int) -> None:
        """Note that a guard has ended and was waited for."""
        self._guards.discard(pid)

    def kill(self) -> bool:
        """SIGKILL all orphans and their descendants; returns False if there was no orphan."""
        if not self._adopts:
            return False
        if not self._births.acquire(timeout=_BIRTH):
            return True  # a guard is being started, slowly; nobody knows which one it is
        try:
            table = guard.processes()
            own, group = os.getpid(), os.getpgrp()  # what it has started itself is in its group
            children = {pid for pid, parent, its, _ in table if parent == own and its != group}
            adopted = children - self._guards
        finally:
            self._births.release()
        tree, size = set(adopted), 0
        while len(tree) > size:
            size = len(tree)
            tree.update(pid for pid, parent, _, _ in table if parent in tree)
        for its in {its for pid, _, its, _ in table if pid in tree} - {group}:
            guard.kill_group(its)
        for pid in adopted:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return bool(adopted)


#: the orphans of this process.
ORPHANS = Orphans()
