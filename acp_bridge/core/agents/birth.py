"""How a guard is started: by a command line, or forked by a parent that has loaded the agent.

Either way the guard is the same program, what is started is a `StartedGuard`, and it reports over
its control socket. A `Newborn` holds both until somebody watches the guard (`process.Tree`). So the
first agent can be started before the bridge has an event loop: nothing here imports one.

Each pipe can be opened in /proc by any process of the same user: a tool would answer what its agent
has asked, an agent would read what another one is told, or say in a hook's place that it may
(invariant P17). A socket can't be opened there. So the process behind a guard gets sockets as
stdin and stdout. The stderr decides nothing, and stays a pipe, which scripts may open as
/dev/stderr.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final, Protocol

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.environment import HANDED_ON
from acp_bridge.core.agents.handed_keys import handed_keys
from acp_bridge.core.agents.orphans import ORPHANS

#: seconds between two looks at a process.
_LOOK: Final = 0.05


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


class Newborn:
    """A guard with its control socket and its agent's streams, from before the start on."""

    def __init__(self) -> None:
        """Make the socket; raises OSError."""
        #: the bridge's end of the socket; it does not block.
        self.control, self.guard_end = socket.socketpair()
        self.control.setblocking(False)
        #: None before the start.
        self.guard: StartedGuard | None = None
        #: the bridge's ends of the agent's streams, which don't block; empty without an agent's.
        self.streams: list[int] = []

    def start(self, birth: Birth, streams: Sequence[int]) -> None:
        """Start the guard with these standard streams; may run in a thread.

        Raises what `birth.start` raises.
        """
        control = self.guard_end.fileno()
        try:
            self.guard = ORPHANS.start_guard(lambda: birth.start(control, streams))
        finally:
            self.guard_end.close()

    def start_agent(self, birth: Birth) -> None:
        """Do as `start` does with streams that are made here."""
        self.streams, its = standard_streams()
        try:
            for fd in self.streams:
                os.set_blocking(fd, False)
            self.start(birth, its)
        finally:
            for fd in its:
                os.close(fd)


def born_early(command: Sequence[str], open_files: int | None, folder: str | None) -> list[Newborn]:
    """Start an agent that is watched later; empty if it can't be started, which is told then.

    The parameters are those of `AgentProcess.start`, which takes it over.
    """
    try:
        newborn = Newborn()
    except OSError:
        return []
    try:
        newborn.start_agent(ByCommand(command, open_files, folder_to_start_in(folder)))
    except (OSError, ValueError):
        newborn.guard_end.close()
        newborn.control.close()
        for fd in newborn.streams:
            os.close(fd)
        return []
    return [newborn]


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
        import anyio

        from acp_bridge.core.runtime.threads import NoThread, in_thread

        try:
            await in_thread(self._process.wait, abandon_on_cancel=True)
        except NoThread:
            while self.is_alive():  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(_LOOK)

    def close(self) -> None:
        """Do nothing: the guard has no descriptor here."""
