"""Accepts clients on this bridge's socket, and hands over those that may connect.

- A bridge that can't listen serves its stdin as usual, and tries again.
- A bridge can be reached as long as it works: a socket or a run file that somebody has removed is
  made again, under the same path, which the lock files of the sessions name.
- A client that is refused gets one line that says why, and the end of the connection.
- Connections are checked one after the other, and each refusal is followed by a pause: a process
  that connects in a loop is not to take the time of the bridge.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge import __version__
from acp_bridge.core import errors
from acp_bridge.core.protocol import SOCKET_PROTOCOL
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import NoThread, in_thread
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.sharing.listening import peers
from acp_bridge.sharing.listening.places import private_folder
from acp_bridge.sharing.listening.run_files import RunFile, live_bridges, this_bridge

#: the most connections at a time.
MOST_CLIENTS: Final = 64
#: seconds between a refusal and the next connection.
_PAUSE: Final = 0.01
#: seconds after which accepting is tried again when the system has no descriptor left.
_NO_ROOM: Final = 0.5
#: the most threads that check the processes that have connected.
_LOOKING: Final = 4
_FULL: Final = f"this acp-bridge has {MOST_CLIENTS} clients already"

#: serves one more client until it is gone; owns both streams.
Join = Callable[[Reader, Writer], Awaitable[None]]


#: connections that wait to be accepted.
_BACKLOG: Final = 128


class BoundSocket:
    """A listening Unix socket with its run file, until `close`. All methods belong in a thread."""

    def __init__(self, home: Path, path: Path, agent: str) -> None:
        """Bind the socket to `path`, listen, and publish the run file; raises OSError.

        After an error nothing is left. `agent`: the name of this bridge's agent.
        """
        self.path = path
        self.run_file = RunFile(home)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            private_folder(path.parent)
            told = this_bridge(path, protocol=SOCKET_PROTOCOL, agent=agent, version=__version__)
            self.run_file.write(told)
            self.path.unlink(missing_ok=True)  # our own name, which another file has taken
            self.listener.bind(str(self.path))
            self._made = os.lstat(self.path)
            os.chmod(self.path, 0o600)  # before it listens, so that nobody has connected yet
            self.listener.listen(_BACKLOG)
            self.listener.setblocking(False)
            self.run_file.publish()
        except BaseException:
            self.close()
            raise

    def stands(self) -> bool:
        """Return True while the socket and its run file are still in place on disk."""
        try:
            return os.path.samestat(self._made, os.lstat(self.path)) and self.run_file.stands
        except OSError:
            return False

    def close(self) -> None:
        """Remove the socket and its run file, and stop listening. Never raises."""
        with suppress(OSError):
            os.unlink(self.path)
        self.run_file.remove()
        self.listener.close()


class Listener:
    """Keeps this bridge's socket and accepts its clients while `run` runs."""

    def __init__(self, tasks: TaskGroup, home: Path, path: Path, agent: str, join: Join) -> None:
        """`join` serves a client that connects, as a task of `tasks`, which may outlive `run`.

        `path`: that of the socket; `agent`: the name of this bridge's agent.
        """
        self._tasks = tasks
        self._home = home
        self._path = path
        self._agent = agent
        self._join = join
        self._count = 0
        self._limiter = anyio.CapacityLimiter(_LOOKING)
        self._looks = anyio.Event()
        #: why there is no socket, as it was logged; None if there is one.
        self._hindrance: str | None = None
        #: the socket and its run file; None while this does not listen.
        self.bound: BoundSocket | None = None
        #: set once this listens, or has failed to.
        self.settled = anyio.Event()

    def look_again(self) -> None:
        """Check that the socket and its run file are still there, and make them again if not."""
        self._looks.set()

    async def run(self) -> None:
        """Listen until cancelled; an error that prevents it is logged."""
        try:
            while True:
                try:
                    await self._bind()
                except OSError as exc:
                    self._cannot(exc)
                    if isinstance(exc, TimeoutError):  # nobody knows when that disk answers
                        return
                self.settled.set()
                await self._listen()
                await self._close()
        except Exception as exc:
            errors.internal(exc, "the socket of this acp-bridge can't be used")
        finally:
            self.settled.set()
            await self._close()

    def _cannot(self, why: OSError) -> None:
        """Log why there is no socket, unless the same was logged before."""
        if (told := str(why.strerror or why)) != self._hindrance:
            self._hindrance = told
            event("socket.none", what=told)

    async def _listen(self) -> None:
        """Accept clients while the socket is in place; without a socket, wait for the next try."""
        async with anyio.create_task_group() as tasks:
            if bound := self.bound:
                self._hindrance = None
                tasks.start_soon(self._accept, bound.listener)
            await self._next_look()
            if bound:
                while await _stands(bound):
                    await self._next_look()
                event("socket.gone")
            tasks.cancel_scope.cancel()

    async def _next_look(self) -> None:
        with anyio.move_on_after(waits.STANDING):
            await self._looks.wait()
        self._looks = anyio.Event()

    async def _bind(self) -> None:
        """Make the socket in a thread; raises OSError, TimeoutError if the disk does not answer."""
        given_up = False

        def bind() -> None:
            bound = BoundSocket(self._home, self._path, self._agent)
            live_bridges(self._home)  # which removes the files of killed bridges
            if given_up:
                bound.close()
            else:
                self.bound = bound

        with anyio.move_on_after(waits.SOCKET, shield=True) as patience:
            await in_thread(bind, abandon_on_cancel=True)
        if given_up := patience.cancelled_caught:
            raise TimeoutError("the disk does not answer")

    async def _close(self) -> None:
        if self.bound is not None:
            bound, self.bound = self.bound, None
            with anyio.move_on_after(waits.SOCKET, shield=True), suppress(NoThread):
                await in_thread(bound.close, abandon_on_cancel=True)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await anyio.wait_readable(listener)
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as exc:
                event("socket.not_accepted", what=exc.strerror)
                await anyio.sleep(_NO_ROOM)
                continue
            with connection:
                await self._take(connection)

    async def _take(self, connection: socket.socket) -> None:
        """Check a new connection, then serve it in a task of its own, or refuse it."""
        connection.setblocking(False)
        refusal = await self._refusal(connection)
        if refusal is not None:
            event("client.refused", what=refusal)
            _tell(connection, refusal)
            await anyio.sleep(_PAUSE)
            return
        try:
            writing = os.dup(connection.fileno())
        except OSError as exc:  # no descriptor is left
            event("socket.not_accepted", what=exc.strerror)
            return
        self._count += 1
        self._tasks.start_soon(self._serve, Reader(connection.detach()), Writer(writing))

    async def _refusal(self, connection: socket.socket) -> str | None:
        """Check who has connected; returns why it is refused, None if it may connect."""
        if self._count >= MOST_CLIENTS:
            return _FULL
        look = partial(peers.check, connection)
        try:
            with anyio.fail_after(waits.PEER):
                await in_thread(look, abandon_on_cancel=True, limiter=self._limiter)
        except (TimeoutError, NoThread):
            return peers.UNSEEN
        except peers.Refused as refused:
            return str(refused)
        return None

    async def _serve(self, incoming: Reader, outgoing: Writer) -> None:
        try:
            await self._join(incoming, outgoing)
        except Exception as exc:  # one client is not to end the others
            errors.internal(exc, "a client could not be served")
        finally:
            self._count -= 1
            incoming.close()
            outgoing.close()


def _tell(connection: socket.socket, refusal: str) -> None:
    """Send a refusal as an error line; a new socket has room for it, so this never waits."""
    line = jsonrpc.encode(jsonrpc.error(None, errors.refused(refusal)))
    with suppress(OSError):  # whoever it was is gone
        connection.send(line)


async def _stands(bound: BoundSocket) -> bool:
    """Return False if the socket is no longer in place; True also if no thread can check it."""
    try:
        return await in_thread(bound.stands, abandon_on_cancel=True)
    except NoThread:
        return True
