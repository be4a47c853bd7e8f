"""`python -I -m agent.fork_parent ... FD`: the process from which built-in agents are forked.

The bridge starts one for all its sessions, with the arguments of `python -m agent` before FD. It
loads what an agent needs, once, and forks on request, so that an agent starts in milliseconds and
shares its modules with all others. It has no session, no event loop and no second thread.

It first loads what an agent needs to open a session; the model library takes several times as long.
An agent forked before that is loaded is a light one: another agent replaces it before a prompt.

Over FD, a socket of whole messages (SOCK_SEQPACKET):
- parent to bridge: LIGHT when the agent is loaded and the library is not, READY when all is loaded,
  or THREADS when a library has started a thread: then it can't fork and ends. For each request the
  guard's pid with its pidfd (SCM_RIGHTS), or FAILED.
- bridge to parent, after LIGHT or READY: FORK and the agent's soft limit of open files, which may
  be empty, with the agent's three standard streams and the guard's end of its control socket
  (SCM_RIGHTS). After LIGHT also LOAD, and then nothing before READY.

Invariants
- A forked process holds nothing of the parent or of another session: right after each fork it
  closes every descriptor but its own, and resets signals and random states (invariant F1). A fork
  without exec ignores close-on-exec.
- A guard is reaped here alone, and only after its pidfd was opened: so the pidfd is the guard's.
- The parent ends when the bridge has ended, however that was, also while it loads (invariant P1).
- Its guards live on when it ends: they have their control sockets, and the bridge adopts them.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import select
import signal
import socket
import sys
from typing import Final, NoReturn

from acp_bridge.core.agents import guard
from agent import __main__ as agent_process

LIGHT: Final = b"light"
LOAD: Final = b"load"
READY: Final = b"ready"
THREADS: Final = b"threads"
FORK: Final = b"fork"
FAILED: Final = b"failed"

_STREAMS: Final = 3
#: the guard's control socket in a forked guard.
_CONTROL: Final = 3
_MOST_FILES: Final = 1 << 20


def main() -> int:
    """Serves until the bridge has ended; returns the exit code."""
    guard.keep_private()
    guard.take_keys()
    # Continued at the bridge's death: a stopped parent would outlive it.
    guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGCONT)
    *words, number = sys.argv[1:]
    bridge = socket.socket(fileno=int(number))
    bridge.set_inheritable(False)
    end_with(bridge)
    model, home = agent_process.arguments(words)
    models = load_agent(model, home)
    parent = Parent(bridge, model, home)
    if models:
        if not parent.serve(LIGHT):
            return 0
        end_with(bridge)
    load(model, home)
    parent.settle()
    parent.serve(READY)
    return 0


def end_with(bridge: socket.socket) -> None:
    """Makes the kernel end this process, by SIGIO, as soon as the bridge closes the socket."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(bridge, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(bridge, fcntl.F_SETFL, fcntl.fcntl(bridge, fcntl.F_GETFL) | os.O_ASYNC)
    bridge.setblocking(False)
    try:
        if not bridge.recv(1, socket.MSG_PEEK):
            os._exit(0)  # closed already
    except BlockingIOError:
        return
    finally:
        bridge.setblocking(True)


def load_agent(model: str | None, home: str | None) -> list[str]:
    """Imports an agent's modules; returns the offered models if the user's own need LiteLLM."""
    from acp_bridge.core.wire.lossy import text_stream

    sys.stdout = sys.stderr = text_stream(2)  # before libraries keep references to them
    import anyio._backends._asyncio
    import anyio._core._signals  # noqa: F401

    import agent.serve.connection
    import agent.serve.sdk_transport  # noqa: F401
    from agent.model import ModelError
    from agent.serve.introduction import introduction

    introduction()  # cached: all agents share it
    try:
        models = agent_process.prepare(model, home).models
        return [choice.id for choice in models.offered()] if models.need_library() else []
    except (ModelError, ValueError, OSError):
        return []  # the forked agent reports the problem


def load(model: str | None, home: str | None) -> None:
    """Imports an agent's modules, and LiteLLM if the default model needs it."""
    models = load_agent(model, home)
    from agent.providers import rehearsal
    from agent.tools import Toolbox
    from agent.tools.standard import standard_tools

    if models:
        rehearsal.rehearse(models, Toolbox(standard_tools(), list).specs)


