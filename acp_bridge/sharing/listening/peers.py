"""Checks the process at the other end of a Unix socket: the user's own, and no agent's (V6).

An agent that could connect to a bridge would answer its own permission requests; one that a client
took for a bridge would be given the user's words. So both ends check, before a byte is read or
written: a bridge the process that called connect(), a client the one that called listen(), even if
the socket was handed on since. `check` belongs in a thread: on macOS it asks `ps`.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from acp_bridge.core.agents.guard import LINUX
from acp_bridge.core.agents.origin import Unseen, is_from_agent
from acp_bridge.core.runtime.threads import in_thread

#: Linux 6.5: a pidfd of the other end. The socket module does not name it.
_SO_PEERPIDFD: Final = 77
#: macOS: the options of the level 0, SOL_LOCAL, for user and pid of the other end.
_LOCAL_PEERCRED, _LOCAL_PEERPID = 1, 2
ANOTHER_USER: Final = "only the user of this acp-bridge may connect"
AN_AGENT: Final = "agents and what they start may not connect: they could answer for the user"
_GONE: Final = "the process at the other end has ended"
UNSEEN: Final = "it can't be seen which process is at the other end"
_NO_BRIDGE: Final = "the process that listens there is no acp-bridge of yours"


class Refused(Exception):
    """The process at the other end may not connect, or listen; the message says why."""


class AnotherUser(Refused):
    """The process at the other end is another user's."""


class NoBridge(OSError):
    """The process that listens at a path is another user's, or an agent may have started it."""


async def connect(path: str) -> socket.socket:
    """Return a connection to the bridge that listens at a path, as a non-blocking socket.

    It does not wait for the bridge: one with a full backlog counts as one that refuses.

    Raises:
        NoBridge: another user's process, or one that an agent has started, listens there.
        OSError: nobody can be reached there.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        connection.connect(path)
        await in_thread(check, connection)
    except BaseException as exc:
        connection.close()
        if isinstance(exc, ValueError):  # a NUL in the path
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from exc
        if isinstance(exc, Refused):
            raise NoBridge(errno.EPERM, _NO_BRIDGE) from exc
        raise
    return connection


def check(connection: socket.socket) -> None:
    """Raise Refused if the process at the other end is another user's, an agent's, or unknown."""
    try:
        pid, uid = _credentials(connection)
        if uid != os.getuid():
            raise AnotherUser(ANOTHER_USER)
        with _same_process(connection, pid):
            if is_from_agent(pid):
                raise Refused(AN_AGENT)
    except (OSError, Unseen) as exc:
        raise Refused(UNSEEN) from exc


def other_end(connection: socket.socket) -> tuple[int, int]:
    """Return pid and user id of the process that has connected; raises OSError, Refused."""
    return _credentials(connection)


def _credentials(connection: socket.socket) -> tuple[int, int]:
    """Return pid and user id of the process at the other end; raises OSError, Refused."""
    if LINUX:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", found)
    else:  # macOS: written for, untested; struct xucred begins with its version and the user
        (uid,) = struct.unpack_from("I", connection.getsockopt(0, _LOCAL_PEERCRED, 76), 4)
        (pid,) = struct.unpack("i", connection.getsockopt(0, _LOCAL_PEERPID, 4))
    if pid <= 0:  # of another container, or gone already (macOS)
        raise Refused(UNSEEN)
    return pid, uid


@contextmanager
def _same_process(connection: socket.socket, pid: int) -> Iterator[None]:
    """Raise Refused if the process at the other end does not have this pid during the block."""
    if not LINUX:
        yield
        os.kill(pid, 0)
        return
    pidfd = _pidfd(connection, pid)
    try:
        yield
    finally:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        ended = bool(poll.poll(0))
        os.close(pidfd)
        if ended:  # the true reason, if the block has failed, too
            raise Refused(_GONE)


def _pidfd(connection: socket.socket, pid: int) -> int:
    """Return a pidfd of the process at the other end; raises Refused if it has ended.

    Linux before 6.5 can't give one for a socket: it is opened by `pid`, which another process may
    have got before.
    """
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as exc:
        if exc.errno != errno.ENOPROTOOPT:
            raise Refused(_GONE) from None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise Refused(_GONE) from None
