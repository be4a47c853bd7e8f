"""Gates force an order between processes: one stops at a gate until the test opens it.

The protocol, spoken by the fixture agents and by the scripted model: connect to the unix socket
named by the environment variable `ACP_BRIDGE_GATES`, send `NAME\\n`, block until `go\\n`. Whoever
closes its connection (a killed process does) no longer waits and is not opened.
"""

import contextlib
import select
import shutil
import socket
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from tests.support.tasks import end_tasks


@dataclass(eq=False, slots=True)
class _Waiter:
    name: str
    connection: socket.socket

    def is_gone(self) -> bool:
        """A waiter says nothing more: what can be read is the end of its connection."""
        return bool(select.select([self.connection], [], [], 0)[0])


class Gates:
    """The gate keeper: `async with Gates() as gates`, and `gates.env` for the process."""

    def __init__(self) -> None:
        # Not under pytest's tmp_path: a socket's path has at most 107 bytes.
        self._folder = tempfile.mkdtemp(prefix="gates-")
        self.path = str(Path(self._folder, "s"))
        self.env = {"ACP_BRIDGE_GATES": self.path}
        self._listener = socket.socket(socket.AF_UNIX)
        self._waiters: list[_Waiter] = []
        self._arrived: Counter[str] = Counter()
        self._credit: Counter[str] = Counter()
        self._open_for_good: set[str] = set()
        self._news = anyio.Event()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._accept)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return await end_tasks(self._tasks, exc)
        finally:
            self._listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    async def reached(self, name: str, count: int = 1, within: float = 5) -> None:
        """Waits until the gate was reached `count` times in all, opened since or not."""
        try:
            with anyio.fail_after(within):
                while self._arrived[name] < count:
                    await self._news.wait()
        except TimeoutError:
            seen = dict(self._arrived)
            raise TimeoutError(
                f"gate {name!r} not reached {count} times; reached: {seen}"
            ) from None

    def times_reached(self, name: str) -> int:
        return self._arrived[name]

    def open(self, name: str) -> None:
        """Lets the one through who waits longest, or the next one to come."""
        for waiter in self._waiters:
            if waiter.name == name and not waiter.is_gone():
                self._let_through(waiter)
                return
        self._credit[name] += 1

    def open_for_good(self, *names: str) -> None:
        """Lets through everyone who waits, and everyone who comes."""
        self._open_for_good.update(names)
        for waiter in [waiter for waiter in self._waiters if waiter.name in names]:
            self._let_through(waiter)

    def _let_through(self, waiter: _Waiter) -> None:
        self._waiters.remove(waiter)
        if not waiter.is_gone():
            with contextlib.suppress(OSError):  # its process was killed in this moment
                waiter.connection.send(b"go\n")

    async def _accept(self) -> None:
        while True:
            await anyio.wait_readable(self._listener)
            connection, _ = self._listener.accept()
            self._tasks.start_soon(self._serve, connection)

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setblocking(False)
            await anyio.wait_readable(connection)
            # A name is short, sent at once and followed by silence: it comes in one read.
            name = connection.recv(4096).decode().rstrip("\n")
            if not name:
                return
            waiter = _Waiter(name, connection)
            self._arrive(waiter)
            try:
                await anyio.wait_readable(connection)
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def _arrive(self, waiter: _Waiter) -> None:
        self._waiters.append(waiter)
        self._arrived[waiter.name] += 1
        if waiter.name in self._open_for_good:
            self._let_through(waiter)
        elif self._credit[waiter.name]:
            self._credit[waiter.name] -= 1
            self._let_through(waiter)
        self._news.set()
        self._news = anyio.Event()
