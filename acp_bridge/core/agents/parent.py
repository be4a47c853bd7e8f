"""The parent of the built-in agent's processes: started by the bridge, and asked to fork.

agent/fork_parent.py is what runs there, and describes the messages on its socket. A start that it
can't serve, because it still loads, has died or hangs, goes by the command line; so it costs no
session (invariant F2).

The first start waits for the parent and is forked from it before it loads the model library: that
agent is *light*. Then the parent loads the library, and an agent that it forks later is ready for a
prompt. The session of a light agent is given to such a one before its first prompt, so that there
is one process with the library and not two.

Invariants
- One task runs `run`. It ends by cancellation, and the parent with it; guards live on.
- A parent that does not answer in time is killed, so that no request is served late.
- Nobody waits for a parent but the first start, and restarts while the first parent loads; both
  are bounded.
- A parent whose keys have changed since it loaded them is replaced at the next start, which is a
  first start then. The agents that it has forked live on.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.core.agents.birth import NoParent, StartedGuard, folder_to_start_in
from acp_bridge.core.agents.environment import HANDED_ON
from acp_bridge.core.agents.handed_keys import handed_keys
from acp_bridge.core.agents.orphans import ORPHANS
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import NoThread, done_in_any_case, in_thread

#: seconds between two looks at the orphans that a parent has left.
_LOOK: Final = 0.01
#: how many parents in a row may end before they are ready; then no other is started.
_TRIES: Final = 3

# the words on the socket
_LIGHT: Final = b"light"
_LOAD: Final = b"load"
_READY: Final = b"ready"
_THREADS: Final = b"threads"
_FORK: Final = b"fork"
_FAILED: Final = b"failed"


def can_fork() -> bool:
    """Return True on a system that can fork agents: Linux with pidfds."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


class Phase(Enum):
    """How far a parent has loaded, and so what it can do."""

    #: there is no parent, or none that a start waits for.
    ABSENT = auto()
    #: the first parent loads the agent; the first start waits for that.
    COMING = auto()
    #: the parent has loaded the agent and not the model library.
    LIGHT = auto()
    #: the first parent loads the library; restarts wait for that.
    LOADING = auto()
    #: the parent has loaded all.
    READY = auto()


class AgentParent:
    """Keeps one parent, from the first start on; `fork` may be called from any thread."""

    def __init__(
        self, command: Sequence[str], folder: str | None = None, keys: Path | None = None
    ) -> None:
        """`command` starts a parent in `folder`; its socket's number is added as last argument.

        `keys`: the file of keys; when it changes, the parent is replaced at the next start.
        """
        self._command, self._folder, self._keys = command, folder, keys
        self._phase = Phase.ABSENT
        #: replaced when the phase has changed.
        self._changed = anyio.Event()
        self._wanted, self._served = anyio.Event(), anyio.Event()
        #: the state of the keys' file at the parent's start, and whether it has changed since.
        self._loaded_for: object = None
        self._old = anyio.Event()
        #: the parent that lives, and the same one while it can fork.
        self._process: ParentProcess | None = None
        self._forks: ParentProcess | None = None
        #: held while a request is answered, and while a parent begins or stops to fork.
        self._turn = threading.Lock()

    @property
    def ready(self) -> bool:
        """True while there is a parent that has loaded all."""
        return self._phase is Phase.READY

    @property
    def pid(self) -> int | None:
        """The parent's pid while there is one, also one that still loads."""
        return self._process.pid if self._process else None

    @asynccontextmanager
    async def start_of_agent(self, *, patient: bool) -> AsyncIterator[bool]:
        """Give the block, which starts an agent, True if the agent may be forked, False if not.

        The first start waits until a parent can fork, a `patient` one until the first parent has
        loaded all or has come to nothing.
        """
        is_first = not self._wanted.is_set() or await self._replaces(patient)
        if not self._wanted.is_set():
            self._enter(Phase.COMING)
            self._wanted.set()
        try:
            while self._phase is Phase.COMING and is_first:
                await self._changed.wait()
            if patient and not is_first:
                await self.settled()
            yield self.ready or (is_first and self._phase is Phase.LIGHT)
        finally:
            if is_first:  # the parent may load the library now
                self._served.set()

    async def _replaces(self, patient: bool) -> bool:
        """Retire a parent whose keys are outdated; returns True if this start is a first one then.

        A `patient` start is never a first one: it waits until the next parent has loaded all.
        """
        process, loaded_for = self._process, self._loaded_for
        if not self.ready or await self._keys_now() == loaded_for:
            return False
        if not self.ready or self._process is not process:  # another start was quicker
            return False
        event("parent.old", pid=self.pid)
        if not patient:
            self._served = anyio.Event()
        self._old.set()
        self._enter(Phase.COMING)
        return not patient

    async def _keys_now(self) -> object:
        """Return a value that changes with the file of keys; the old value if the disk hangs."""
        with anyio.move_on_after(waits.FORK), suppress(NoThread):
            return await in_thread(_state_of, self._keys, abandon_on_cancel=True)
        return self._loaded_for

    async def settled(self) -> None:
        """Wait until the first parent has loaded all, or has failed."""
        while self._phase in (Phase.COMING, Phase.LIGHT, Phase.LOADING):
            await self._changed.wait()

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    # --- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a parent from the first start on, until cancelled."""
        await self._wanted.wait()
        failures = 0
        while failures < _TRIES:
            try:
                was_ready, may_return = await self._live()
            except OSError:  # too many files or processes
                was_ready, may_return = False, True
            is_old = self._old.is_set()
            if not is_old:
                self._enter(Phase.ABSENT)
            if not may_return:
                return
            failures = 0 if was_ready else failures + 1
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep, 0 if is_old else waits.PARENT_PAUSE)
                tasks.start_soon(self._collect)

    async def _collect(self) -> None:
        """Reap the guard that an ended parent had forked ahead; the bridge has adopted it."""
        with anyio.move_on_after(waits.PARENT_PAUSE):
            while await done_in_any_case(ORPHANS.kill):  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(_LOOK)

    async def _live(self) -> tuple[bool, bool]:
        """Start a parent and wait for its end; returns (it was ready, another may be started)."""
        said, self._old = b"", anyio.Event()  # first: a failure from here on is the new one's
        process = self._process = ParentProcess(self._command, self._folder)
        try:
            self._loaded_for = await self._keys_now()
            with anyio.CancelScope(shield=True):  # or nobody would own what is started
                await in_thread(process.start)
            said = await process.said(waits.PARENT_LIGHT)
            if said == _LIGHT:
                said = await self._loaded(process)
            if said == _READY:
                event("parent.ready", pid=self.pid)
                self._forks = process
                self._enter(Phase.READY)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_when, self._old, tasks.cancel_scope)
                    await process.ended()
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await done_in_any_case(self._end, process)
        if said == _THREADS:
            event("parent.threads")
        return said == _READY, said != _THREADS

    async def _loaded(self, process: ParentProcess) -> bytes:
        """Let a light parent serve the first start, then load the library; returns its next word.

        That message is read only after the last answer to a fork, since both use one socket.
        """
        is_first = self._phase is Phase.COMING
        if is_first:
            self._forks = process
            self._enter(Phase.LIGHT)
        await self._served.wait()
        await in_thread(self._stop_forking)
        process.load_library()
        if is_first:
            self._enter(Phase.LOADING)
        return await process.said(waits.PARENT_LOAD)

    def _stop_forking(self) -> None:
        """Wait for the answer to a request in flight, and send no other; runs in a thread."""
        with self._turn:
            self._forks = None

    def _end(self, process: ParentProcess) -> None:
        """End the parent, once the request in flight is answered; runs in a thread."""
        self._stop_forking()
        self._process = None
        process.end()

    # --- forks ---------------------------------------------------------------------------------

    def fork(
        self, control: int, streams: Sequence[int], open_files: int | None
    ) -> tuple[StartedGuard, bool]:
        """Have a guard forked, within `waits.FORK`; returns it, and True if its agent is light.

        Raises NoParent.
        """
        with self._turn:
            if self._forks is None:
                raise NoParent
            guard = self._forks.fork(control, streams, open_files)
            return guard, self._phase is Phase.LIGHT


