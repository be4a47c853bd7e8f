"""One process that agents are forked from: started, asked over its socket, killed.

agent/fork_parent.py runs there, and describes the messages on the socket. Reports of the parent are
not read while a request is open, since both use one socket; `parent.py` sees to that.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio

from acp_bridge.agents.birth import ForkedGuard, NoParent, folder_to_start_in
from acp_bridge.agents.environment import HANDED_ON
from acp_bridge.agents.handed_keys import handed_keys
from acp_bridge.agents.orphans import ORPHANS
from acp_bridge.runtime import waits
from acp_bridge.runtime.log import event

LIGHT: Final = b"light"
LOAD: Final = b"load"
READY: Final = b"ready"
THREADS: Final = b"threads"
_FORK: Final = b"fork"
_FAILED: Final = b"failed"


class ParentProcess:
    """A parent, and the bridge's end of its socket; `start` and `end` are called in a thread."""

    def __init__(self, command: Sequence[str], folder: str | None) -> None:
        """`command` and `folder` are the parent's; its socket's number is its last argument.

        Raises OSError.
        """
        self._command, self._folder = command, folder
        self._socket, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid, valid from `start` to `end`."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it; raises OSError."""
        number = self._other.fileno()

        def start() -> subprocess.Popen[bytes]:
            with handed_keys(HANDED_ON.of(os.environ)) as (env, kept):
                return subprocess.Popen(
                    [*self._command, str(number)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd=folder_to_start_in(self._folder),
                    pass_fds=[number, *kept],
                    env=env,
                    start_new_session=True,
                )

        try:
            self._process = ORPHANS.start_guard(start)
        finally:
            self._other.close()

    def end(self) -> None:
        """Kill and collect it, if it was started, and close the socket."""
        self._other.close()
        self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            ORPHANS.forget_guard(self._process.pid)
            event("parent.ended", pid=self._process.pid)
            self._process = None

    async def ended(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        pidfd = os.pidfd_open(self._process.pid)
        try:
            await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)

    # --- loading -------------------------------------------------------------------------------

    async def said(self, seconds: float) -> bytes:
        """Return its next report; empty when it has ended, hangs, or is silent for so long."""
        used = -1
        with anyio.move_on_after(seconds):
            while used != (used := self._processor_time()):
                with anyio.move_on_after(waits.PARENT_HANGS):
                    await anyio.wait_readable(self._socket)
                    with suppress(OSError):
                        return self._socket.recv(64)
                    break
        return b""

    def load_library(self) -> None:
        """Tell it to load the library; raises OSError."""
        self._socket.send(LOAD)

    def _processor_time(self) -> int:
        """Return its processor time in ticks, which alone tells on a busy machine if it hangs."""
        with open(f"/proc/{self.pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])

    # --- forks ---------------------------------------------------------------------------------

    def fork(self, control: int, streams: Sequence[int], open_files: int | None) -> ForkedGuard:
        """Ask for the fork of a guard, within `waits.FORK`; runs in a thread, one at a time.

        Raises NoParent; a parent that does not answer as it should is killed then.
        """
        try:
            request = _FORK + str(open_files or "").encode()
            socket.send_fds(self._socket, [request], [*streams, control])
            return self._answer()
        except (OSError, ValueError):
            if self._process is not None:
                self._process.send_signal(signal.SIGKILL)
            raise NoParent from None

    def _answer(self) -> ForkedGuard:
        """Return the guard that was forked; raises NoParent, OSError, ValueError."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(waits.FORK * 1000):
            raise TimeoutError
        answer, fds, _, _ = socket.recv_fds(self._socket, 64, 1, socket.MSG_CMSG_CLOEXEC)
        if answer == _FAILED:  # the system has no room for one more process
            raise NoParent
        if not fds:
            raise ValueError("no guard was forked")
        return ForkedGuard(int(answer), fds[0])
