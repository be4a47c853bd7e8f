"""One agent process behind its guard: started, watched, killed with its whole tree.

The guard (guard.py) does the work; here are the pipes, the guard's reports, and the bounds.

Invariants
- One task, the owner, runs in the task group given to `AgentProcess.start`; it alone reads the
  guard's reports. It ends after `close`, or by cancellation; either way the tree is killed
  (bounded, shielded) and every descriptor is closed.
- Every descriptor is close-on-exec, so no other agent keeps a pipe of this one open.
- The agent gets the environment it was given, unchanged.
- If the guard itself is killed, the kernel kills the agent's main process and the bridge kills
  the agent's process group: that is what can still be known of the tree.
"""

import errno
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup, TaskStatus

from acp_bridge.agents import guard

START_TIMEOUT = 10.0
KILL_TIMEOUT = 5.0
#: Bytes of one line of the agent's stderr; what is longer is cut.
STDERR_LINE_LIMIT = 8 * 1024
#: Seconds for the rest of stderr once the tree is dead. Its end is there already, unless the
#: agent handed its stderr to a process outside of its tree.
STDERR_DRAIN_TIMEOUT = 0.2

#: The bridge's ends, in the order of the agent's fds 0, 1, 2.
PIPES = ("stdin_fd", "stdout_fd", "_stderr_fd")

#: Errors of exec that the next try would meet again.
PERMANENT_ERRORS = {
    errno.ENOENT: "command not found",
    errno.ENOTDIR: "command not found",
    errno.ENAMETOOLONG: "command not found",
    errno.ELOOP: "command not found",
    errno.EACCES: "command is not executable",
    errno.EPERM: "command is not executable",
    errno.EISDIR: "command is not executable",
    errno.ENOEXEC: "command is not executable",
    errno.E2BIG: "arguments or environment are too long",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """How the agent's main process ended: one of the two is None."""

    code: int | None
    signal: int | None

    def describe(self) -> str:
        """Return e.g. "exit code 3" or "signal SIGKILL"."""
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(self.signal).name}"
        except ValueError:
            return f"signal {self.signal}"


class StartFailed(Exception):
    """The agent could not be started; `permanent` if another try would fail too.

    The message names the client's command or folder, nothing of the bridge's.
    """

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


