"""Starts one agent process behind its guard, watches it, and kills it with its whole tree.

The guard (guard.py) does the work, and `Tree` speaks to it. This module has the pipes.

Invariants
- One task runs in the task group given to `AgentProcess.start`. It ends after `close` or by
  cancellation; either way the tree is killed (bounded, shielded) and every descriptor closed.
- Every descriptor is close-on-exec, so no other agent keeps a pipe of this one open.
- The agent gets the working directory, the environment and the limit of open files that the bridge
  was started with.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from anyio.abc import TaskGroup

from acp_bridge.agents import guard
from acp_bridge.agents.birth import Birth, ByCommand, NoParent, folder_to_start_in, standard_streams
from acp_bridge.agents.deadline import Deadline
from acp_bridge.agents.outcome import NO_ROOM, Exit, GuardDied, StartFailed
from acp_bridge.agents.parent import AgentParent, ByParent
from acp_bridge.agents.spoken_version import SpokenVersion
from acp_bridge.agents.standing import StandingRequests
from acp_bridge.agents.stderr import LineForwarder
from acp_bridge.agents.tree import Tree
from acp_bridge.runtime import waits
from acp_bridge.runtime.threads import NoThread, in_thread

if TYPE_CHECKING:
    from acp_bridge.trace.trace import Trace

__all__ = ["AgentProcess", "Exit", "StartFailed"]

#: The names of the bridge's ends, in the order of the agent's descriptors 0, 1 and 2.
_PIPES = ("stdin_fd", "stdout_fd", "_stderr_fd")
#: forks that are asked for before a command line is executed: the guard that waits at the parent
#: may have been killed there.
_FORKS: Final = 2


class AgentProcess:
    """A running agent, its guard, and the bridge's ends of its pipes; made by `start`."""

    def __init__(
        self, on_stderr: Callable[[str], None] | None, deadline: Deadline | None = None
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
        self._tree = Tree(deadline)
        self._closing = anyio.Event()
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
    ) -> Self:
        """Start `command` (at least one word) and return once it runs, within `waits.SPAWN`.

        `parent` has loaded the command's program: it forks the process if it can, for which a
        `patient` start waits up to `waits.PARENT_LOAD` while the first one loads. `lock_fd` is held
        by the guard from before the agent starts. `open_files` is the agent's soft limit; without
        it, that of this process. It starts in `folder`, or where this process is if there is none.
        `on_stderr` gets the agent's stderr, by lines cut at 8 KiB. The guard follows `deadline`.
        The process is watched in `task_group`.

        Raises StartFailed. When it fails or is cancelled, nothing is left behind.
        """
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
        self, task_group: TaskGroup, birth: Birth, program: str, lock_fd: int | None
    ) -> None:
        """Start the guard and the agent; raises StartFailed, NoParent, and leaves nothing then."""
        try:
            if lock_fd is not None:
                self.hold_lock(lock_fd)
            with anyio.fail_after(waits.SPAWN):
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

    async def _watch(self) -> None:
        """Follow the process until `close`, and leave nothing behind."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stderr.run, self._stderr_fd)
                tasks.start_soon(self._tree.follow)
                await self._closing.wait()
                tasks.cancel_scope.cancel()
        finally:
            await self._finish()

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
        """Start the guard; runs in a thread. What it opens is stored at once, for `_finish`."""
        agent_ends: list[int] = []
        try:
            ours, agent_ends = standard_streams()
            for name, fd in zip(_PIPES, ours, strict=True):
                setattr(self, name, fd)
                os.set_blocking(fd, False)
            self._tree.spawn(birth, agent_ends)
        except ValueError:  # a NUL
            raise StartFailed("the command is not valid", permanent=True) from None
        except OSError:
            raise StartFailed(NO_ROOM, permanent=False) from None
        finally:
            for fd in agent_ends:
                os.close(fd)

    def _close_fd(self, name: str) -> None:
        fd: int = getattr(self, name)
        if fd >= 0:
            setattr(self, name, -1)
            anyio.notify_closing(fd)
            os.close(fd)


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """The agent's command line, at least one word, and the first requests to each process."""

    words: tuple[str, ...]
    initialize: Mapping[str, Any]
    #: the requests that every process is sent after that.
    standing: StandingRequests = field(default_factory=StandingRequests)
    #: the version of ACP that every process is asked for.
    version: SpokenVersion = field(default_factory=SpokenVersion)
    #: the soft limit of open files that each process gets; None: that of the bridge.
    open_files: int | None = None
    #: the folder that each process starts in; None: that of the bridge.
    folder: str | None = None
    #: forks the processes when it can; None: each is started by the command line.
    parent: AgentParent | None = None
    #: the agent is of this project: what it writes to stderr is its log.
    ours: bool = False
    #: has what goes over the wires of the bridge; None: there is none.
    trace: "Trace | None" = None
    #: what the guards of all processes follow, and those of hooks; None: nothing.
    deadline: Deadline | None = None

    async def start(
        self,
        tasks: TaskGroup,
        lock_fd: int | None,
        on_stderr: Callable[[str], None],
        *,
        patient: bool = False,
    ) -> AgentProcess:
        """Start a process; see `AgentProcess.start`, which raises StartFailed."""
        start = partial(AgentProcess.start, tasks, self.words, self.parent)
        return await start(
            self.open_files,
            self.folder,
            patient=patient,
            lock_fd=lock_fd,
            on_stderr=on_stderr,
            deadline=self.deadline,
        )
