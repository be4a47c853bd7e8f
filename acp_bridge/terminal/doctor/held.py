"""Finds the sessions whose lock is taken, by their lock files; takes no lock itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from acp_bridge.core.agents.holder import read_holder
from acp_bridge.core.agents.lease import is_locked, takers


@dataclass(frozen=True, slots=True)
class Held:
    """A session whose lock a process has."""

    session_id: str
    #: the path of the socket of the session's bridge, if the lock file names it.
    socket: str | None
    #: the process that took the lock, if the system knows it.
    pid: int | None


def held_sessions(home: Path) -> list[Held]:
    """Return the sessions whose locks are taken. Raises OSError."""
    owners: dict[int, int] | None = None
    found = []
    for path in sorted((home / "sessions").glob("*.lock")):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # deleted meanwhile, or another user's, which the check of sessions reports
            continue
        try:
            if not is_locked(fd):
                continue
            owners = takers() if owners is None else owners
            holder = read_holder(path)
            pid = owners.get(os.fstat(fd).st_ino)
            found.append(Held(path.stem, holder.socket if holder else None, pid))
        finally:
            os.close(fd)
    return found