class AgentProcess:
    """A running agent, its guard and the bridge's ends of its pipes. Made by `start` only."""

    pid: int
    #: Where the agent's stdin is written and its stdout read: non-blocking, closed by `close`
    #: (waiters in anyio get ClosedResourceError) and -1 from then on. Read the attribute for
    #: every use: a number kept aside may by then be another file's.
    stdin_fd: int
    stdout_fd: int

    def __init__(self, on_stderr: Callable[[str], None] | None) -> None:
        self.pid = 0
        self.stdin_fd = self.stdout_fd = self._stderr_fd = -1
        self._on_stderr = on_stderr
        self._control, self._guard_end = socket.socketpair()
        self._control.setblocking(False)
        self._reports = b""
        self._guard: subprocess.Popen[bytes] | None = None
        self._exit: Exit | None = None
        self._tree_dead = False
        self._exited = anyio.Event()
        self._dead = anyio.Event()
        self._stderr_ended = anyio.Event()
        self._closed = anyio.Event()

    @classmethod
    async def start(
        cls,
        task_group: TaskGroup,
        command: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        lock_fd: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> Self:
        """Start `command` (at least one word) and return once it runs, within START_TIMEOUT.

        `env` is the agent's whole environment (default: the bridge's own). `lock_fd` is held by
        the guard from before the agent starts. `on_stderr` gets each line of the agent's stderr,
        without its end. The owner task runs in `task_group`.

        Raises StartFailed. If cancelled, nothing is left behind.
        """
        process = cls(on_stderr)
        if lock_fd is not None:
            process.hold_lock(lock_fd)
        await task_group.start(process._own, command, cwd, env)
        return process

    def take_pipes(self) -> tuple[int, int]:
        """Hand over (stdin_fd, stdout_fd): from now on the caller uses and closes them."""
        pipes = self.stdin_fd, self.stdout_fd
        self.stdin_fd = self.stdout_fd = -1
        return pipes

    def hold_lock(self, lock_fd: int) -> None:
        """Let the guard hold this lock too, until the tree is dead. (HAZARDS P12)

        The caller keeps its own descriptor. Without effect if the guard is gone.
        """
        self._send(guard.LOCK, lock_fd)

    async def wait_exit(self) -> Exit:
        """Wait until the main process has ended; signal 9 if only the guard's death is known."""
        await self._exited.wait()
        assert self._exit is not None
        return self._exit

    async def wait_dead(self) -> None:
        """Wait until no process of the tree is left and the guard has let go of its locks."""
        await self._dead.wait()

    async def kill(self) -> bool:
        """Kill the tree and wait, shielded, until it is dead; idempotent.

        Returns False if it is not dead after KILL_TIMEOUT; the guard goes on trying. What the
        agent wrote before can still be read.
        """
        self._send(guard.KILL)
        with anyio.move_on_after(KILL_TIMEOUT, shield=True):
            await self._dead.wait()
        return self._dead.is_set()

    async def close(self, grace: float) -> None:
        """Close stdin, give the agent `grace` seconds to end, kill what is left, close all.

        For an orderly end whoever has taken the pipes closes stdin before.
        """
        self._close_fd("stdin_fd")
        try:
            with anyio.move_on_after(grace):
                await self._exited.wait()
        finally:
            await self.kill()
            with anyio.move_on_after(STDERR_DRAIN_TIMEOUT, shield=True):
                await self._stderr_ended.wait()
            self._close_pipes()
            self._closed.set()

    async def _own(
        self,
        command: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str] | None,
        *,
        task_status: TaskStatus[None],
    ) -> None:
        """The owner task: start, follow until `close`, leave nothing behind."""
        try:
            try:
                with anyio.fail_after(START_TIMEOUT):
                    await anyio.to_thread.run_sync(self._spawn, command, cwd, env)
                    await self._wait_started(command[0])
            except TimeoutError:
                raise StartFailed("the agent did not start in time", permanent=False) from None
            task_status.started()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._forward_stderr)
                tasks.start_soon(self._follow_guard)
                await self._closed.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._guard_end.close()
            if not self._dead.is_set():
                with anyio.move_on_after(KILL_TIMEOUT, shield=True):
                    self._send(guard.KILL)
                    await self._follow_guard()
            self._close_pipes()
            self._control.close()

    def _spawn(
        self, command: Sequence[str], cwd: str | None, env: Mapping[str, str] | None
    ) -> None:
        """Start the guard. Runs in a thread; what it opened is the object's at once."""
        environment = dict(os.environ if env is None else env)
        # In the C locale Python sets LC_CTYPE (PEP 538); not for the agent if it wasn't there.
        unset = "" if "LC_CTYPE" in environment else "LC_CTYPE"
        control = self._guard_end.fileno()
        theirs: list[int] = []
        try:
            for name in PIPES:
                readable, writable = os.pipe()
                ours, other = (writable, readable) if name == "stdin_fd" else (readable, writable)
                setattr(self, name, ours)
                theirs.append(other)
                os.set_blocking(ours, False)
            self._guard = subprocess.Popen(
                [*guard.COMMAND_LINE, str(control), unset, *command],
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                pass_fds=[control],
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except ValueError:  # a NUL
            raise StartFailed("the command or its folder is not valid", permanent=True) from None
        except OSError as error:
            if cwd is not None and error.filename == cwd:
                raise StartFailed("the working directory cannot be used", permanent=True) from None
            raise StartFailed("the system could not start a process", permanent=False) from None
        finally:
            self._guard_end.close()
            for fd in theirs:
                os.close(fd)

    def _send(self, command: bytes, *fds: int) -> None:
        with suppress(OSError):  # the guard is gone; its end is reported elsewhere
            socket.send_fds(self._control, [command], fds)

    async def _wait_started(self, name: str) -> None:
        """Wait for the guard's first report; StartFailed if it isn't that the agent runs."""
        match await self._next_report():
            case ["started", pid]:
                self.pid = int(pid)
            case ["failed", number]:
                reason = PERMANENT_ERRORS.get(int(number))
                if reason is None:
                    text = f"the agent could not be started: {os.strerror(int(number))}"
                    raise StartFailed(text, permanent=False)
                raise StartFailed(f"{reason}: {name}", permanent=True)
            case _:
                raise StartFailed("the agent could not be started", permanent=False)

    async def _next_report(self) -> list[str] | None:
        """Return the guard's next line as words, None once the guard has gone."""
        while b"\n" not in self._reports:
            try:
                data = self._control.recv(4096)
            except BlockingIOError:
                await anyio.wait_readable(self._control)
                continue
            except OSError:
                return None
            if not data:
                return None
            self._reports += data
        line, _, self._reports = self._reports.partition(b"\n")
        return line.decode().split()

    async def _follow_guard(self) -> None:
        """Take the guard's reports until it has gone, then see to it that the tree is dead."""
        while report := await self._next_report():
            match report:
                case ["exited", code, "-"]:
                    self._set_exit(Exit(int(code), None))
                case ["exited", "-", number]:
                    self._set_exit(Exit(None, int(number)))
                case ["dead"]:
                    self._tree_dead = True
        if self._guard is not None:
            self._guard.kill()  # it closed the socket, so it is ending; this makes it certain
            await anyio.to_thread.run_sync(self._guard.wait)
        if not self._tree_dead and self.pid:
            await self._kill_group()
        self._set_exit(Exit(None, signal.SIGKILL))
        self._dead.set()

    async def _kill_group(self) -> None:
        """In the place of a guard that was killed: SIGKILL the agent's group until it is empty."""
        while True:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except OSError:
                return
            await anyio.sleep(0.005)

    def _set_exit(self, outcome: Exit) -> None:
        if self._exit is None:
            self._exit = outcome
            self._exited.set()

    async def _forward_stderr(self) -> None:
        """Hand on the agent's stderr by lines, to its end."""
        line = b""
        try:
            while data := await self._read_stderr():
                *ended, rest = data.split(b"\n")
                for part in ended:
                    self._tell(line + part)
                    line = b""
                line = (line + rest)[:STDERR_LINE_LIMIT]
            if line:
                self._tell(line)
        finally:
            self._stderr_ended.set()

    async def _read_stderr(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                return os.read(self._stderr_fd, 1 << 16)
            except BlockingIOError:
                await anyio.wait_readable(self._stderr_fd)

    def _tell(self, line: bytes) -> None:
        if self._on_stderr is not None:
            self._on_stderr(line[:STDERR_LINE_LIMIT].removesuffix(b"\r").decode(errors="replace"))

    def _close_pipes(self) -> None:
        for name in PIPES:
            self._close_fd(name)

    def _close_fd(self, name: str) -> None:
        fd: int = getattr(self, name)
        if fd >= 0:
            setattr(self, name, -1)
            anyio.notify_closing(fd)
            os.close(fd)
