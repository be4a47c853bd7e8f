"""`--keep`: the bridge goes on when its client ends, and a process of its own waits for the client.

`detach` forks twice. The first process, the waiter, is what the client has started: it waits and
returns the bridge's exit code. The grandchild is the bridge: a child of init in a session of its
own, with the client's pipes as its standard streams, so that no byte is copied.

Invariants
- Whatever ends the client's process group or its tree of processes ends the waiter alone.
- The bridge sees the waiter's end, however it came: the waiter has the only other end of a pipe.
- The waiter ends when the bridge has ended or has let go of it, and holds neither stdin nor stdout.
- Nothing here imports more than the interpreter has loaded for the options.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import Final, NoReturn

#: the waiter's exit code when the bridge ended without one, by SIGKILL say
_KILLED: Final = 1
#: bytes; a pipe that has room takes this much without waiting
_PIECE: Final = select.PIPE_BUF


class Waiter:
    """The bridge's end of the process that waits for it."""

    def __init__(self, alive: int, code: int) -> None:
        """`alive`: a pipe that ends with the waiter; `code`: a pipe that takes its exit code."""
        self._alive, self._code = alive, code

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the waiter has ended."""
        return self._alive

    @property
    def ended(self) -> bool:
        """True once the waiter has ended."""
        poll = select.poll()
        poll.register(self._alive, select.POLLIN)
        return bool(poll.poll(0))

    def let_go(self, code: int) -> None:
        """Make the waiter end with this exit code; does nothing the second time."""
        if self._code >= 0:
            with suppress(OSError):  # it has ended
                os.write(self._code, bytes([code]))
            os.close(self._code)
            self._code = -1


def detach() -> Waiter:
    """Fork, and go on in a process that the client does not know; returns in that process only.

    Its stderr goes to the waiter, its working directory is `/`, and the descriptors above stderr
    are closed, but for the two of the `Waiter`. Raises OSError if there can be no process; nothing
    has changed then.
    """
    alive, code, errors = _pipe(), _pipe(), _pipe()
    try:
        child = os.fork()
    except OSError:
        for fd in (*alive, *code, *errors):
            os.close(fd)
        raise
    if child:
        for fd in (0, 1, alive[0], code[1], errors[1]):
            _close(fd)
        _wait(child, code[0], errors[0])
    _fork_again()
    os.dup2(errors[1], 2)
    kept = alive[0], code[1]
    first, last = sorted(kept)
    os.closerange(3, first)
    os.closerange(first + 1, last)
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    return Waiter(*kept)


def _fork_again() -> None:
    """Fork, and go on in a child of init; if there can be none, exit, which the waiter sees."""
    os.setsid()
    try:
        if os.fork():
            os._exit(0)
    except OSError as exc:
        os.write(2, f"acp-bridge: no process for --keep: {exc.strerror}\n".encode())
        os._exit(1)


def _pipe() -> tuple[int, int]:
    """Return the ends of a pipe, of which none takes the place of a closed standard stream."""
    ends = os.pipe()
    above = _above(ends[0]), _above(ends[1])
    for fd in ends:
        os.close(fd)
    return above


def _above(fd: int) -> int:
    """Return a duplicate that is no standard descriptor, whichever of these are closed."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)


def _close(fd: int) -> None:
    with suppress(OSError):  # it was closed when the process started
        os.close(fd)


def _wait(child: int, code: int, errors: int) -> NoReturn:
    """Pass the bridge's stderr on until the bridge ends or lets go, then exit with its code."""
    os.waitpid(child, 0)
    either, more = select.poll(), select.poll()
    either.register(code, select.POLLIN)
    for look in (either, more):
        look.register(errors, select.POLLIN)
    ready: set[int] = set()
    while code not in ready:
        ready = {fd for fd, _ in either.poll()}
        if errors in ready and not _pass_on(errors):
            either.unregister(errors)
    answer = os.read(code, 1)
    while more.poll(0) and _pass_on(errors):
        pass
    os._exit(answer[0] if answer else _KILLED)


def _pass_on(errors: int) -> bool:
    """Copy a piece of `errors` to stderr, or drop it if nobody reads there; False at the end."""
    piece = os.read(errors, _PIECE)
    room = select.poll()
    room.register(2, select.POLLOUT)
    with suppress(OSError):  # the client is gone, or has closed it
        if room.poll(0):
            os.write(2, piece)
    return bool(piece)
