"""Who may connect: the same user, and no agent nor what it has started (invariant V6).

An agent that could connect would answer its own permission requests. What is judged is the process
that called connect(), even if the socket was handed on since. Everything here belongs in a thread:
/proc may be slow.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from acp_bridge.agents.ancestors import Unseen, is_below, is_guard, words_of
from acp_bridge.agents.guard import LINUX
from acp_bridge.agents.orphans import ORPHANS
from acp_bridge.listening.run_files import LiveBridge

#: Linux 6.5: a pidfd of who has connected. The socket module does not name it.
_SO_PEERPIDFD: Final = 77
#: macOS: who has connected, in the level 0, SOL_LOCAL.
_LOCAL_PEERCRED, _LOCAL_PEERPID = 1, 2
#: the command of a bridge is one of its words.
_BRIDGES: Final = frozenset({b"acp-bridge", b"acp-stdio-bridge", b"acp_bridge"})
_ANOTHER_USER: Final = "only the user of this acp-bridge may connect"
_AN_AGENT: Final = "agents and what they start may not connect: they could answer for the user"
_GONE: Final = "the process that connected has ended"
UNSEEN: Final = "it can't be seen which process started the one that connects"


class Refused(Exception):
    """Who has connected may not; the text says why."""


def check(connection: socket.socket, bridges: Callable[[], Iterable[LiveBridge]]) -> None:
    """Raise Refused unless this connection may be served.

    `bridges`: those that live. What descends from one of them has lost its guard.
    """
    try:
        pid, uid = _credentials(connection)
        if uid != os.getuid():
            raise Refused(_ANOTHER_USER)
        with _same_process(connection, pid):
            host = socket.gethostname()
            pids = {bridge.pid for bridge in bridges() if bridge.host == host}
            if is_below(pid, lambda above: is_guard(above) or _is_bridge(above, pids)):
                raise Refused(_AN_AGENT)
    except (OSError, Unseen) as exc:
        raise Refused(UNSEEN) from exc


def _is_bridge(pid: int, pids: set[int]) -> bool:
    """Return True for this bridge and for one of `pids`; raises OSError.

    Containers that share a home may have the same name and the same pids.
    """
    if pid == os.getpid():
        return ORPHANS.adopts
    return pid in pids and (
        not LINUX or any(os.path.basename(word) in _BRIDGES for word in words_of(pid))
    )


def _credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user of who has connected; raises OSError, Refused."""
    if LINUX:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", found)
    else:  # macOS: written for, untested; struct xucred begins with its version and the user
        (uid,) = struct.unpack_from("I", connection.getsockopt(0, _LOCAL_PEERCRED, 76), 4)
        (pid,) = struct.unpack("i", connection.getsockopt(0, _LOCAL_PEERPID, 4))
    if pid <= 0:  # of another container, or gone before anybody looked (macOS)
        raise Refused(UNSEEN)
    return pid, uid


@contextmanager
def _same_process(connection: socket.socket, pid: int) -> Iterator[None]:
    """Raise Refused if the pid is not that of who has connected, from the beginning to the end."""
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
        if ended:  # which is then the reason why something else could not be seen
            raise Refused(_GONE)


def _pidfd(connection: socket.socket, pid: int) -> int:
    """Return a descriptor of who has connected; raises Refused if it has ended.

    Linux before 6.5 gives none. There another process may have got the pid before this is called.
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
