"""A process behind a guard of the bridge's, which kills its whole tree.

`acp_bridge.core.agents.guard` does the work, as for whole agents: it adopts every descendant, so
that none escapes by a session or a process group of its own, and it kills the tree also when this
process dies.

Invariants
- When `kill` returns, the process and all its descendants are dead, unless the system does not let
  one die within the given time. That holds also if the process kills its guard, if this process was
  made to adopt what is left then (`acp_bridge.core.agents.orphans`).
- The guard is waited for, so that no zombie is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import anyio
from anyio import to_thread

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.guard_reports import GuardReports
from acp_bridge.core.agents.orphans import ORPHANS

#: seconds for the guard to execute the command
_START = 10
#: seconds for the guard to end after a failed start
_FAIL = 1
#: seconds between two searches for what a killed guard has left
_ORPHANS_PAUSE = 0.005


class GuardedProcess:
    """A process, made by `start`. Only one task at a time may wait for it."""

    def __init__(self) -> None:
        #: the id of the process, of its process group and of its session
        self.pid = 0
        #: as in subprocess: negative for a signal; None while the process runs
        self.returncode: int | None = None
        self._control, self._guard_end = socket.socketpair()
        self._control.setblocking(False)
        self._guard: subprocess.Popen[bytes] | None = None
        self._reports = GuardReports(self._control)

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
    ) -> Self:
        """Starts the command; the caller keeps the descriptors of its standard streams.

        Raises OSError, or ValueError if a null byte is in the command. When it fails, or is
        cancelled before the guard runs, nothing is left behind.
        """
        process = cls()
        streams = stdin, stdout, stderr
        try:
            # Shielded: a process that was started halfway would have no owner.
            with anyio.CancelScope(shield=True):
                process._send(guard.LINGER)
                await to_thread.run_sync(process._spawn, command, cwd, env, streams)
                with anyio.fail_after(_START):
                    await process._wait_started()
        except BaseException as error:
            if isinstance(error, TimeoutError) and process._guard is not None:
                process._guard.kill()  # stuck before or in exec: there is no tree to kill yet
            await process.kill(_FAIL)
            if isinstance(error, TimeoutError):
                raise OSError(0, "it did not start in time") from error
            raise
        return process

    async def wait(self) -> int:
        """Waits until the process has ended, though descendants may live; returns its exit code."""
        while self.returncode is None and await self._take_report():
            pass
        if self.returncode is None:  # the guard was killed, and the process with it
            self.returncode = -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process group; does nothing once the process has ended."""
        if self.returncode is None:
            self._signal_group(number)

    async def kill(self, within: float) -> None:
        """Kills the whole tree and waits, shielded, until it is dead, or for `within` seconds.

        The guard keeps trying after that. Nothing may be called afterwards.
        """
        self._guard_end.close()
        self._send(guard.KILL)
        self._signal_guard(signal.SIGCONT)  # the command may have stopped the guard
        try:
            with anyio.move_on_after(within, shield=True):
                while await self._take_report():
                    pass
                if await self._guard_s_end():  # the guard was killed, and the tree may live
                    self._signal_group(signal.SIGKILL)
                    await to_thread.run_sync(_kill_orphans, within, abandon_on_cancel=True)
        finally:
            self._control.close()  # the guard notices that, too

    def _spawn(
        self,
        command: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
    ) -> None:
        """Starts the guard; runs in a thread."""
        control = self._guard_end.fileno()
        locale = f"LC_CTYPE={env['LC_CTYPE']}" if "LC_CTYPE" in env else ""
        try:
            self._guard = ORPHANS.start_guard(
                lambda: subprocess.Popen(
                    [*guard.COMMAND_LINE, str(control), locale, "", *command],
                    cwd=cwd,
                    env=dict(env),
                    pass_fds=[control],
                    start_new_session=True,
                    stdin=streams[0],
                    stdout=streams[1],
                    stderr=streams[2],
                )
            )
        finally:
            self._guard_end.close()

    async def _wait_started(self) -> None:
        match await self._reports.first(self._signal_guard):
            case ["started", pid]:
                self.pid = int(pid)
            case ["failed", number]:
                raise OSError(int(number), os.strerror(int(number)))
            case _ if await self._guard_s_end() == -signal.SIGKILL:
                self.returncode = -signal.SIGKILL  # the process itself has killed it, most likely
            case _:
                raise OSError(0, "it could not be started")

    async def _take_report(self) -> bool:
        """Reads the guard's next report; returns False once the guard has ended."""
        match await self._reports.next():
            case None:
                return False
            case ["exited", code, "-"]:
                self.returncode = int(code)
            case ["exited", "-", number]:
                self.returncode = -int(number)
        return True

    async def _guard_s_end(self) -> int:
        """Waits until the guard has ended, reaps it, and returns its exit code."""
        if self._guard is None:
            return 0
        code = await to_thread.run_sync(self._guard.wait, abandon_on_cancel=True)
        ORPHANS.forget_guard(self._guard.pid)
        return code

    def _signal_group(self, number: signal.Signals) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _signal_guard(self, number: int) -> None:
        if self._guard is not None:
            self._guard.send_signal(number)

    def _send(self, command: bytes) -> None:
        with contextlib.suppress(OSError):  # the guard has ended
            self._control.send(command)


def _kill_orphans(seconds: float) -> None:
    """Kills the processes that killed guards left, within `seconds`; blocks the thread."""
    end = time.monotonic() + seconds
    while ORPHANS.kill() and time.monotonic() < end:
        time.sleep(_ORPHANS_PAUSE)
