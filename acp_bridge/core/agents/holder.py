"""Reads and writes, in a session's lock file, where the bridge that holds it can be reached.

The entry is written after the file was locked, and counts as long as that lock. It may be of a
bridge that had the session before; so a client that connects asks if the session is live there.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

#: the most bytes that are read.
_MOST: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Holder:
    """A bridge that holds a session."""

    #: the path of its socket.
    socket: str
    #: the version of the protocol on its socket.
    protocol: int
    #: the name under which its agent's sessions are kept, and the agent's own name for itself.
    agent: str
    agent_info: str | None = None


def write_holder(lock: int, holder: Holder | None) -> None:
    """Write the holder into a locked file; None: this bridge can't be reached. Never raises.

    `lock`: the file's descriptor.
    """
    with suppress(OSError):  # as on a full disk: others wait until the lock is free
        os.ftruncate(lock, 0)
        if holder:
            os.pwrite(lock, json.dumps(asdict(holder)).encode(), 0)


def read_holder(lock_file: Path) -> Holder | None:
    """Return the holder that a session's lock file names; None if it names none.

    It never blocks: an agent has the rights to put a pipe in place of the file.
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
