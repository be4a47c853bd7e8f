"""A folder in memory, for tests that write many files and are not about the disk."""

import os
from pathlib import Path
from typing import Final

#: bytes that must be free there.
_ROOM: Final = 256 * 1024 * 1024


def _usable(folder: Path) -> bool:
    """Return whether there is such a folder, with room, from which programs can be run."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(folder)
    may_run = not found.f_flag & getattr(os, "ST_NOEXEC", 0)
    return may_run and found.f_bavail * found.f_frsize >= _ROOM


_SHARED: Final = Path("/dev/shm")

MEMORY: Final = _SHARED if _usable(_SHARED) else None
"""The folder, where an fsync takes no time; None if the system has none that can be used."""
