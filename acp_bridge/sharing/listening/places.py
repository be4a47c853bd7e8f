"""The folders of run files and sockets, which only the user can read.

A socket is bound in such a folder and made 0600 before it listens. So the umask need not change,
which would affect the files that other threads make meanwhile.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: the most bytes of a socket's path, with the NUL at its end.
_PATH_BYTES: Final = 108 if sys.platform == "linux" else 104


class NoPlace(OSError):
    """There is no folder that only the user can use and that fits a socket."""


def run_folder(home: Path) -> Path:
    """Return the folder of run files and sockets in a data folder."""
    return home.absolute() / "run"


def new_socket_path(home: Path, env: Mapping[str, str], folder: Path | None = None) -> Path:
    """Return an unused path for a new socket; makes nothing on disk.

    `folder`: the socket's folder; None: that of the run files. If its path is too long for a
    socket, a short runtime folder is taken. The caller makes the folder by `private_folder`.
    Raises NoPlace.
    """
    name = f"{os.urandom(8).hex()}.sock"
    folder = folder or run_folder(home)
    return folder / name if _fits(folder / name) else _runtime_folder(env, name) / name


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) < _PATH_BYTES


def _runtime_folder(env: Mapping[str, str], name: str) -> Path:
    """Return a short folder in $XDG_RUNTIME_DIR, or else in /tmp; raises NoPlace."""
    places = [Path("/tmp") / f"acp-bridge-{os.getuid()}"]
    if os.path.isabs(given := env.get("XDG_RUNTIME_DIR", "")):
        places.insert(0, Path(given) / "acp-bridge")
    for place in places:
        if _fits(place / name) and _is_guarded(place.parent):
            return place
    raise NoPlace("no folder has a path that is short enough for a socket")


def _is_guarded(folder: Path) -> bool:
    """Return True if no other user can rename files of this user's in a folder."""
    try:
        found = folder.stat()
    except OSError:
        return False
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(found.st_mode) and found.st_uid in (0, os.getuid()) and not shared


def private_folder(path: Path) -> None:
    """Make a folder with the mode 0700, or give an existing one that mode; raises OSError.

    Raises NoPlace if it is another user's, or can't be made private.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # perhaps the data folder itself
    path.mkdir(mode=0o700, exist_ok=True)
    # A link would lead to where others may write: O_NOFOLLOW refuses it.
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid != os.getuid():
            raise NoPlace("the folder belongs to another user")
        if stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:
            os.fchmod(fd, 0o700)
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o077:  # a file system without modes
            raise NoPlace("the folder can't be made private")
    finally:
        os.close(fd)
