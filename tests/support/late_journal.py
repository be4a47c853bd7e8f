"""A journal whose writes are made later, as one over a network makes them.

Every write waits in one queue, in order. `LateFile` makes the first of them some rounds of the
event loop later, one after the other; a test that wants to say when holds the `gate`. It can be
away, too: then what must be written at once is refused, as by a database.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.journal import DatabaseAway, JournalError, files
from acp_bridge.core.journal.file import SessionFile, Write
from acp_bridge.core.journal.left_queue import Went

Action = Callable[[JournalError | None], None]


@dataclass(slots=True, eq=False)
class _Late:
    """One write that is on its way."""

    write: Write
    key: object
    keep: bool
    actions: list[Action] = field(default_factory=list)


class Gate:
    """Says how many writes may be made; without a limit all of them."""

    def __init__(self) -> None:
        """Nothing is held up."""
        self.shut = False
        #: what must be written is refused, or `loses`: it is written, and nobody hears of it.
        self.away = self.loses = False
        self._files: list[LateFile] = []

    def add(self, file: LateFile) -> None:
        """Hold up the writes of one more file while the gate is shut."""
        self._files.append(file)

    def open(self) -> None:
        """Let everything go on."""
        self.shut = False
        for file in self._files:
            file.go_on()

    async def let_through(self, enough: Callable[[], object]) -> None:
        """Make one write after the other, until it is enough."""
        with anyio.fail_after(5):
            while not enough():
                for file in self._files:
                    if file.late:
                        file.make_first()
                await anyio.lowlevel.checkpoint()


class LateFile(SessionFile):
    """A session's file that makes its writes later."""

    gate = Gate()
    rounds = Random(1)

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        self.late: deque[_Late] = deque()
        self._comes = False
        self.gate.add(self)

    # --- the queue -----------------------------------------------------------------------------

    @property
    def rows_in_flight(self) -> int:
        return sum(bool(each.write.lines) for each in self.late)

    def then(self, action: Action) -> None:
        if self.late:
            self.late[-1].actions.append(action)
        else:
            action(None)

    def write(self, write: Write) -> None:
        self._check_open()
        self._enter(_Late(write, None, keep=False))

    def write_or_keep(self, write: Write, key: object = None) -> None:
        self._check_open()
        self._enter(_Late(write, key, keep=True))

    def _check_open(self) -> None:
        if self.closed:
            raise JournalError("the journal is closed")

    def _enter(self, late: _Late) -> None:
        self.late.append(late)
        self.in_flight = True
        self.go_on()
        self.on_late()

    def go_on(self) -> None:
        """Make the first write some rounds of the event loop from now."""
        if self.late and not self._comes and not self.gate.shut:
            self._comes = True
            self._after(self.rounds.randrange(3))

    def _after(self, rounds: int) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(*((self._after, rounds - 1) if rounds else (self._come,)))

    def _come(self) -> None:
        self._comes = False
        if self.late and not self.gate.shut:
            self.make_first()
        self.go_on()

    def make_first(self) -> None:
        """Make the write that has waited longest, then do what waits for it."""
        late = self.late.popleft()
        self.in_flight = bool(self.late)
        error: JournalError | None = None
        must = not late.keep or Went.SENT in late.write.went
        try:
            if self.gate.away and must:
                if self.gate.loses:
                    super().write(late.write)
                raise DatabaseAway("away")
            if late.keep:
                super().write_or_keep(late.write, late.key)
            else:
                super().write(late.write)
        except JournalError as refused:
            error = refused
        for action in late.actions:
            action(error)

    def drain(self) -> None:
        """Make all that waits."""
        while self.late:
            self.make_first()

    # --- what else needs all that was written --------------------------------------------------

    def catch_up(self) -> None:
        if not self.late:
            super().catch_up()

    async def sync(self) -> None:
        if self.late:
            refused: list[JournalError] = []
            made = anyio.Event()

            def ended(error: JournalError | None) -> None:
                refused.extend([error] if error else [])
                made.set()

            self.then(ended)
            await made.wait()
            if refused:
                raise refused[0]
        await super().sync()

    async def close(self) -> bool:
        self.drain()
        return await super().close()

    @property
    def to_come(self) -> Collection[Write]:
        return [*super().to_come, *(each.write for each in self.late)]


@contextmanager
def late_journals() -> Iterator[Gate]:
    """Make every session's file a late one."""
    with pytest.MonkeyPatch.context() as patch:
        LateFile.gate = Gate()
        patch.setattr(files, "SessionFile", LateFile)
        yield LateFile.gate