def _state_of(file: Path | None) -> object:
    """Return the part of a file's status that changes with its content; None without a file."""
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class ParentProcess:
    """A parent, and the bridge's end of its socket; `start` and `end` are called in a thread.

    Its reports are not read while a fork is asked for, since both use one socket.
    """

    def __init__(self, command: Sequence[str], folder: str | None) -> None:
        """`command` starts the parent in `folder`; its socket's number is added as last argument.

        Raises OSError.
        """
        self._command, self._folder = command, folder
        self._socket, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The parent's pid from `start` to `end`, else None."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the parent; raises OSError."""
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
        """Kill and collect the parent, if it was started, and close the socket."""
        self._other.close()
        self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            ORPHANS.forget_guard(self._process.pid)
            event("parent.ended", pid=self._process.pid)
            self._process = None

    async def ended(self) -> None:
        """Wait until the parent has ended by itself."""
        assert self._process is not None
        pidfd = os.pidfd_open(self._process.pid)
        try:
            await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)

    # --- loading -------------------------------------------------------------------------------

    async def said(self, seconds: float) -> bytes:
        """Return the parent's next report; empty if it has ended, hangs or takes over `seconds`."""
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
        """Tell the parent to load the model library; raises OSError."""
        self._socket.send(_LOAD)

    def _processor_time(self) -> int:
        """Return the parent's processor time in ticks; on a busy machine only that shows a hang."""
        with open(f"/proc/{self.pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])

    # --- forks ---------------------------------------------------------------------------------

    def fork(self, control: int, streams: Sequence[int], open_files: int | None) -> ForkedGuard:
        """Have the parent fork a guard, within `waits.FORK`; runs in a thread, one call at a time.

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
        """Wait for the parent's answer: the forked guard; raises NoParent, OSError, ValueError."""
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


class ByParent:
    """Starts a guard by a fork of the parent."""

    def __init__(self, parent: AgentParent, open_files: int | None) -> None:
        """`open_files` is the agent's soft limit; None: that of this process."""
        self._parent = parent
        self._open_files = open_files
        #: True if the forked agent has no model library.
        self.light = False

    def start(self, control: int, streams: Sequence[int]) -> StartedGuard:
        """Have the parent fork the guard; see `birth.Birth.start`."""
        guard, self.light = self._parent.fork(control, streams, self._open_files)
        return guard
