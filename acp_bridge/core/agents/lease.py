"""The lock that makes a bridge the only one to run a session (invariants K3, P12).

It is a flock on a file. A flock belongs to the open file and not to a process: once it is passed on
to the guard, it lasts until bridge and guard have closed it, or have died.
"""

import fcntl
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio

RETRY_INTERVAL = 0.05


class Busy(Exception):
    """Another process has the session open."""


async def acquire(
    path: Path,
    timeout: float,  # noqa: ASYNC109 - polls, so it ends itself
    while_busy: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Lock the file `path`, made if missing (0600), and return its descriptor.

    Tries for `timeout` seconds, then raises `Busy`. Waiting is polling: only a thread, which
    could not be cancelled, can sleep in flock. `while_busy` is called behind each try that
    failed; what it raises ends the waiting.
    """
    deadline = anyio.current_time() + timeout
    while True:
        fd = _try_lock(path)
        if fd is not None:
            return fd
        if while_busy is not None:
            await while_busy()
        remaining = deadline - anyio.current_time()
        if remaining <= 0:
            raise Busy
        await anyio.sleep(min(RETRY_INTERVAL, remaining))


def _try_lock(path: Path) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass  # another's, or deleted with its session while we opened it
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def is_held(path: Path) -> bool:
    """Return True while somebody has locked the file; nothing is made or kept locked."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # it was deleted, or is another user's
        return False
    try:
        return is_locked(fd)
    finally:
        os.close(fd)


def is_locked(fd: int) -> bool:
    """Return True while another has locked an open file; it is not left locked by the look."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # a bridge that wants it now tries again
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def taker(path: Path) -> int | None:
    """Return the id of the living process, other than this one, that has locked the file.

    None if there is no such process, or if the system doesn't say which it is.
    """
    try:
        pid = takers().get(os.stat(path).st_ino, 0)
    except OSError:  # it was deleted
        return None
    return pid if pid not in (0, os.getpid()) and is_alive(pid) else None


def takers() -> dict[int, int]:
    """Return the id of the process that has taken each lock, by the inode of the locked file.

    Linux only, else empty. A file is left out if another one with its inode is locked, too, on
    another disk.
    """
    found: dict[int, set[int]] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK":
                found.setdefault(int(words[5].rpartition(":")[2]), set()).add(int(words[4]))
    return {inode: min(pids) for inode, pids in found.items() if len(pids) == 1 and min(pids) > 0}


def is_alive(pid: int) -> bool:
    """Return True if the process has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
