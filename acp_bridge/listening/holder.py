"""Tells, in the lock file of a session, where the bridge that holds the session can be reached.

It is written after the file was locked, and counts while it is. What stands there a moment longer
is of a bridge that had the session before; so who connects asks if the session is live there.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

#: bytes that are read.
_MOST: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Holder:
    """A bridge that holds a session."""

    #: the path of its socket.
    socket: str
    #: the version of what is spoken there.
    protocol: int
    #: the name under which its agent's sessions are kept, and the one that the agent gives itself.
    agent: str
    agent_info: str | None = None


def write_holder(lock: int, holder: Holder | None) -> None:
    """Write the holder into a locked file; None: it can't be reached. Never raises."""
    with suppress(OSError):  # a full disk, say: then others wait until the lock is free
        os.ftruncate(lock, 0)
        if holder:
            os.pwrite(lock, json.dumps(asdict(holder)).encode(), 0)


def read_holder(lock_file: Path) -> Holder | None:
    """Return the holder from a file that somebody has locked; None if the file names none.

    It never waits: an agent has the rights to put a pipe in place of the file.
    """
    try:
        fd = os.open(lock_file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = json.loads(os.pread(fd, _MOST, 0))
        finally:
            os.close(fd)
        info = found.get("agent_info")
        holder = Holder(found["socket"], found["protocol"], found["agent"], info)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    words = isinstance(holder.socket, str) and isinstance(holder.agent, str)
    right = words and isinstance(holder.protocol, int)
    right = right and isinstance(holder.agent_info, str | None)
    return holder if right and os.path.isabs(holder.socket) else None
