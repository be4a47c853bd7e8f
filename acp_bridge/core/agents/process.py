"""Starts one agent process behind its guard, watches it, and kills it with its whole tree; says in
words for the user why it did not start, or how it ended.

The guard (guard.py) does the work. A `Tree` follows its reports and gives it commands; hooks have
one of their own. An `AgentProcess` is a tree with pipes.

Invariants
- One task runs in the task group given to `AgentProcess.start`. It ends after `close` or by
  cancellation; either way the tree is killed (bounded, shielded) and every descriptor closed.
- Every descriptor is close-on-exec, so no other agent keeps a pipe of this one open.
- The agent gets the working directory, the environment and the limit of open files that the bridge
  was started with.
- Of a tree, one task at a time runs `follow`, and `finish` is called once, after it.
- A guard that somebody has stopped is continued when its tree is to die, as often as it takes. If
  the tree lives on, the bridge does the guard's work from outside, and then kills the guard. It
  stays the subreaper of what it started to the end, so nothing escapes meanwhile (invariant P1).
- If the guard itself is killed, the kernel kills the agent's main process, and the bridge, which
  has adopted the rest, kills that. On macOS it can still find the agent's process group.
- On macOS a process that has left both its group and its parent can be found by the guard alone,
  and not at all if it did so before the guard's first look.
- The words for the user name the user's command, never a path, and no text of the system's.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.birth import (
    Birth,
    ByCommand,
    Newborn,
    NoParent,
    StartedGuard,
    folder_to_start_in,
)
from acp_bridge.core.agents.deadline import Deadline
from acp_bridge.core.agents.guard_reports import GuardReports
from acp_bridge.core.agents.orphans import ORPHANS
from acp_bridge.core.agents.parent import AgentParent, ByParent
from acp_bridge.core.agents.stderr import LineForwarder
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.threads import NoThread, done_in_any_case, in_thread

#: The names of the bridge's ends, in the order of the agent's descriptors 0, 1 and 2.
_PIPES = ("stdin_fd", "stdout_fd", "_stderr_fd")
#: how often the parent is asked for a fork before the command line is executed instead: the guard
#: that waits at the parent may have been killed there.
_FORKS: Final = 2
#: seconds between two looks at the group of an agent whose guard was killed.
GROUP_POLL_INTERVAL: Final = 0.005
#: seconds between two looks at a guard that is to kill its tree: the first, and the longest.
_FIRST_LOOK: Final = 0.02
_LAST_LOOK: Final = 0.25

# --- why it did not start, or how it ended --------------------------------------------------------

NOT_FOUND = "command not found"
_NOT_EXECUTABLE = "command is not executable"

#: Errors of exec that another try would have again.
_PERMANENT = {
    errno.ENOENT: NOT_FOUND,
    errno.ENOTDIR: NOT_FOUND,
    errno.ENAMETOOLONG: NOT_FOUND,
    errno.ELOOP: NOT_FOUND,
    errno.EACCES: _NOT_EXECUTABLE,
    errno.EPERM: _NOT_EXECUTABLE,
    errno.EISDIR: _NOT_EXECUTABLE,
    errno.ENOEXEC: _NOT_EXECUTABLE,
    errno.E2BIG: "arguments or environment too long for",
}

#: why there is no agent where the system has no room for one.
NO_ROOM: Final = (
    "the system could not start a process. If you run many, end some, or raise your limit"
    " (ulimit -u)"
)


class Exit(Struct, frozen=True):
    """The end of an agent's main process, by an exit code or a signal; the other one is None."""

    code: int | None
    signal: int | None

    @property
    def by_others(self) -> bool:
        """True if another process has ended it: by a signal that no fault of its own causes."""
        return self.signal in (signal.SIGKILL, signal.SIGTERM)

    def describe(self) -> str:
        """Return e.g. "exit code 3" or "signal SIGKILL"."""
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(self.signal).name}"
        except ValueError:  # one of the real-time signals
            return f"signal {self.signal}"


