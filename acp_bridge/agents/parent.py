"""The parent of the built-in agent's processes: started by the bridge, and asked to fork.

agent/fork_parent.py is what runs there. A start that it can't serve, because it still loads, has
died or hangs, goes by the command line; so it costs no session (hazard F2).

Invariants
- One task runs `run`. It ends by cancellation, and the parent with it; guards live on.
- A parent that does not answer in time is killed, so that no request is served late.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio

from acp_bridge import waits
from acp_bridge.agents.birth import ForkedGuard, NoParent, StartedGuard
from acp_bridge.agents.orphans import ORPHANS
from acp_bridge.log import event

_READY: Final = b"ready"
_THREADS: Final = b"threads"
_FORK: Final = b"fork"
_FAILED: Final = b"failed"
#: parents in a row that end before they are ready; then there is no other.
_TRIES: Final = 3


def can_fork() -> bool:
    """Tell if this system has what it takes: Linux with pidfds."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


class AgentParent:
    """Keeps one parent, from the second start on; `fork` may be called from any thread."""

    def __init__(self, command: Sequence[str]) -> None:
        """`command` is the parent's; the number of its socket is its last argument."""
        self._command = command
        self._starts = 0
        self._wanted = anyio.Event()
        #: the bridge's end, once the parent is ready.
        self._channel: socket.socket | None = None
        #: held while a request is answered, and while a parent comes or goes.
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ready(self) -> bool:
        """True while a parent is there that has loaded all."""
        return self._channel is not None

    @property
    def pid(self) -> int | None:
        """The parent's pid while there is one, also one that still loads."""
        return self._process.pid if self._process else None

    def note_start(self) -> None:
        """Note that an agent is started; with the second, a parent is started in the background.

        A session that stays alone would pay for all modules twice: its own process has them.
        """
        self._starts += 1
        if self._starts > 1:
            self._wanted.set()

    # --- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a parent from the second start on, until cancelled."""
        await self._wanted.wait()
        failures = 0
        while failures < _TRIES:
            try:
                was_ready, may_return = await self._live()
            except OSError:  # too many files or processes
                was_ready, may_return = False, True
            if not may_return:
                return
            failures = 0 if was_ready else failures + 1
            await anyio.sleep(waits.PARENT_PAUSE)

    async def _live(self) -> tuple[bool, bool]:
        """Start a parent and wait for its end; returns if it was ready, and if another may come."""
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        said = b""
        try:
            ours.setblocking(False)
            with anyio.CancelScope(shield=True):  # or nobody would own what is started
                await anyio.to_thread.run_sync(self._start, other)
            await anyio.wait_readable(ours)
            with suppress(OSError):
                said = ours.recv(64)
            if said == _READY:
                self._channel = ours
                event("parent.ready", pid=self.pid)
                await self._ended()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._end, ours)
        if said == _THREADS:
            event("parent.threads")
        return said == _READY, said != _THREADS

    def _start(self, other: socket.socket) -> None:
        number = other.fileno()

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [*self._command, str(number)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[number],
                env=os.environ,
                start_new_session=True,
            )

        try:
            self._process = ORPHANS.start_guard(start)
        finally:
            other.close()

    async def _ended(self) -> None:
        assert self._process is not None
        pidfd = os.pidfd_open(self._process.pid)
        try:
            await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)

    def _end(self, ours: socket.socket) -> None:
        """Kill and collect the parent, when no request is with it; runs in a thread."""
        with self._turn:
            self._channel = None
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                ORPHANS.forget_guard(self._process.pid)
                event("parent.ended", pid=self._process.pid)
                self._process = None
            ours.close()

    # --- forks ---------------------------------------------------------------------------------

    def fork(self, control: int, streams: Sequence[int], open_files: int | None) -> StartedGuard:
        """Have a guard forked, within `waits.FORK`; raises NoParent."""
        with self._turn:
            if self._channel is None or self._process is None:
                raise NoParent
            try:
                request = _FORK + str(open_files or "").encode()
                socket.send_fds(self._channel, [request], [*streams, control])
                return self._answer(self._channel)
            except (OSError, ValueError):
                self._process.send_signal(signal.SIGKILL)
                raise NoParent from None

    def _answer(self, channel: socket.socket) -> ForkedGuard:
        """Return the guard that was forked; raises NoParent, OSError, ValueError."""
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        if not poll.poll(waits.FORK * 1000):
            raise TimeoutError
        answer, fds, _, _ = socket.recv_fds(channel, 64, 1, socket.MSG_CMSG_CLOEXEC)
        if answer == _FAILED:  # the system has no room for one more process
            raise NoParent
        if not fds:
            raise ValueError("no guard was forked")
        return ForkedGuard(int(answer), fds[0])


class ByParent:
    """Has a guard forked by the parent."""

    def __init__(self, parent: AgentParent, open_files: int | None) -> None:
        """`open_files` is the agent's soft limit; None: that of this process."""
        self._parent = parent
        self._open_files = open_files

    def start(self, control: int, streams: Sequence[int]) -> StartedGuard:
        """Start it; see `birth.Birth`."""
        return self._parent.fork(control, streams, self._open_files)
