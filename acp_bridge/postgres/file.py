"""A session's file as a copy of what the database has; every write goes there first.

Invariants
- The writes of a session are made one after the other, first in the database and then in the copy.
  Nobody is told of a write before that. Writes that wait go to the database together, in one
  statement, which also finds out whether the session is still this bridge's.
- If no answer to a write came, it is looked up by its number whether it was made, before it is sent
  again. A write without an answer for `waits.DATABASE` is given up: what waits for it goes on as if
  the database were away, and before it is looked up a new fence keeps it from getting into the log
  later.
- A write that the session's tables refuse is in the log all the same, and refused in each copy.
- Updates are made without a wait for the database's disk, all other writes with one, which covers
  all that were made before. The updates that a database has lost when it comes back are in the
  copy, which becomes the base.
- Only the session's row says that another bridge has the session. Whatever else becomes of a write,
  the database is away: no prompt is accepted and none is sent, and all else is kept in memory.
- A copy that can't be written is given what it lacks before anything else is made.
- A kept write that the database refuses again and again, while it takes an empty one, is set aside,
  so that those behind it are made.
- If another bridge has taken the session, what was kept, and all that follows, goes into a file of
  this machine with a name of its own, and is sent nowhere.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.core.journal.connection import failure, journal_errors, transaction
from acp_bridge.core.journal.errors import (
    DatabaseAway,
    DatabaseSilent,
    JournalError,
    SessionTaken,
    StatementRefused,
)
from acp_bridge.core.journal.file import PROMPTED, SessionFile, Statement, Unwritten, Write, missing
from acp_bridge.core.journal.left_queue import Went
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.postgres import log
from acp_bridge.postgres.again import Again
from acp_bridge.postgres.aside import Aside
from acp_bridge.postgres.connection import ALL, Database
from acp_bridge.postgres.failures import OTHERS, UNREACHED, was_refused
from acp_bridge.postgres.late import Action, Late, Queue
from acp_bridge.postgres.lease import Lease, now
from acp_bridge.postgres.memory import Memories, Saved, SessionMemory
from acp_bridge.postgres.refusals import Refusals

logger = logging.getLogger(__name__)

#: bytes of writes behind a base from which on a new base is sent, if that is not longer itself.
_LOG_BYTES: Final = 1024 * 1024
#: seconds between two looks for what became of a write.
_LOOK: Final = 0.5
#: seconds for which the close of a session waits for what is on its way.
_CLOSE: Final = 2.0


class CopiedFile(SessionFile):
    """A session's file as a copy: each write is made in the database first, then in the copy."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        database: Database,
        lease: Lease,
        memories: Memories | None = None,
    ) -> None:
        """The caller calls `take_up` before anything is written.

        `memories`: the files of the built-in agent, if that is the agent.
        """
        super().__init__(path, connection)
        self._memory = SessionMemory(memories, database)
        self._database = database
        self._lease = lease
        self.machine = lease.machine
        self._session_id = ""
        self._fence = 0
        #: the number of the last write that was made in the database.
        self._applied = 0
        self._late = Queue()
        #: the writes that were sent to the database, and those of them that were given up, of which
        #: nobody knows yet if they were made.
        self._sent: list[Write] = []
        self._unsure: list[Write] = []
        self._more = anyio.Event()
        self._closing = False
        #: True if `on_back` is to be called when the database can be written again.
        self._awaited = False
        self._log_bytes = 0
        self._rebasing = anyio.Lock()
        self._lost: JournalError | None = None
        #: True once it is known that another bridge has the session.
        self.is_taken = False
        #: what a client is told of the database, while that is away.
        self.why = UNREACHED
        #: the writes that the database has and the copy does not have yet.
        self._unapplied: list[Write] = []
        #: True if the queued writes are made one by one.
        self._singly = False
        self._refusals = Refusals(database)
        #: has what this session writes after it was lost.
        self._aside: Aside | None = None

    def take_up(self, head: log.Head, saved: Saved) -> None:
        """Become the copy of the session of which `head` is what the database says.

        `saved`: how much of the agent's memory the database has.
        """
        self._memory.saved = saved
        self._session_id = head.info.session_id
        self._fence, self._applied = head.fence, head.applied

    # --- what waits ----------------------------------------------------------------------------

    @property
    def rows_in_flight(self) -> int:
        """The number of rows of updates that are on their way."""
        return self._late.rows

    @property
    def kept(self) -> Collection[Write]:
        """The writes that could not be made in the copy yet, in their order."""
        return [*self._unapplied, *self.unwritten]

    @property
    def to_come(self) -> Collection[Write]:
        """The writes that the copy does not have yet, in their order."""
        return [*self.kept, *(late.write for late in self._late)]

    @property
    def gone(self) -> bool:
        """True if another bridge has the session, or the copy can't be used."""
        return self._lost is not None or super().gone

    def look(self) -> None:
        """Raise JournalError if another bridge has the session, or the copy can't be used."""
        if self._lost:
            raise self._lost
        super().look()

    def then(self, action: Action) -> None:
        """Call `action` once the last write was made, refused (with the error) or kept."""
        if self._late:
            self._late.last.actions.append(action)
        else:
            action(None)

    def write(self, write: Write) -> None:
        """Queue a write for the database; `then` tells what becomes of it. Raises JournalError."""
        self._check()
        if self._is_behind:
            raise self._refusal()
        self._enter(write, None, must=True)
        self.on_late()

    def write_or_keep(self, write: Write, key: object = None) -> None:
        """Queue a write for the database, or keep it while that is away. Raises JournalError."""
        if Went.SENT in write.went:
            self.write(write)
            return
        self._check_open()
        if self._is_behind:
            self._keep(write, key)
        else:
            self._enter(write, key, must=False)
        if self.in_flight:
            self.on_late()
        if self._lost:
            self._save_kept()

    def _refusal(self) -> JournalError:
        """Return the error for a write that can't be made now; `on_back` is called when it can."""
        if self._lost:
            return self._lost
        self._await()
        return DatabaseAway(self.why)

    def _await(self) -> None:
        if not self._awaited:
            self._awaited = True
            self._more.set()

    @property
    def _is_behind(self) -> bool:
        """True while new writes are kept: the database is away, or too many bytes wait for it."""
        return self._away or self._late.is_full or self._lost is not None

    @property
    def _away(self) -> bool:
        return bool(self.kept or self._unsure)

    def _check_open(self) -> None:
        if self.closed or self._closing:
            raise JournalError("the journal is closed")

    def _check(self) -> None:
        self._check_open()
        if self._lost:
            raise self._lost

    def _enter(self, write: Write, key: object, *, must: bool) -> None:
        with journal_errors():  # a text that is no Unicode goes nowhere
            row = log.row_of(0, write)
        self._late.add(Late(write, row, key, must))
        self.in_flight = True
        self._more.set()

    def _keep(self, write: Write, key: object) -> None:
        if not self._lost:
            self._name(write)
            if not self.unwritten.writes:
                event("journal.failed", session=self.path.stem, what=self.why)
        self.unwritten.add(write, key)

    def catch_up(self) -> None:
        """Have `run` make the writes that were kept. Raises JournalError while one is not made."""
        self._check()
        if self._away:
            self._more.set()
            raise DatabaseAway(self.why)

    def give_up(self) -> None:
        """Keep the writes that wait for the database, which does not answer, or refuse them."""
        self._await()
        self._unsure = self._unsure or self._sent
        self._keep_late()

    # --- the way to the database ---------------------------------------------------------------

    async def run(self) -> None:
        """Make the queued writes until the file is closed; kept ones are tried again and again."""
        while not self.closed or self._late:
            tries = self._away or self._awaited
            with anyio.move_on_after(waits.JOURNAL_RETRY if tries else None):
                await self._more.wait()
            self._more = anyio.Event()
            try:
                await self._make_all()
            except SessionTaken as error:
                self._lose(error)
            except JournalError as error:
                if super().gone:
                    self._lose(error)
            except Exception:
                logger.exception("journal: the writes of a session can't be made")
            finally:
                self._sent = []

    async def _make_all(self) -> None:
        """Make all writes, those that were kept first, and call `on_back` if that is awaited.

        Raises SessionTaken; JournalError: the database or the copy can't be written, and what
        waits was kept.
        """
        if self._lost:
            self._save_kept()
            return
        makes = self._away or bool(self._late)
        try:
            if self._unapplied:
                self._apply(())
            if self._away and not self.closed:
                await self._make_kept()
            self._singly = False
            while self._late:
                await self._make_late()
            if self._awaited and not self.closed:
                if not makes:
                    await self._look_up()
                self._awaited = False
                self.on_back(None)
        except SessionTaken:
            raise
        except Exception as error:
            self.why = str(error) if isinstance(error, JournalError) else UNREACHED
            self._keep_late()
            raise

    async def _make_late(self) -> None:
        """Make the oldest queued writes, as many as go into one statement.

        If the database refuses that for what it holds, they are made one by one; one that must be
        made now is refused. Raises as `_make_all` does.
        """
        batch = [self._late.first] if self._singly else self._late.batch()
        self._sent = [replace(late.write) for late in batch]
        try:
            await self._ship([late.row for late in batch])
        except StatementRefused as error:
            if not self._late or (len(batch) == 1 and not batch[0].must):
                raise  # it was given up meanwhile, or is to be kept
            if len(batch) == 1:
                self.why = str(error)
                self._leaves(self._refusal())
            self._singly = True
            return
        if self._unsure:
            self._apply_unsure()
            return
        if self._lost:  # all was set aside meanwhile
            return
        refused: dict[int, JournalError] = {}
        try:
            refused = self._apply([late.write for late in batch])
        finally:
            for late in batch:  # they are made, if only in the database
                self._leaves(refused.get(id(late.write)))

    def _leaves(self, error: JournalError | None) -> None:
        late = self._late.take_first()
        self.in_flight = bool(self._late)
        late.ended(error)

    def _keep_late(self) -> None:
        """Keep all queued writes but for those that must be made now: these are refused."""
        while self._late:
            late = self._late.first
            if not late.must:
                with suppress(JournalError):
                    self._keep(late.write, late.key)
            self._leaves(self._refusal() if late.must else self._lost)

    async def _make_kept(self) -> None:
        """Make the writes that were kept, the oldest first. Raises as `_make_all` does."""
        kept = self.unwritten
        if self._unsure:
            await self._look_up()
        while kept.writes:
            self._sent = [made] = [replace(kept.first)]  # more may be joined to it meanwhile
            try:
                await self._ship([log.row_of(0, made)])
            except StatementRefused as error:
                if self._unsure or self.unwritten is not kept or not await self._is_for_good():
                    raise
                self._put_out(error)
                continue
            if self.unwritten is not kept:
                return  # it was closed, and all of this set aside
            self._refusals.over()
            self._unsure = self._sent
            self._apply_unsure()
        self._forget_names()
        event("journal.caught_up", session=self.path.stem)

    async def _is_for_good(self) -> bool:
        """Return whether the database refuses the oldest kept write for what that holds."""
        owned, n = (self._lease.owner, self._fence), self._applied + 1
        return await self._refusals.is_for_good(self._session_id, *owned, n)

    def _put_out(self, why: JournalError) -> None:
        """Set the oldest kept write aside; of updates a notice takes the place.

        Raises JournalError: there is no room for it, and it is kept.
        """
        first = self.unwritten.first
        Aside(self.db, self.path, self._applied).keep([first])
        event("journal.failed", session=self.path.stem, what=why)
        self._refusals.over()
        if first.lines and first.lines != (missing(),):
            first.statements, first.lines = (), (missing(),)
        else:
            self.unwritten.drop_first()

    async def _look_up(self) -> None:
        """Find out if the writes that were given up are in the log; if so, make them in the copy.

        If not, they can't get there any more. Raises JournalError, as `_ship` does.
        """
        self._lease.check()
        async with self._database.connection() as connection:
            applied = await self._last(connection)
        if applied == self._applied + len(self._unsure):
            self._applied = applied
            self._apply_unsure()
        self._unsure = []

    def _apply_unsure(self) -> None:
        """Make in the copy the given-up writes, which are in the log. Raises JournalError."""
        made, self._unsure = self._unsure, []
        for write in made:
            self._forget(write)
        self._apply(made)

    def _forget(self, made: Write) -> None:
        """Take a write that was made out of the kept ones, if it is the first of them.

        Updates that were joined with it since are still kept.
        """
        first = self.unwritten.first if self.unwritten.writes else None
        if first is None or first.statements != made.statements or first.turn != made.turn:
            return
        if more := first.lines[len(made.lines) :]:
            first.lines = more
        else:
            self.unwritten.drop_first()

    async def _ship(self, rows: Iterable[log.Row]) -> None:
        """Put `rows`, which are those of the writes in `_sent`, into the database's log.

        Raises SessionTaken; JournalError: none of them is there, or they were given up.
        """
        if any(Went.ENDED in write.went for write in self._sent):
            await self._save_memory(now=False)
        rows = [row._replace(n=self._applied + at) for at, row in enumerate(rows, 1)]
        unknown, until, again, missed = False, now() + waits.DATABASE, Again(), False
        while True:
            asked = False
            try:
                self._lease.check()
                async with self._database.connection() as connection:
                    asked = True
                    if await self._put(connection, rows):
                        break
                    there = await self._last(connection)
                asked = unknown = False
                if there == rows[-1].n:
                    break
                if missed or there > self._applied:
                    raise DatabaseAway(OTHERS)
                if not (missed := there == self._applied):  # it has lost what was not on its disk
                    await self.rebase()
                    self._memory.forget_size()
                    await self._save_memory(now=False)
            except SessionTaken:
                raise
            except JournalError as error:
                if await again.asked_by(error):
                    continue
                unknown = unknown or (asked and not was_refused(error))
                if not unknown:
                    raise
                if isinstance(error, DatabaseSilent) or now() >= until:
                    self.why = str(error)
                    self.give_up()
                else:
                    await anyio.sleep(_LOOK)
                if self._unsure:
                    raise  # nobody knows what became of it
        self._applied = rows[-1].n
        self._log_bytes += sum(row.size for row in rows)

    async def _put(self, connection: log.Connection, rows: list[log.Row]) -> bool:
        changes = [sql for write in self._sent for sql, _ in write.statements]
        owned = self._session_id, self._lease.owner, self._fence
        sure, prompted = bool(changes), PROMPTED in changes
        return await log.put(connection, *owned, rows, sure=sure, prompted=prompted)

    async def _last(self, connection: log.Connection) -> int:
        """Return the number of the last write in the log; none sent before can get there later.

        That write is on the disk of the database, and of the replicas for which that waits. Raises
        SessionTaken: the session is not this bridge's.
        """
        self._fence, applied = await log.fence(connection, self._session_id, self._lease.owners)
        return applied

    async def take_again(self, connection: log.Connection) -> None:
        """Have the session under the lease's name, or lose it. Raises psycopg.Error."""
        try:
            await self._last(connection)
        except SessionTaken as error:
            if not self._closing:
                self._lose(error)

    # --- the copy ------------------------------------------------------------------------------

    def _apply(self, writes: Iterable[Write]) -> dict[int, JournalError]:
        """Make writes in the copy that are in the log, after those that it lacks.

        Returns the errors of those that its tables refuse, by the `id` of the write. Raises
        JournalError: the copy can't be written, and lacks them.
        """
        refused: dict[int, JournalError] = {}
        if self.closed:  # the database has them
            return refused
        self._unapplied += writes
        super().look()
        with transaction(self.db):
            for write in self._unapplied:
                if error := log.make(self.db, write.all):
                    refused[id(write)] = failure(error)
            self.db.execute(*log.applied(self._applied))
        self._unapplied = []
        return refused

    def _catch_up(self) -> None:
        """Do nothing: the copy gets no write that the database does not have."""

    def _lose(self, error: JournalError) -> None:
        """Give the session up for `error`: another bridge has it, or the copy can't be used.

        Queued, kept and later writes are set aside or refused, and `on_back` is called.
        """
        if self.is_taken:
            return
        event("journal.lost", session=self.path.stem, what=error)
        self._lost, self.is_taken = error, isinstance(error, SessionTaken)
        self._unsure = []
        self._keep_late()
        self._save_kept()
        self._awaited = False
        self.on_back(error)

    def _save_kept(self) -> None:
        """Set the kept writes aside; if that can't be done, they are still kept."""
        if self.unwritten.writes:
            with suppress(JournalError):
                self._aside = self._aside or Aside(self.db, self.path, self._applied)
                self._aside.add(self.kept)
                self._unapplied, self.unwritten = [], Unwritten()

    def rewrite(self, statements: tuple[Statement, ...]) -> None:
        """Execute statements in the copy alone that change how rows are stored.

        Raises JournalError.
        """
        self.look()
        self._execute(Write(statements))

    # --- the rest ------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Wait until every write before this call is on the database's disk. Raises JournalError.

        Updates after the last write of another kind are not waited for: they come to the disk a
        moment later.
        """
        changes = (late for late in reversed(self._late) if late.write.statements)
        last = next(changes, None)
        refused = await last.wait() if last else None
        if self._away or self._lost:
            refused = refused or self._lost or DatabaseAway(self.why)
        if refused:
            raise refused

    async def checkpoint(self) -> None:
        """Copy a long WAL into the file, and replace a long log by a new base. Raises JournalError.

        What the built-in agent has written to its memory since the end of the turn is saved, too.
        """
        await super().checkpoint()
        await self._save_memory()
        if self.closed or self._log_bytes < max(_LOG_BYTES, self.path.stat().st_size):
            return
        await self.rebase()

    async def _save_memory(self, *, now: bool = True) -> None:
        """Save what the built-in agent has added to its memory. Raises JournalError.

        `now`: else it may wait for the next checkpoint, unless the database is silent.
        """
        if not self.closed:
            agent_session_id = self.value("SELECT agent_session_id FROM session")
            owned = self._lease.owner, self._fence
            await self._memory.save(self._session_id, agent_session_id, owned, now=now)

    async def rebase(self) -> None:
        """Send the copy, as it is now, to the database as the base, in the place of the log.

        Raises JournalError.
        """
        async with self._rebasing, self._database.connection(ALL) as connection:
            owned = self._lease.owner, self._fence
            await log.rebase(connection, self._session_id, self.path, *owned)
            self._log_bytes = 0

    async def close(self) -> bool:
        """Close the copy, once queued writes were made, and let other bridges have the session.

        It waits for them for two seconds at most. Never raises; returns False if it was closed
        before.
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_CLOSE):
                while self._late:
                    await self._late.last.wait()
            self._closing = True
            if not self.closed:
                if self._late:
                    self.give_up()
                self._save_kept()
            if self._aside:
                self._aside.close()
            first = await super().close()
            self._more.set()
            if first:
                await self._lease.release(self._session_id, self._fence)
        return first