class StartFailed(Exception):
    """The agent could not be started; `permanent` if another try would fail too.

    `by_file`: the system says that the program's file is the reason.
    """

    def __init__(self, message: str, *, permanent: bool, by_file: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.by_file = by_file

    @classmethod
    def by_exec(cls, number: int, command: str) -> Self:
        """Return the failure for the errno with which `command` could not be executed."""
        if reason := _PERMANENT.get(number):
            return cls(f"{reason}: {command}", permanent=True, by_file=number != errno.E2BIG)
        why = NO_ROOM if number == errno.EAGAIN else f"cannot be started now: {command}"
        return cls(why, permanent=False)


class GuardDied(StartFailed):
    """The guard has ended before it told of the start: somebody has killed it."""

    def __init__(self) -> None:
        super().__init__("its guard has ended", permanent=False)


class Replaced(StartFailed):
    """The files of this program are no longer there: another version was installed over it."""

    def __init__(self) -> None:
        super().__init__(
            "another version of acp-bridge was installed while this one was running."
            " Restart your editor, or the command that started this bridge",
            permanent=True,
        )


def _is_replaced() -> bool:
    """Return True if the files of this program are no longer where they were."""
    return not os.path.exists(guard.__file__)


# --- what the guard has in its care ---------------------------------------------------------------


class Tree:
    """One agent with all its descendants, and its guard; `newborn` starts both."""

    def __init__(self, deadline: Deadline | None = None, newborn: Newborn | None = None) -> None:
        """Prepare a tree, whose guard is to follow the deadline from its start on.

        `newborn`: a guard that was started already; its tree is this one from now on.
        """
        self.pid = 0
        #: how the main process has ended, once `exited` is set.
        self.exit = Exit(None, signal.SIGKILL)  # until the guard says otherwise
        self.exited = anyio.Event()
        #: set when the tree is dead, or when nobody follows it any more.
        self.ended = anyio.Event()
        #: no process of the tree is left, and the guard has let go of its locks.
        self.is_dead = False
        self.newborn = newborn or Newborn()
        self._control = self.newborn.control
        self._deadline = deadline
        if deadline:
            deadline.join(self._control)
        self._reports = GuardReports(self._control)
        self._reported_dead = False
        #: one for each lock that the guard is to let go of, set when it has.
        self._returns: deque[anyio.Event] = deque()
        #: True if the guard has not reported in time that the agent runs.
        self._hangs = False

    # --- birth ---------------------------------------------------------------------------------

    async def wait_started(self, command: str) -> None:
        """Wait until the guard reports the start of the agent; `command` is named in errors.

        Raises StartFailed if the agent does not run, GuardDied if nobody knows whether it did, and
        Replaced if the guard's program is no longer there.
        """
        match await self._reports.first(self._signal_guard):
            case ["started", pid]:
                self.pid = int(pid)
            case ["failed", number]:
                raise StartFailed.by_exec(int(number), command)
            case _:
                raise Replaced if _is_replaced() else GuardDied

    @property
    def _guard(self) -> StartedGuard | None:
        """The guard, once it is started."""
        return self.newborn.guard

    # --- life ----------------------------------------------------------------------------------

    def send(self, command: bytes, *fds: int) -> None:
        """Give the guard a command; has no effect if the guard is gone."""
        with suppress(OSError):  # its end is reported elsewhere
            socket.send_fds(self._control, [command], fds)

    async def follow(self) -> None:
        """Read the guard's reports until it has ended, then make sure that the tree is dead."""
        while report := await self._reports.next():
            match report:
                case ["exited", code, "-"]:
                    self.exit = Exit(int(code), None)
                    self.exited.set()
                case ["exited", "-", number]:
                    self.exit = Exit(None, int(number))
                    self.exited.set()
                case ["dead"]:
                    self._reported_dead = True
                case ["returned"] if self._returns:
                    self._returns.popleft().set()
        if self.is_dead:
            return
        if self._guard is not None:
            # It closed the socket, so it is ending; this makes it certain.
            self._guard.send_signal(signal.SIGKILL)
            await self._guard.wait()
            ORPHANS.forget_guard(self._guard.pid)
        if self._guard is not None and not self._reported_dead:
            await self._kill_rest()
        self.is_dead = True
        self.exited.set()
        self.ended.set()

    async def return_lock(self, lock_fd: int) -> bool:
        """Have the guard let go of a lock; returns False if it has not after `waits.GUARD`."""
        returned = anyio.Event()
        self._returns.append(returned)
        self.send(guard.RETURN, lock_fd)
        self._continue_guard()
        with anyio.move_on_after(waits.GUARD):
            await returned.wait()
        return returned.is_set() or self.is_dead

    # --- death ---------------------------------------------------------------------------------

    def terminate(self) -> None:
        """Let the guard send the main process SIGTERM, if it lives, so that it may tidy up."""
        self.send(guard.TERM)
        self._continue_guard()

    async def kill(self) -> bool:
        """Kill the tree while another task follows it; returns whether it is dead.

        Shielded, and bounded by `waits.KILL`; the guard goes on trying after that.
        """
        self.send(guard.KILL)
        with anyio.move_on_after(waits.KILL, shield=True):
            await self._press()
        return self.is_dead

    async def finish(self) -> None:
        """Kill the tree, follow it to its end, and close all; shielded and bounded."""
        self.newborn.guard_end.close()
        try:
            with anyio.move_on_after(waits.KILL, shield=True):
                self.send(guard.KILL)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._press)
                    await self.follow()
        finally:
            if self._deadline:
                self._deadline.leave(self._control)
            self._control.close()  # which tells the guard too, if the tree would not die
            if self._hangs:
                self._signal_guard(signal.SIGKILL)
            if self._guard is not None:
                self._guard.close()
            self.exited.set()
            self.ended.set()

    def give_up_start(self) -> None:
        """Note that the guard hangs, so that `finish` itself kills what the guard has started."""
        self._hangs = True

    async def _press(self) -> None:
        """Wait until the tree is dead, and help a guard that was told to kill it and does not."""
        groups = {self.pid} if self.pid else set()
        patience = anyio.current_time() + (0 if self._hangs else waits.GUARD)
        pause = _FIRST_LOOK
        while not self.ended.is_set():
            self._continue_guard()
            if anyio.current_time() >= patience:
                await done_in_any_case(self._kill_for_guard, groups)
            with anyio.move_on_after(pause):
                await self.ended.wait()
            pause = min(pause * 2, _LAST_LOOK)

    def _continue_guard(self) -> None:
        """Let the guard go on, if somebody has stopped it."""
        self._signal_guard(signal.SIGCONT)

    def _signal_guard(self, number: int) -> None:
        if self._guard is not None:
            self._guard.send_signal(number)

    def _kill_for_guard(self, groups: set[int]) -> None:
        """Do the work of a guard that lives and does nothing; `groups` as in `kill_descendants`.

        With nothing left to kill, the guard is killed as well, and with it a child that has not
        left its group yet: that one may be stopped, and holds the guard's socket and locks.
        """
        if self._guard is None or not self._guard.is_alive():
            return
        with suppress(ProcessLookupError):  # the guard has ended meanwhile
            if not guard.kill_descendants(self._guard.pid, groups):
                guard.kill_group(self._guard.pid)
                self._guard.send_signal(signal.SIGKILL)

    async def _kill_rest(self) -> None:
        """Do the work of a guard that was killed, until nothing is left that can be found."""
        while True:
            orphans = await done_in_any_case(ORPHANS.kill)
            if not self._kill_group() and not orphans:
                return
            await anyio.sleep(GROUP_POLL_INTERVAL)

    def _kill_group(self) -> bool:
        """SIGKILL the agent's group; returns whether a process of it was alive.

        Zombies don't count, since the system's init collects them when it likes.
        """
        if not self.pid or not any(
            group == self.pid and not zombie for _, _, group, zombie in guard.processes()
        ):
            return False
        guard.kill_group(self.pid)
        return True


