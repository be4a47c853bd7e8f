"""Opens the folders of a resolved path one by one, each below the descriptor of the one before.

A path is looked at, allowed and then used. Who exchanges one of its folders for a link meanwhile
would have another file used. Here no link is followed on the way, so that what is opened is what
was looked at or nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Linux opens a folder for the walk alone, also one whose names the user may not list
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | _FLAGS
_EXCHANGED = "a folder on the way to it is a link now"


@contextlib.contextmanager
def open_folder(folder: Path, *, make: bool = False) -> Iterator[int]:
    """Yields a descriptor of a folder to which a resolved, absolute path leads.

    `make`: folders that are missing are made. It waits for the disk, so call it in a thread. Raises
    OSError, also if one of the folders is a link.
    """
    at = os.open(folder.anchor, _FOLDER)
    try:
        for name in folder.parts[1:]:
            below = _open(name, at, make)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _open(name: str, at: int, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=at)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, _EXCHANGED) from error
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=at)
    return _open(name, at, False)
