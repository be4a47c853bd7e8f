"""How a guard is started: by a command line, or forked by a parent that has loaded the agent.

Either way the guard is the same program, what is started is a `StartedGuard`, and it reports over
its control socket.

Each pipe can be opened in /proc by any process of the same user: a tool would answer what its agent
has asked, an agent would read what another one is told, or say in a hook's place that it may
(invariant P17). A socket can't be opened there. So the process behind a guard gets sockets as
stdin and stdout. The stderr decides nothing, and stays a pipe, which scripts may open as
/dev/stderr.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final, Protocol

import anyio

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.environment import HANDED_ON
from acp_bridge.core.agents.handed_keys import handed_keys
from acp_bridge.core.runtime.threads import NoThread, in_thread

#: seconds between two looks at a process.
_LOOK: Final = 0.05
#: seconds after which a guard that has not reported the start is continued, in case it was stopped.
_CONTINUE: Final = 0.5


class StartedGuard(Protocol):
    """A guard that was started; its signals reach no process that has its pid later."""

    pid: int

    def send_signal(self, number: int) -> None:
        """Send a signal; has no effect on a guard that has ended."""

    def is_alive(self) -> bool:
        """Return False once the guard has ended."""

    async def wait(self) -> None:
        """Wait until the guard has ended, and collect it if it is a child of this process."""

    def close(self) -> None:
        """Close the bridge's descriptors of the guard; nothing else is called after that."""


class Birth(Protocol):
    """A way to start a guard."""

    def start(self, control: int, streams: Sequence[int]) -> StartedGuard:
        """Start a guard with its control socket and the agent's streams; runs in a thread.

        Raises OSError, ValueError for a NUL in the command, and NoParent.
        """


class NoParent(Exception):
    """The parent did not fork; the guard can be started by a command line."""


def folder_to_start_in(folder: str | None) -> str | None:
    """Return the folder, or None, for that of this process, if it can't be entered any more.

    A kept bridge may outlive the folder that its client has started it in.
    """
    return folder if folder and os.access(folder, os.X_OK) else None


def standard_streams() -> tuple[list[int], list[int]]:
    """Make stdin, stdout and stderr for a process; return the bridge's ends, and the process's.

    Raises OSError.
    """
    stdin, its_stdin = socket.socketpair()
    with stdin, its_stdin:
        stdin.shutdown(socket.SHUT_RD)  # what it wrote there would turn its end of file into errors
        stdout, its_stdout = socket.socketpair()
        with stdout, its_stdout:
            stderr, its_stderr = os.pipe()
            ours = [stdin.detach(), stdout.detach(), stderr]
            return ours, [its_stdin.detach(), its_stdout.detach(), its_stderr]


class ByCommand:
    """Starts the guard's command line, which executes the agent's."""

    def __init__(
        self,
        command: Sequence[str],
        open_files: int | None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        *,
        takes_keys: bool = False,
    ) -> None:
        """`open_files` is the agent's soft limit of open files.

        That, `cwd` and `env` are this process's own if they are None. `takes_keys`: the command is
        one of ours, which calls `guard.take_keys`.
        """
        self._command = command
        self._open_files = open_files
        self._cwd = cwd
        self._env = env
        self._takes_keys = takes_keys

    def start(self, control: int, streams: Sequence[int]) -> StartedGuard:
        """Start the guard by its command line; see `Birth.start`."""
        env = HANDED_ON.of(os.environ if self._env is None else self._env)
        locale = f"LC_CTYPE={env['LC_CTYPE']}" if "LC_CTYPE" in env else ""
        arguments = str(control), locale, str(self._open_files or "")
        # The C library's environment may hold more: readline puts COLUMNS there.
        with ExitStack() as stack:
            given, kept = env, list[int]()
            if self._takes_keys:
                given, kept = stack.enter_context(handed_keys(env))
            process = subprocess.Popen(
                [*guard.COMMAND_LINE, *arguments, *self._command],
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                pass_fds=[control, *kept],  # the agent inherits what is kept from the guard
                cwd=self._cwd,
                env=given,
                start_new_session=True,
            )
        return ChildGuard(process)


class ChildGuard:
    """A guard that is a child of this process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def send_signal(self, number: int) -> None:
        """Send the guard a signal; Popen signals no process that it has collected."""
        self._process.send_signal(number)

    def is_alive(self) -> bool:
        """Return False once the guard has ended."""
        return self._process.poll() is None

    async def wait(self) -> None:
        """Wait for the guard's end, in a thread, or by polling if there is no room for one."""
        try:
            await in_thread(self._process.wait, abandon_on_cancel=True)
        except NoThread:
            while self.is_alive():  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(_LOOK)

    def close(self) -> None:
        """Do nothing: the guard has no descriptor here."""


class ForkedGuard:
    """A guard that is a child of the parent, and of this process once the parent has ended."""

    def __init__(self, pid: int, pidfd: int) -> None:
        """`pidfd` refers to the guard; `close` closes it."""
        self.pid = pid
        self._pidfd = pidfd

    def send_signal(self, number: int) -> None:
        """Send the guard a signal; the kernel sends none to a process that has ended."""
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def is_alive(self) -> bool:
        """Return False once the guard has ended, collected or not."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    async def wait(self) -> None:
        """Wait for the guard's end, and collect it if it has become a child of this process."""
        if self._pidfd >= 0:
            await anyio.wait_readable(self._pidfd)
            self._collect()

    def _collect(self) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)

    def close(self) -> None:
        """Close the pidfd."""
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            anyio.notify_closing(pidfd)
            os.close(pidfd)


class GuardReports:
    """Reads the reports of one guard, for one task at a time. The socket stays the caller's."""

    def __init__(self, control: socket.socket) -> None:
        """`control` does not block."""
        self._control = control
        self._received = b""

    async def first(self, send_signal: Callable[[int], object]) -> list[str] | None:
        """Return the guard's first report, as `next` does; the caller bounds the wait.

        The agent may stop its guard at once, before the guard has reported the start. So the guard
        is continued with `send_signal` as long as it is silent.
        """
        while True:
            with anyio.move_on_after(_CONTINUE):
                return await self.next()
            send_signal(signal.SIGCONT)

    async def next(self) -> list[str] | None:
        """Wait for the guard's next report and return its words, None once the guard has ended."""
        while b"\n" not in self._received:
            try:
                data = self._control.recv(4096)
            except BlockingIOError:
                await anyio.wait_readable(self._control)
                continue
            except OSError:
                return None
            if not data:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode().split()
