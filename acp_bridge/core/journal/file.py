"""One open session file: its writing connection, its fsync and its checkpoint.

Invariants
- A transaction is committed when its block ends: written into the WAL, without fsync. When
  `sync` returns, everything committed before it was called is on the disk (invariant K1).
- fsync, checkpoint and close run in worker threads. The checkpoint never holds the writer's
  lock while it copies, so a write on the event loop does not wait for it.
- A write that can't be made now is kept, and made before any later one (invariant Q13).
- Our own descriptor of the WAL disturbs no lock: SQLite's are on the file and on `-shm`. The WAL
  is the same file for as long as the connection is open.
- Nothing counts as written while another file, or none, has the name of the file or of its WAL:
  SQLite goes on writing into a removed file, and nobody would ever read that.
- At the close everything goes into the file that was opened, wherever that is by then, and nothing
  of it into another file that has its name.

Writes that the file could not take are kept, in the order of the calls, until they can be made
(invariant Q13). Of writes with the same key only the last one is kept; transitions of prompts are
always kept, since they are small, and no prompt is accepted meanwhile. Updates are kept up to
`LIMIT_BYTES`: those beyond are lost, and a notice takes their place.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from errno import ENOENT
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
from msgspec import Struct

from acp_bridge.core.journal import left_queue
from acp_bridge.core.journal.connection import (
    FAILURES,
    WAL_LIMIT_BYTES,
    connect,
    failure,
    in_thread,
    journal_errors,
    transaction,
    wal_of,
)
from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.left_queue import Went
from acp_bridge.core.journal.schema import sync_file
from acp_bridge.core.records import replace
from acp_bridge.core.runtime.log import event
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import dumps

logger = logging.getLogger(__name__)


Statement: TypeAlias = tuple[str, tuple[object, ...]]

#: the most bytes of updates that are kept for one session while its file can't be written.
LIMIT_BYTES: Final = 8 * 1024 * 1024
#: the most bytes of a row to which updates of one turn are joined while they are kept.
_ROW_BYTES: Final = 64 * 1024
#: a checkpoint copies what is written meanwhile in so many passes at most.
_PASSES: Final = 5
#: the statement from which on a session counts as one that had a prompt, and is listed.
PROMPTED: Final = "UPDATE session SET prompted = 1"
INSERT_ROW: Final = "INSERT INTO updates(turn, lines) VALUES (?, ?)"
#: No later try helps against these: a text or a value that SQLite can't take, a bug.
_FOR_EVER: Final = (
    UnicodeError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)


def may_pass(error: BaseException) -> bool:
    """Return whether a later try of the same write may work: the disk may have space by then."""
    cause = error.__cause__ or error
    return isinstance(cause, sqlite3.Error | OSError) and not isinstance(cause, _FOR_EVER)


class Write(Struct):
    """Statements, and updates to add to the transcript, that belong into one transaction."""

    statements: tuple[Statement, ...]
    #: the turn of the updates, and the updates: each item has the lines of one read.
    turn: int = 0
    lines: tuple[bytes, ...] = ()
    #: what became of a prompt by this write.
    went: Went = Went.NOTHING
    #: that prompt's number, if it is not `turn`.
    prompt: int = 0

    @property
    def row(self) -> bytes:
        """The `lines` as they stand in one row of the table of updates."""
        return b"\n".join(self.lines)

    @property
    def all(self) -> tuple[Statement, ...]:
        """All statements to execute, the one that adds the updates last."""
        if not self.lines:
            return self.statements
        return (*self.statements, (INSERT_ROW, (self.turn, self.row)))


class Unwritten:
    """The writes of one session that its file could not take yet."""

    def __init__(self) -> None:
        """Start without any write."""
        #: the writes by their keys, the oldest first.
        self.writes: dict[object, Write] = {}
        self._keys = count()
        self._bytes = 0
        self._gap = False

    def __len__(self) -> int:
        return len(self.writes)

    def __iter__(self) -> Iterator[Write]:
        return iter(self.writes.values())

    @property
    def first(self) -> Write:
        """The oldest write, which is to be tried next; raises StopIteration if there is none."""
        return next(iter(self.writes.values()))

    def drop_first(self) -> None:
        """Forget the oldest write: it is in the file, or can never be."""
        write = self.writes.pop(next(iter(self.writes)))
        self._bytes -= sum(map(len, write.lines))
        if not self.writes:
            self._bytes, self._gap = 0, False

    def add(self, write: Write, key: object = None) -> None:
        """Keep a write; it takes the place of an earlier one with the same key.

        Its updates are lost if there are too many, and a notice takes their place.
        """
        size = sum(map(len, write.lines))
        if size and (self._gap or self._bytes + size > LIMIT_BYTES):
            lines = () if self._gap else (missing(),)
            write = replace(write, lines=lines)
            self._gap = True
        else:
            self._bytes += size
        if not write.statements and not write.lines:
            return
        if not self._joined(write, size):
            self.writes.pop(key, None)
            self.writes[next(self._keys) if key is None else key] = write

    def _joined(self, write: Write, size: int) -> bool:
        """Add the updates of `write` to the last kept write; returns whether it was done.

        It is if both have nothing but updates of the same turn, and not too many.
        """
        last = next(reversed(self.writes.values()), None)
        if last is None or last.statements or write.statements or last.turn != write.turn:
            return False
        if sum(map(len, last.lines)) + size > _ROW_BYTES:
            return False
        last.lines += write.lines
        return True


def last_value(writes: Iterable[Write], sql: str, key: str) -> object | None:
    """Return the value that the last statement `sql` among some writes gives to `key`.

    `key` is the first of the statement's values, the result the second; None if there is none.
    """
    found = None
    for statement, values in (each for write in writes for each in write.statements):
        if statement == sql and values[0] == key:
            found = values[1]
    return found


def missing() -> bytes:
    """Return the line of the notice that takes the place of updates that were lost."""
    return dumps(notices.notice(notices.MISSING))


class SessionFile:
    """A migrated session file with its writing connection; used on one thread."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Take over `connection`, which is open to the file `path`. Raises OSError."""
        self.path = path
        self.db = connection
        self.closed = False
        #: True while a write is on its way: never in this class, whose calls return when it's made.
        self.in_flight = False
        #: called when a write goes on its way.
        self.on_late: Callable[[], None] = lambda: None
        #: the name of this machine among those that may have the session; empty: no other may.
        self.machine = ""
        #: the writes that could not be made yet.
        self.unwritten = Unwritten()
        #: why a write can't be made now, as a client is told; empty: it is not known.
        self.why = ""
        #: called when the session's database can't be reached, with the seconds until its turn must
        #: end.
        self.on_away: Callable[[float], None] = lambda seconds: None
        #: called when that database takes writes again, with None, or never will, with the reason.
        self.on_back: Callable[[JournalError | None], None] = lambda lost: None
        self._wal = os.open(wal_of(path), os.O_RDWR | os.O_CLOEXEC)
        #: the paths of the file and of its WAL, and the identity of the file that each had.
        self._names = [(str(each), identity(os.stat(each))) for each in (path, wal_of(path))]
        self._commits = 0
        self._synced = 0
        self._syncing = anyio.Lock()
        self._broken: OSError | None = None

    def look(self) -> None:
        """Raise JournalError if another file, or none, has the name of the file or of its WAL."""
        try:
            self._look()
        except OSError as error:
            raise failure(error, self.path) from error

    def _look(self) -> None:
        for name, file in self._names:
            found = os.stat(name)
            if (found.st_dev, found.st_ino) != file:
                raise FileNotFoundError(ENOENT, "another file has the name", name)

    @property
    def gone(self) -> bool:
        """True if another file, or none, has the name of the file or of its WAL."""
        try:
            self._look()
        except OSError:
            return True
        return False

    def rewrite(self, statements: tuple[Statement, ...]) -> None:
        """Execute statements that change how rows are stored, but nothing that they say.

        They are one transaction, after the writes that were kept. Raises JournalError.
        """
        self.catch_up()
        self._execute(Write(statements))

    @property
    def kept(self) -> Collection[Write]:
        """The writes that could not be made in the file yet, in their order."""
        return self.unwritten.writes.values()

    @property
    def to_come(self) -> Collection[Write]:
        """The writes that the file does not have yet, in their order."""
        return self.kept

    @property
    def rows_in_flight(self) -> int:
        """The number of rows of updates that are on their way: none in this class."""
        return 0

    def then(self, action: Callable[[JournalError | None], None]) -> None:
        """Call `action` once the last write was made, refused or kept: in this class at once.

        It gets None, or the error of a write that was refused after its call had returned.
        """
        action(None)

    def write(self, write: Write) -> None:
        """Make a write in one transaction, after the writes that were kept.

        Raises JournalError; the write is not kept then.
        """
        self.catch_up()
        self._execute(write)

    def write_or_keep(self, write: Write, key: object = None) -> None:
        """Make a write in one transaction, now or when the file can be written again.

        `key`: a later write of the same key makes this one needless.

        Raises JournalError: the file is closed, or no later try can work; or a prompt is to be
        sent of which nobody would know after a kill.
        """
        if self.closed:
            raise JournalError("the journal is closed")
        try:
            if self.unwritten.writes:
                self._catch_up()
            self._execute(write)
        except JournalError as error:
            if not may_pass(error):
                raise
            self._name(write)
            if not self.unwritten.writes:
                event("journal.failed", session=self.path.stem, what=error.__cause__)
            self.unwritten.add(write, key)

    def _name(self, write: Write) -> None:
        if write.went:
            try:
                self._look()  # the names of prompts are never left beside another file
                left_queue.add(self.path, write.prompt or write.turn, write.went)
            except OSError as error:
                if Went.SENT in write.went:
                    raise failure(error, self.path) from error

    def catch_up(self) -> None:
        """Make the writes that were kept. Raises JournalError if one still can't be made."""
        if self.closed:
            raise JournalError("the journal is closed")
        if self.unwritten.writes:
            self._catch_up()

    def _catch_up(self) -> None:
        while self.unwritten.writes:
            try:
                self._execute(self.unwritten.first)
            except JournalError as error:
                if may_pass(error):
                    raise
                logger.exception("journal: a write that was kept can't be made")
            self.unwritten.drop_first()
        self._forget_names()
        event("journal.caught_up", session=self.path.stem)

    def _forget_names(self) -> None:
        if self._names:  # else the link is another file's
            left_queue.clear(self.path)

    def _execute(self, write: Write) -> None:
        statements = write.all
        try:  # not `journal_errors`: this is the hot path
            self._look()
            if len(statements) == 1:
                self.db.execute(*statements[0])
            elif statements:
                with transaction(self.db):
                    for statement in statements:
                        self.db.execute(*statement)
        except FAILURES as error:
            raise failure(error, self.path) from error
        self._commits += 1

    def value(self, sql: str, values: tuple[object, ...] = ()) -> Any:
        """Return the first column of the first row that `sql` finds, None if it finds none.

        Raises JournalError.
        """
        with journal_errors():
            row = self.db.execute(sql, values).fetchone()
        return None if row is None else row[0]

    async def sync(self) -> None:
        """Wait until everything that was committed before this call is on the disk.

        Calls that wait at the same time share one fsync. Raises JournalError, and after a first
        failure until `checkpoint` has mended that: a second fsync would not find what the first
        one lost.
        """
        if self.unwritten.writes and not self.closed:
            with suppress(JournalError):
                self._catch_up()
        wanted = self._commits
        async with self._syncing:
            if self._broken is not None or self.closed:
                raise JournalError("the journal can't be synced") from self._broken
            if self._synced >= wanted:
                return
            covered = self._commits
            try:
                await in_thread(self._sync)
            except OSError as error:
                self._broken = error
                raise JournalError("the journal can't be synced") from error
            self._synced = covered

    def _sync(self) -> None:
        sync_file(self._wal)
        self.look()

    @property
    def broken(self) -> bool:
        """True if an fsync has failed: none is believed until `checkpoint` has worked."""
        return self._broken is not None

    async def checkpoint(self) -> None:
        """Copy a long WAL into the file, while writes go on. Raises JournalError.

        After a failed fsync any WAL is copied: what it holds is written and synced anew.
        """
        if self.closed:
            return
        self.look()
        if not self.broken:
            if os.fstat(self._wal).st_size > WAL_LIMIT_BYTES:
                await in_thread(_checkpoint, self.path)
            return
        async with self._syncing:
            covered = self._commits
            if not self.closed and await in_thread(_checkpoint, self.path):
                self._broken, self._synced = None, covered

    async def close(self) -> bool:
        """Close the file, which is whole on disk afterwards; returns False if it was closed before.

        Never raises.
        """
        with anyio.CancelScope(shield=True):
            await self._syncing.acquire()
            try:
                if self.closed:
                    return False
                if self.gone:
                    self._names.clear()  # nothing is looked for any more
                if self.unwritten.writes:
                    with suppress(JournalError):
                        self._catch_up()
                if self.unwritten.writes:
                    logger.warning("journal: closed with %d writes not made", len(self.unwritten))
                    if not self._names:
                        self.unwritten = Unwritten()  # no other file may get them
                self.closed = True
                # Whoever uses the file meanwhile gets a connection that is closed already: one
                # that a thread is closing must not be touched, or the process crashes.
                connection, self.db = self.db, _closed_connection()
                await in_thread(self._close, connection)
            finally:
                self._syncing.release()
        return True

    def _close(self, connection: sqlite3.Connection) -> None:
        os.close(self._wal)
        with suppress(sqlite3.Error):
            if not self._names:  # a WAL that stays would be played into the file that has the name
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
            connection.close()  # the last connection: it checkpoints, and removes the WAL


def identity(file: os.stat_result) -> tuple[int, int]:
    """Return device and inode, which no other file has while this one is open."""
    return file.st_dev, file.st_ino


def _closed_connection() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.close()
    return connection


def _checkpoint(path: Path) -> bool:
    """Copy the WAL into the file and sync it; returns whether all of the WAL was copied.

    What was written meanwhile is copied by a further pass, else the WAL would go on growing.
    """
    with journal_errors(), closing(connect(path, wait=1)) as connection:
        before = there = moved = 0
        for _ in range(_PASSES):
            _, there, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if there == before:
                break
            before = there
        begin_wal(connection)
        return bool(there == moved)


def begin_wal(connection: sqlite3.Connection) -> None:
    """Write the file's header page as it is, so that the WAL starts again from its beginning.

    The first write after a whole checkpoint does that. It syncs the WAL's header, so it belongs
    into a worker thread, and should not be the next write on the event loop.
    """
    connection.execute("PRAGMA application_id=0").close()
