"""Puts new content into a file on the disk; waits for that, so all of it runs in a thread.

Invariants
- No link is followed, and a write-protected file is not written.
- A file is changed whole or not at all: the new content is written beside it, then renamed. Where
  that would lose the file's owner, its extended attributes or its other names, or is not possible
  because the file is a mount or its folder is not writable, the file itself is written. Then a copy
  of the old content is on the disk before the first byte changes, until the last one is there.
- A file with more than one name is written only if the user was asked about such a file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agent.tools import ToolContext, ToolError
from agent.tools.paths import Place
from agent.tools.walk import open_folder

#: why a file can't be replaced by another one, though it may be written
_STAYS = (errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OLD = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: of a copy of the old content: the end of its name, how many of one file may be left, and the
#: folder below that of the sessions for those that can't be beside their file
_COPY = "before-edit"
_COPIES = 9
_FOLDER = "before-edits"


def write(place: Place, data: bytes, context: ToolContext) -> None:
    """Writes a file, which may be new, in a folder that exists. Raises ToolError."""
    try:
        with open_folder(place.real.parent) as at:
            _write(place, data, at, context)
    except OSError as error:
        raise ToolError(f"Could not write {place.given}: {error.strerror}.") from error


def left_copies(place: Place, context: ToolContext) -> list[str]:
    """Returns the copies of what a file held before a write of it that was cut off."""
    beside = (place.real.parent / name for name in _beside(place))
    return [str(each) for each in (*beside, *_apart(place, context)) if os.path.lexists(each)]


def more_names(place: Place) -> ToolError:
    return ToolError(f"{place.given} has got another name on the disk meanwhile. Try again.")


def _write(place: Place, data: bytes, at: int, context: ToolContext) -> None:
    name = place.real.name
    try:
        old = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        _replace(name, data, at, None)
        return
    if not old.st_mode & 0o222:  # a rename would replace it all the same
        raise PermissionError(0, "it is write-protected")
    if old.st_nlink > 1 and place.names < 2:
        raise more_names(place)
    if old.st_nlink < 2:
        try:
            if _replace(name, data, at, old):
                return
        except OSError as error:
            if error.errno not in _STAYS:
                raise
    _overwrite(place, data, at, old, context)


def _replace(name: str, data: bytes, at: int, old: os.stat_result | None) -> bool:
    """Puts a new file in the place of the file `name` of the folder whose descriptor is `at`.

    Returns False, with nothing changed, if the new file would lose something of the old one. Raises
    OSError.
    """
    beside = f".{secrets.token_hex(8)}.tmp"
    file = os.open(beside, _NEW, 0o666, dir_fd=at)
    try:
        with os.fdopen(file, "wb") as out:
            if old is not None:
                os.fchmod(file, stat.S_IMODE(old.st_mode))
                if _differs(name, at, old, file):
                    os.unlink(beside, dir_fd=at)
                    return False
            out.write(data)
        os.replace(beside, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=at)
        raise
    return True


def _differs(name: str, at: int, old: os.stat_result, new: int) -> bool:
    """Returns True if owner, mode or extended attributes (so ACLs) of a new file are others."""
    now = os.fstat(new)
    if (now.st_uid, now.st_gid, now.st_mode) != (old.st_uid, old.st_gid, old.st_mode):
        return True
    fd = os.open(name, os.O_RDONLY | _OLD, dir_fd=at)
    try:
        return _attributes(fd) != _attributes(new)
    finally:
        os.close(fd)


def _attributes(fd: int) -> dict[str, bytes]:
    if not hasattr(os, "listxattr"):  # macOS: they can't be seen from here
        return {}
    try:
        return {name: os.getxattr(fd, name) for name in os.listxattr(fd)}
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):
            return {}
        raise


def _overwrite(
    place: Place, data: bytes, at: int, old: os.stat_result, context: ToolContext
) -> None:
    """Writes the file itself; what it held is in a copy meanwhile. Raises ToolError, OSError."""
    fd = os.open(place.real.name, os.O_RDWR | _OLD, dir_fd=at)
    with os.fdopen(fd, "r+b", buffering=0) as file:
        now = os.fstat(fd)
        if not stat.S_ISREG(now.st_mode) or not os.path.samestat(now, old):
            raise ToolError(f"{place.given} is another file now. Try again.")
        before = file.readall()
        kept, forget = _keep(place, before, at, context)
        try:
            _fill(fd, data)
        except OSError as error:
            raise _broken_off(place, fd, before, kept, error) from error
        finally:
            if _content(fd) in (data, before):
                forget()


def _keep(
    place: Place, content: bytes, at: int, context: ToolContext
) -> tuple[str, Callable[[], None]]:
    """Writes a copy beside the file, or else in a folder of its own; returns its path.

    The function that it also returns removes the copy. Raises OSError.
    """
    for name in _beside(place):
        with contextlib.suppress(OSError):
            _new_file(name, content, at)
            return str(place.real.parent / name), partial(_remove, name, at)
    last: OSError | None = None
    for path in _apart(place, context):
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _new_file(str(path), content, None)
        except OSError as error:
            last = error
        else:
            return str(path), partial(_remove, str(path), None)
    raise last or OSError(0, "there is no place for a copy of what it holds")


def _new_file(name: str, content: bytes, at: int | None) -> None:
    fd = os.open(name, _NEW | os.O_NOFOLLOW, 0o600, dir_fd=at)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(fd)
    except BaseException:
        _remove(name, at)
        raise


def _remove(name: str, at: int | None) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=at)


def _beside(place: Place) -> Iterator[str]:
    """Yields names for copies in the file's own folder, within the length of a name."""
    name = place.real.name
    if len(os.fsencode(name)) > 200:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return (f".{name}.{_COPY}{end}" for end in _numbers())


def _apart(place: Place, context: ToolContext) -> Iterator[Path]:
    """Yields paths for copies of a file whose folder takes none."""
    records = next(iter(context.records), None)
    folder = records / _FOLDER if records else Path(tempfile.gettempdir())
    name = hashlib.sha256(os.fsencode(place.real)).hexdigest()[:16]
    return (folder / f"{name}.{_COPY}{end}" for end in _numbers())


def _numbers() -> Iterator[str]:
    return ("" if n == 1 else f"-{n}" for n in range(1, _COPIES + 1))


def _broken_off(place: Place, fd: int, before: bytes, kept: str, error: OSError) -> ToolError:
    """Puts the old content back after a write that failed; returns what is to be said."""
    said = f"Could not write {place.given}: {error.strerror}."
    with contextlib.suppress(OSError):
        _fill(fd, before)
        return ToolError(f"{said} It is as it was.")
    return ToolError(f"{said} A part of it is written; what it held before is in {kept}.")


def _fill(fd: int, data: bytes) -> None:
    """Writes a file's whole content, and waits until it is on the disk. Raises OSError."""
    size = os.fstat(fd).st_size
    _put(fd, data, size, len(data))  # first what needs room, while all of the old content is there
    _put(fd, data, 0, min(size, len(data)))
    os.ftruncate(fd, len(data))
    os.fsync(fd)


def _put(fd: int, data: bytes, at: int, end: int) -> None:
    while at < end:
        at += os.pwrite(fd, data[at:end], at)


def _content(fd: int) -> bytes | None:
    try:
        return os.pread(fd, os.fstat(fd).st_size + 1, 0)
    except OSError:
        return None
