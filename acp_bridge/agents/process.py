"""Starts one agent process behind its guard, watches it, and kills it with its whole tree.

The guard (guard.py) does the work. This module has the pipes, the guard's reports, and the bounds.

Invariants
- One task runs in the task group given to `AgentProcess.start`. It ends after `close` or by
  cancellation; either way the tree is killed (bounded, shielded) and every descriptor closed.
- Every descriptor is close-on-exec, so no other agent keeps a pipe of this one open.
- The agent gets the working directory and the environment of the bridge, unchanged.
- If the guard itself is killed, the kernel kills the agent's main process, and the bridge kills
  the agent's process group, which is the part of the tree that it can still find.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

import anyio
from anyio.abc import TaskGroup

from acp_bridge import waits
from acp_bridge.agents import guard
from acp_bridge.agents.outcome import Exit, StartFailed
from acp_bridge.agents.stderr import LineForwarder

__all__ = ["AgentProcess", "Exit", "StartFailed"]

#: Seconds between two looks at the group of an agent whose guard was killed.
GROUP_POLL_INTERVAL = 0.005

#: The names of the bridge's ends, in the order of the agent's descriptors 0, 1 and 2.
_PIPES = ("stdin_fd", "stdout_fd", "_stderr_fd")


class AgentProcess:
    """A running agent, its guard, and the bridge's ends of its pipes; made by `start`."""

    def __init__(self, on_stderr: Callable[[str], None] | None) -> None:
        self.pid = 0
        #: The ends for the agent's stdin and stdout. They don't block and are closed by `close`
        #: (anyio's waiters get ClosedResourceError) and -1 from then on. A caller that keeps
        #: the numbers takes them over with `take_pipes`.
        self.stdin_fd = -1
        self.stdout_fd = -1
        self._stderr_fd = -1
        self._stderr = LineForwarder(on_stderr or (lambda line: None))
        self._control, self._guard_end = socket.socketpair()
        self._control.setblocking(False)
        self._reports = b""
        self._guard: subprocess.Popen[bytes] | None = None
        self._exit = Exit(None, signal.SIGKILL)  # until the guard says otherwise
        self._exited = anyio.Event()
        self._tree_dead = False
        #: the tree is dead, or nobody watches it any more.
        self._ended = anyio.Event()
        self._is_dead = False
        self._closing = anyio.Event()
        self._finished = anyio.Event()

    @classmethod
    async def start(
        cls,
        task_group: TaskGroup,
        command: Sequence[str],
        *,
        lock_fd: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> Self:
        """Start `command` (at least one word) and return once it runs, within `waits.SPAWN`.

        `lock_fd` is held by the guard from before the agent starts. `on_stderr` gets the agent's
        stderr, by lines cut at 8 KiB. The process is watched in `task_group`.

        Raises StartFailed. When it fails or is cancelled, nothing is left behind.
        """
        process = cls(on_stderr)
        if lock_fd is not None:
            process.hold_lock(lock_fd)
        try:
            with anyio.fail_after(waits.SPAWN):
                await anyio.to_thread.run_sync(process._spawn, command)
                await process._wait_started(command[0])
            task_group.start_soon(process._watch)
        except TimeoutError:
            if process._guard is not None:
                process._guard.kill()  # stuck before or in exec: there is no tree yet
            await process._finish()
            raise StartFailed("the agent did not start in time", permanent=False) from None
        except BaseException:
            await process._finish()
            raise
        return process

    def take_pipes(self) -> tuple[int, int]:
        """Hand over (stdin_fd, stdout_fd), which the caller uses and closes from now on.

        For an orderly end the caller closes stdin before it calls `close`.
        """
        pipes = self.stdin_fd, self.stdout_fd
        self.stdin_fd = self.stdout_fd = -1
        return pipes

    def hold_lock(self, lock_fd: int) -> None:
        """Let the guard hold this lock, too, until the tree is dead (invariant P12).

        The caller keeps its own descriptor. Has no effect if the guard is gone.
        """
        self._send(guard.LOCK, lock_fd)

    async def wait_exit(self) -> Exit:
        """Wait until the main process has ended; its descendants may still live (invariant P3).

        If only the guard's death is known, the end is called SIGKILL.
        """
        await self._exited.wait()
        return self._exit

    async def wait_dead(self) -> bool:
        """Wait until no process of the tree is left and the guard has let go of its locks.

        Returns False if the process was closed before that: nobody watches its tree any more.
        """
        await self._ended.wait()
        return self._is_dead

    async def kill(self) -> bool:
        """Kill the tree and wait, shielded, until it is dead; may be called again (invariant C8).

        Returns False if it is not dead after `waits.KILL`; the guard goes on trying and holds its
        locks. The agent's last output can still be read.
        """
        self._send(guard.KILL)
        with anyio.move_on_after(waits.KILL, shield=True):
            await self._ended.wait()
        return self._is_dead

    async def close(self, grace: float) -> None:
        """Close stdin, give the agent `grace` seconds to end, kill what is left, close all.

        Only the grace can be cancelled; the rest is shielded and bounded.
        """
        self._close_fd("stdin_fd")
        try:
            with anyio.move_on_after(grace):
                await self._exited.wait()
        finally:
            self._closing.set()
            with anyio.CancelScope(shield=True):  # `_finish` is bounded
                await self._finished.wait()

    async def _watch(self) -> None:
        """Follow the process until `close`, and leave nothing behind."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stderr.run, self._stderr_fd)
                tasks.start_soon(self._follow_guard)
                await self._closing.wait()
                tasks.cancel_scope.cancel()
        finally:
            await self._finish()

    async def _finish(self) -> None:
        """Kill the tree, wait for its end and close all; shielded and bounded."""
        self._guard_end.close()
        try:
            with anyio.move_on_after(waits.KILL, shield=True):
                self._send(guard.KILL)
                await self._follow_guard()
            if self._stderr_fd >= 0:
                with anyio.move_on_after(waits.LAST_STDERR, shield=True):
                    await self._stderr.run(self._stderr_fd)
        finally:
            for name in _PIPES:
                self._close_fd(name)
            self._control.close()  # which tells the guard too, if the tree would not die
            self._exited.set()
            self._ended.set()
            self._finished.set()

    def _spawn(self, command: Sequence[str]) -> None:
        """Start the guard; runs in a thread. What it opens is stored at once, for `_finish`."""
        locale = f"LC_CTYPE={os.environ['LC_CTYPE']}" if "LC_CTYPE" in os.environ else ""
        control = self._guard_end.fileno()
        agent_ends: list[int] = []
        try:
            for name in _PIPES:
                readable, writable = os.pipe()
                ours, other = (writable, readable) if name == "stdin_fd" else (readable, writable)
                setattr(self, name, ours)
                agent_ends.append(other)
                os.set_blocking(ours, False)
            self._guard = subprocess.Popen(
                [*guard.COMMAND_LINE, str(control), locale, *command],
                stdin=agent_ends[0],
                stdout=agent_ends[1],
                stderr=agent_ends[2],
                pass_fds=[control],
                env=os.environ,  # the C library's may hold more: readline puts COLUMNS there
                start_new_session=True,
            )
        except ValueError:  # a NUL
            raise StartFailed("the command is not valid", permanent=True) from None
        except OSError:
            raise StartFailed("the system could not start a process", permanent=False) from None
        finally:
            self._guard_end.close()
            for fd in agent_ends:
                os.close(fd)

    async def _wait_started(self, command: str) -> None:
        """Wait for the guard's first report; raises StartFailed if the agent does not run."""
        match await self._next_report():
            case ["started", pid]:
                self.pid = int(pid)
            case ["failed", number]:
                raise StartFailed.by_exec(int(number), command)
            case _:
                raise StartFailed("the agent could not be started", permanent=False)

    async def _follow_guard(self) -> None:
        """Take the guard's reports until it has ended, then make sure that the tree is dead."""
        while report := await self._next_report():
            match report:
                case ["exited", code, "-"]:
                    self._exit = Exit(int(code), None)
                    self._exited.set()
                case ["exited", "-", number]:
                    self._exit = Exit(None, int(number))
                    self._exited.set()
                case ["dead"]:
                    self._tree_dead = True
        if self._is_dead:
            return
        if self._guard is not None:
            self._guard.kill()  # it closed the socket, so it is ending; this makes it certain
            await anyio.to_thread.run_sync(self._guard.wait)
        if self.pid and not self._tree_dead:
            await self._kill_group()
        self._is_dead = True
        self._exited.set()
        self._ended.set()

    async def _next_report(self) -> list[str] | None:
        """Return the guard's next line as words, None once the guard has ended."""
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

    async def _kill_group(self) -> None:
        """Do the work of a guard that was killed: SIGKILL the agent's group until it is empty.

        Zombies don't count, since the system's init collects them when it likes.
        """
        while any(group == self.pid and not zombie for _, _, group, zombie in guard.processes()):
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            await anyio.sleep(GROUP_POLL_INTERVAL)

    def _send(self, command: bytes, *fds: int) -> None:
        with suppress(OSError):  # the guard is gone; its end is reported elsewhere
            socket.send_fds(self._control, [command], fds)

    def _close_fd(self, name: str) -> None:
        fd: int = getattr(self, name)
        if fd >= 0:
            setattr(self, name, -1)
            anyio.notify_closing(fd)
            os.close(fd)