class Parent:
    """Forks guards, which fork agents, until the bridge has ended.

    When all is loaded, a guard is forked ahead for the next request: a fork copies the page tables
    of 200 MB.
    """

    def __init__(self, bridge: socket.socket, model: str | None, home: str | None) -> None:
        """`model` and `home` are the agents' arguments."""
        self._bridge = bridge
        self._arguments = model, home
        self._light = False
        #: the guard that was forked ahead: its pid, and the socket that it gets its streams from
        self._waiting: tuple[int, socket.socket] | None = None
        #: readable when a signal, such as SIGCHLD, has come
        self._children = guard.listen_for_signals()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        #: random generators made by libraries; Python itself reseeds only the module's own
        self._generators: list[random.Random] = []
        gc.disable()  # a collection would write to every shared page

    def settle(self) -> None:
        """Exempts all objects from garbage collection, because forked agents share them.

        It also notes the libraries' random generators. Call it when all is loaded.
        """
        gc.unfreeze()
        found = gc.get_referrers(random.Random)
        self._generators = [each for each in found if type(each) is random.Random]
        # No collection first: it would free half a megabyte, and the first prompt waits for this.
        gc.freeze()

    def serve(self, said: bytes) -> bool:
        """Tells the bridge how much is loaded (`said`), and forks on request until the bridge ends.

        Returns True if the bridge sends LOAD.
        """
        if len(os.listdir("/proc/self/task")) > 1:
            self._bridge.send(THREADS)
            return False
        fcntl.fcntl(self._bridge, fcntl.F_SETFL, self._flags & ~os.O_ASYNC)
        self._bridge.setblocking(False)
        self._light = said == LIGHT
        poll = select.poll()
        poll.register(self._bridge, select.POLLIN)
        poll.register(self._children, select.POLLIN)
        self._bridge.send(said)
        while True:
            self._have_guard_wait()
            poll.poll()
            self._reap()
            try:
                request, fds = self._receive()
            except BlockingIOError:
                continue
            if not request or request == LOAD:
                return request == LOAD
            self._answer(request, fds)

    @property
    def _flags(self) -> int:
        return fcntl.fcntl(self._bridge, fcntl.F_GETFL)

    def _receive(self) -> tuple[bytes, list[int]]:
        flags = socket.MSG_CMSG_CLOEXEC
        request, fds, _, _ = socket.recv_fds(self._bridge, 64, _STREAMS + 1, flags)
        return request, fds

    def _answer(self, request: bytes, fds: list[int]) -> None:
        pidfd = -1
        try:
            try:
                pid = self._start(request, fds)
            finally:
                # While they are open here, the end of guard and agent can't be noticed.
                for fd in fds:
                    os.close(fd)
            pidfd = os.pidfd_open(pid)  # before the guard can be reaped
            socket.send_fds(self._bridge, [b"%d" % pid], [pidfd])
        except OSError:
            self._bridge.send(FAILED)
        finally:
            if pidfd >= 0:
                os.close(pidfd)

    def _start(self, request: bytes, fds: list[int]) -> int:
        """Sends `request` and `fds` to a guard, the one forked ahead if any; returns its pid.

        `fds`: the agent's three streams and the guard's control socket. Raises OSError.
        """
        if len(fds) != _STREAMS + 1:
            raise OSError("there was no room for the descriptors")
        pid, streams = self._waiting or self._fork()
        self._waiting = None
        with streams:
            socket.send_fds(streams, [request], fds)
        return pid

    def _have_guard_wait(self) -> None:
        """Forks a guard ahead for the next request, unless the model library is not loaded yet."""
        if self._light or self._waiting:
            return
        try:
            self._waiting = self._fork()
        except OSError:
            return  # the next request reports it

    def _fork(self) -> tuple[int, socket.socket]:
        """Forks a guard; returns its pid and the socket for its streams. Raises OSError."""
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                raise
            if pid == 0:
                try:
                    self._be_guard(other.detach())
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                finally:
                    os._exit(0)
        return pid, ours

    def _be_guard(self, streams: int) -> None:
        """Waits for streams, forks the agent and guards it until its tree is dead.

        Runs in the fork. `streams`: the socket from which the agent's streams come; it is closed if
        the parent ends.
        """
        signal.set_wakeup_fd(-1)
        os.setsid()
        guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGCONT)
        self._bridge.detach()
        os.dup2(streams, _CONTROL, inheritable=False)
        os.closerange(_CONTROL + 1, _MOST_FILES)
        waiting = socket.socket(fileno=_CONTROL)
        request, fds, _, _ = socket.recv_fds(waiting, 64, _STREAMS + 1)
        waiting.detach()
        if len(fds) != _STREAMS + 1:  # the parent has ended, or descriptors got lost
            return
        for at, fd in enumerate(fds):
            os.dup2(fd, at, inheritable=at < _STREAMS)
        os.closerange(_CONTROL + 1, _MOST_FILES)
        guard.guard_agent(_CONTROL, self._be_agent, request.removeprefix(FORK).decode())

    def _be_agent(self) -> NoReturn:
        """Runs the agent, in a process that the guard has forked; never returns."""
        try:
            os.closerange(_STREAMS, _MOST_FILES)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python itself starts
                signal.signal(number, signal.SIG_IGN)
            agent_process.end_on_signals()
            for generator in self._generators:
                generator.seed()
            gc.enable()
            os._exit(agent_process.run(*self._arguments, light=self._light))
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)

    def _reap(self) -> None:
        """Reaps all guards that have ended, if a signal has come."""
        try:
            os.read(self._children, 4096)
        except BlockingIOError:
            return
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if self._waiting and self._waiting[0] == pid:
                    self._waiting[1].close()
                    self._waiting = None
        except ChildProcessError:
            pass


if __name__ == "__main__":
    sys.exit(main())