# --- the agent with its pipes ---------------------------------------------------------------------


class AgentProcess:
    """A running agent, its guard, and the bridge's ends of its pipes; made by `start`."""

    def __init__(
        self,
        on_stderr: Callable[[str], None] | None,
        deadline: Deadline | None = None,
        newborn: Newborn | None = None,
    ) -> None:
        #: The ends for the agent's stdin and stdout. They don't block and are closed by `close`
        #: (anyio's waiters get ClosedResourceError) and -1 from then on. A caller that keeps
        #: the numbers takes them over with `take_pipes`.
        self.stdin_fd = -1
        self.stdout_fd = -1
        self._stderr_fd = -1
        self._stderr = LineForwarder(on_stderr or (lambda line: None))
        #: the agent has no model library, and is to be replaced before its first prompt.
        self.light = False
        self._tree = Tree(deadline, newborn)
        self._take_streams()
        self._closing, self._stderr_read = anyio.Event(), anyio.Event()
        self._finished = anyio.Event()

    @classmethod
    async def start(
        cls,
        task_group: TaskGroup,
        command: Sequence[str],
        parent: AgentParent | None = None,
        open_files: int | None = None,
        folder: str | None = None,
        *,
        patient: bool = False,
        lock_fd: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
        deadline: Deadline | None = None,
        newborn: Newborn | None = None,
    ) -> Self:
        """Start `command` (at least one word) and return once it runs, within `waits.SPAWN`.

        `parent` has loaded the command's program: it forks the process if it can, for which a
        `patient` start waits up to `waits.PARENT_LOAD` while the first one loads. `lock_fd` is held
        by the guard from before the agent starts. `open_files` is the agent's soft limit; without
        it, that of this process. It starts in `folder`, or where this process is if there is none.
        `on_stderr` gets the agent's stderr, by lines cut at 8 KiB. The guard follows `deadline`.
        The process is watched in `task_group`. `newborn` was started by the command already
        (`birth.born_early`), and is taken over.

        Raises StartFailed. When it fails or is cancelled, nothing is left behind.
        """
        if newborn is not None:
            process = cls(on_stderr, deadline, newborn)
            await process._begin(task_group, None, command[0], lock_fd)
            return process
        if parent is not None:
            async with parent.start_of_agent(patient=patient) as can_fork:
                for _ in range(_FORKS if can_fork else 0):
                    process, forking = cls(on_stderr, deadline), ByParent(parent, open_files)
                    with suppress(NoParent, GuardDied):
                        await process._begin(task_group, forking, command[0], lock_fd)
                        process.light = forking.light
                        return process
        process = cls(on_stderr, deadline)
        # What a parent forks is the built-in agent.
        executing = ByCommand(
            command, open_files, folder_to_start_in(folder), takes_keys=parent is not None
        )
        await process._begin(task_group, executing, command[0], lock_fd)
        return process

    async def _begin(
        self, task_group: TaskGroup, birth: Birth | None, program: str, lock_fd: int | None
    ) -> None:
        """Start the guard and the agent, without a `birth` those that were started already.

        Raises StartFailed, NoParent, and leaves nothing then.
        """
        try:
            if lock_fd is not None:
                self.hold_lock(lock_fd)
            with anyio.fail_after(waits.SPAWN):
                if birth is not None:
                    await in_thread(self._spawn, birth)
                await self._tree.wait_started(program)
            task_group.start_soon(self._watch)
        except TimeoutError:
            self._tree.give_up_start()
            await self._finish()
            raise StartFailed("the agent did not start in time", permanent=False) from None
        except NoThread:
            await self._finish()
            raise StartFailed(NO_ROOM, permanent=False) from None
        except BaseException:
            await self._finish()
            raise

    @property
    def pid(self) -> int:
        """The id of the main process, and of its group and session."""
        return self._tree.pid

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
        self._tree.send(guard.LOCK, lock_fd)

    async def return_lock(self, lock_fd: int) -> bool:
        """Let the guard let go of this lock, since the agent has closed the lock's session.

        Returns False if it has not done so in time. The caller keeps its own descriptor.
        """
        return await self._tree.return_lock(lock_fd)

    async def wait_exit(self) -> Exit:
        """Wait until the main process has ended; its descendants may still live (invariant P3).

        If only the guard's death is known, the end is called SIGKILL.
        """
        await self._tree.exited.wait()
        return self._tree.exit

    async def wait_dead(self) -> bool:
        """Wait until no process of the tree is left and the guard has let go of its locks.

        Returns False if the process was closed before that: nobody watches its tree any more.
        """
        await self._tree.ended.wait()
        return self._tree.is_dead

    async def wait_stderr(self) -> None:
        """Wait until the agent's stderr is read to its end; a `close` before that ends no wait."""
        await self._stderr_read.wait()

    async def kill(self) -> bool:
        """Kill the tree and wait, shielded, until it is dead; may be called again (invariant C8).

        Returns False if it is not dead after `waits.KILL`; the guard goes on trying and holds its
        locks. The agent's last output can still be read.
        """
        return await self._tree.kill()

    async def close(self, grace: float) -> None:
        """Close stdin, give the agent `grace` seconds to end, kill what is left, close all.

        An agent that does not heed the end of its stdin is sent SIGTERM within the grace, so that
        it can tidy up. Only the grace can be cancelled; the rest is shielded and bounded.
        """
        self._close_fd("stdin_fd")
        try:
            with anyio.move_on_after(grace):
                with anyio.move_on_after(min(waits.EOF_GRACE, grace / 2)):
                    await self._tree.exited.wait()
                if not self._tree.exited.is_set():
                    self._tree.terminate()
                await self._tree.exited.wait()
        finally:
            self._closing.set()
            with anyio.CancelScope(shield=True):  # `_finish` is bounded
                await self._finished.wait()

    async def discard(self) -> None:
        """Kill the tree of a newborn that nobody has begun to watch, and close all; bounded."""
        await self._finish()

    async def _watch(self) -> None:
        """Follow the process until `close`, and leave nothing behind."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read_stderr)
                tasks.start_soon(self._tree.follow)
                await self._closing.wait()
                tasks.cancel_scope.cancel()
        finally:
            await self._finish()

    async def _read_stderr(self) -> None:
        await self._stderr.run(self._stderr_fd)
        self._stderr_read.set()

    async def _finish(self) -> None:
        """Kill the tree, wait for its end and close all; shielded and bounded."""
        try:
            await self._tree.finish()
            if self._stderr_fd >= 0:
                with anyio.move_on_after(waits.LAST_STDERR, shield=True):
                    await self._stderr.run(self._stderr_fd)
        finally:
            for name in _PIPES:
                self._close_fd(name)
            self._finished.set()

    def _spawn(self, birth: Birth) -> None:
        """Start the guard; runs in a thread. What it opens is stored in any case, for `_finish`."""
        try:
            self._tree.newborn.start_agent(birth)
        except ValueError:  # a NUL
            raise StartFailed("the command is not valid", permanent=True) from None
        except OSError:
            raise StartFailed(NO_ROOM, permanent=False) from None
        finally:
            self._take_streams()

    def _take_streams(self) -> None:
        """Own the bridge's ends of the streams, if there are any yet."""
        for name, fd in zip(_PIPES, self._tree.newborn.streams, strict=False):
            setattr(self, name, fd)

    def _close_fd(self, name: str) -> None:
        fd: int = getattr(self, name)
        if fd >= 0:
            setattr(self, name, -1)
            anyio.notify_closing(fd)
            os.close(fd)
