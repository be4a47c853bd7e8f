"""The processes of one agent: followed by the reports of its guard, and killed through it.

Invariants
- One task at a time runs `follow`, and `finish` is called once, after it.
- A guard that somebody has stopped is continued when its tree is to die, as often as it takes. If
  the tree lives on, the bridge does the guard's work from outside, and then kills the guard. It
  stays the subreaper of what it started to the end, so nothing escapes meanwhile (invariant P1).
- If the guard itself is killed, the kernel kills the agent's main process, and the bridge, which
  has adopted the rest, kills that. On macOS it can still find the agent's process group.
- On macOS a process that has left both its group and its parent can be found by the guard alone,
  and not at all if it did so before the guard's first look.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio

from acp_bridge.agents import guard
from acp_bridge.agents.birth import Birth, GuardReports, StartedGuard
from acp_bridge.agents.deadline import Deadline
from acp_bridge.agents.orphans import ORPHANS
from acp_bridge.agents.outcome import Exit, GuardDied, StartFailed
from acp_bridge.runtime import waits
from acp_bridge.runtime.threads import done_in_any_case

#: seconds between two looks at the group of an agent whose guard was killed.
GROUP_POLL_INTERVAL: Final = 0.005
#: seconds between two looks at a guard that is to kill its tree: the first, and the longest.
_FIRST_LOOK: Final = 0.02
_LAST_LOOK: Final = 0.25


class Tree:
    """One agent with all its descendants, and its guard; `spawn` starts both."""

    def __init__(self, deadline: Deadline | None = None) -> None:
        """Nothing is started. The guard follows the deadline from its start on."""
        self.pid = 0
        #: how the main process has ended, once `exited` is set.
        self.exit = Exit(None, signal.SIGKILL)  # until the guard says otherwise
        self.exited = anyio.Event()
        #: set when the tree is dead, or when nobody follows it any more.
        self.ended = anyio.Event()
        #: no process of the tree is left, and the guard has let go of its locks.
        self.is_dead = False
        self._control, self._guard_end = socket.socketpair()
        self._control.setblocking(False)
        self._deadline = deadline
        if deadline:
            deadline.join(self._control)
        self._guard: StartedGuard | None = None
        self._reports = GuardReports(self._control)
        self._reported_dead = False
        #: True if the guard has not reported in time that the agent runs.
        self._hangs = False

    # --- birth ---------------------------------------------------------------------------------

    def spawn(self, birth: Birth, streams: Sequence[int]) -> None:
        """Start the guard, with the agent's standard streams; runs in a thread.

        Raises what `birth.start` raises.
        """
        control = self._guard_end.fileno()
        try:
            self._guard = ORPHANS.start_guard(lambda: birth.start(control, streams))
        finally:
            self._guard_end.close()

    async def wait_started(self, command: str) -> None:
        """Wait for the guard's first report.

        Raises StartFailed if the agent does not run, GuardDied if nobody knows whether it did.
        """
        match await self._reports.first(self._signal_guard):
            case ["started", pid]:
                self.pid = int(pid)
            case ["failed", number]:
                raise StartFailed.by_exec(int(number), command)
            case _:
                raise GuardDied

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
        self._guard_end.close()
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
        """Do the work of a guard that lives and does nothing; `groups` as in the guard.

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
