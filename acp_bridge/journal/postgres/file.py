"""A session's file as a copy of what the database has; every write goes there first.

Invariants
- The writes of a session are made one after the other, first in the database and then in the copy.
  Nobody is told of a write before that. Writes that wait go to the database together, in one
  statement, which also finds out whether the session is still this bridge's.
- If no answer to a write came, it is looked up by its number whether it was made, before it is sent
  again. A write without an answer when half of the lease has passed is given up: what waits for it
  goes on as if the database were away, and before it is looked up a new fence keeps it from getting
  into the log later.
- A write that the session's tables refuse is in the log all the same, and refused in each copy.
- Updates are made without a wait for the database's disk, all other writes with one, which covers
  all that were made before. The updates that a database has lost when it comes back are in the
  copy, which becomes the base.
- While the database is away, no prompt is accepted and none is sent; all else is kept in memory.
- If another bridge has taken the session, the writes that were kept stay on this machine, in a file
  with a name of its own, and are sent nowhere.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import anyio

from acp_bridge.journal.connection import failure, journal_errors, transaction
from acp_bridge.journal.errors import TAKEN, DatabaseAway, JournalError
from acp_bridge.journal.file import LIMIT_BYTES, PROMPTED, SessionFile, Unwritten, Write
from acp_bridge.journal.left_queue import Went
from acp_bridge.journal.postgres import log
from acp_bridge.journal.postgres.connection import ALL, Database, was_refused
from acp_bridge.journal.postgres.lease import Lease, now
from acp_bridge.journal.postgres.memory import Memories, Saved
from acp_bridge.runtime import waits
from acp_bridge.runtime.log import event

logger = logging.getLogger(__name__)

Action = Callable[[JournalError | None], None]

#: the most writes, and bytes of them, that go to the database in one statement.
_BATCH: Final = 500
_BATCH_BYTES: Final = 1024 * 1024
#: bytes of writes on their way, from which on more are kept, as if the database were away. No
#: session with a client gets there: an agent is not read while so much waits for the client.
_MOST_BYTES: Final = 4 * LIMIT_BYTES
#: bytes of writes behind a base from which on a new base is sent, if that is not longer itself.
_LOG_BYTES: Final = 1024 * 1024
#: seconds between two looks for what became of a write.
_LOOK: Final = 0.5
#: seconds for which the close of a session waits for what is on its way.
_CLOSE: Final = 2.0
_FAILED: Final = "the journal failed"
_AWAY: Final = "the journal failed: the database can't be reached"


@dataclass(slots=True, eq=False)
class _Late:
    """A write on its way to the database. `must`: if it can't be made now, it is not kept."""

    write: Write
    row: log.Row
    key: object
    must: bool
    actions: list[Action] = field(default_factory=list)

    def ended(self, error: JournalError | None) -> None:
        for action in self.actions:
            try:
                action(error)
            except Exception:
                logger.exception("journal: what waited for a write has failed")

    async def wait(self) -> JournalError | None:
        """Wait until the write was made, refused or kept; returns the error if it was refused."""
        refused: list[JournalError | None] = []
        over = anyio.Event()

        def ended(error: JournalError | None) -> None:
            refused.append(error)
            over.set()

        self.actions.append(ended)
        await over.wait()
        return refused[0]


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
        self._memories = memories
        self._saved = Saved()
        self._database = database
        self._lease = lease
        self.machine = lease.machine
        self._session_id = ""
        self._fence = 0
        #: the number of the last write that was made in the database.
        self._applied = 0
        self._late: deque[_Late] = deque()
        self._late_bytes = 0
        #: the writes that were sent to the database, and those of them that were given up, of which
        #: nobody knows yet if they were made.
        self._sent: list[Write] = []
        self._unsure: list[Write] = []
        self._more = anyio.Event()
        self._closing = False
        #: True if `on_back` is to be called when the database can be written again.
        self._awaited = False
        self._log_bytes = 0
        self._rebasing, self._saving = anyio.Lock(), anyio.Lock()
        self._lost: JournalError | None = None

    def take_up(self, head: log.Head, saved: Saved) -> None:
        """Become the copy of the session of which `head` is what the database says.

        `saved`: how much of the agent's memory the database has.
        """
        self._saved = saved
        self._session_id = head.info.session_id
        self._fence, self._applied = head.fence, head.applied

    # --- what waits ----------------------------------------------------------------------------

    @property
    def rows_in_flight(self) -> int:
        """The number of rows of updates that are on their way."""
        return sum(bool(late.write.lines) for late in self._late)

    @property
    def to_come(self) -> Collection[Write]:
        """The writes that the file does not have yet, in their order."""
        return [*self.unwritten, *(late.write for late in self._late)]

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
            self._late[-1].actions.append(action)
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
        self._check()
        if self._is_behind:
            self._keep(write, key)
        else:
            self._enter(write, key, must=False)
        if self.in_flight:
            self.on_late()

    def _refusal(self) -> DatabaseAway:
        """Return the error for a write that can't be made now; `on_back` is called when it can."""
        self._await()
        return DatabaseAway(_AWAY)

    def _await(self) -> None:
        if not self._awaited:
            self._awaited = True
            self._more.set()

    @property
    def _is_behind(self) -> bool:
        """True while new writes are kept: the database is away, or too many bytes wait for it."""
        return self._away or self._late_bytes > _MOST_BYTES

    @property
    def _away(self) -> bool:
        return bool(self.unwritten.writes or self._unsure)

    def _check(self) -> None:
        if self.closed or self._closing:
            raise JournalError("the journal is closed")
        if self._lost:
            raise self._lost

    def _enter(self, write: Write, key: object, *, must: bool) -> None:
        with journal_errors():  # a text that is no Unicode goes nowhere
            row = log.row_of(0, write)
        self._late.append(_Late(write, row, key, must))
        self._late_bytes += row.size
        self.in_flight = True
        self._more.set()

    def _keep(self, write: Write, key: object) -> None:
        self._name(write)
        if not self.unwritten.writes:
            event("journal.failed", session=self.path.stem, what=_AWAY)
        self.unwritten.add(write, key)

    def catch_up(self) -> None:
        """Have `run` make the writes that were kept. Raises JournalError while one is not made."""
        self._check()
        if self._away:
            self._more.set()
            raise DatabaseAway(_AWAY)

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
            makes = self._away or bool(self._late)
            try:
                if self._away and not self.closed:
                    await self._make_kept()
                while self._late:
                    await self._make_late()
                if self._awaited and not self.closed:
                    await self._tell_back(sure=makes)
            except DatabaseAway:
                pass  # what waits was kept
            except JournalError as error:
                self._lose(error)
            except Exception:
                logger.exception("journal: the writes of a session can't be made")
                self._lose(JournalError(_FAILED))
            finally:
                self._sent = []

    async def _tell_back(self, *, sure: bool) -> None:
        """Call `on_back` if the database can be written. Raises as `_look_up` does if it can't.

        `sure`: it has just been written.
        """
        if not sure:
            await self._look_up()
        self._awaited = False
        self.on_back(None)

    async def _make_late(self) -> None:
        """Make the oldest queued writes, as many as go into one statement.

        Raises DatabaseAway: all queued writes were kept, or refused; JournalError: these can't be
        made.
        """
        batch: list[_Late] = []
        size = 0
        for late in self._late:
            size += late.row.size
            if batch and (len(batch) >= _BATCH or size > _BATCH_BYTES):
                break
            batch.append(late)
        self._sent = [replace(late.write) for late in batch]
        try:
            await self._ship([late.row for late in batch])
        except DatabaseAway:
            self._keep_late()
            raise
        if self._unsure:
            self._apply_unsure()
        else:
            self._apply_late(batch)

    def _apply_late(self, batch: list[_Late]) -> None:
        refused: dict[int, JournalError] = {}
        failed: JournalError | None = None
        try:
            refused = self._apply([late.write for late in batch])
        except JournalError as error:
            failed = error
        for late in batch:  # they are made, if only in the database
            self._leaves(refused.get(id(late.write)))
        if failed:
            raise failed

    def _leaves(self, error: JournalError | None) -> None:
        late = self._late.popleft()
        self._late_bytes -= late.row.size
        self.in_flight = bool(self._late)
        late.ended(error)

    def _keep_late(self) -> None:
        """Keep all queued writes but for those that must be made now: these are refused."""
        while self._late:
            late = self._late[0]
            if not late.must:
                with suppress(JournalError):
                    self._keep(late.write, late.key)
            self._leaves(self._refusal() if late.must else None)

    async def _make_kept(self) -> None:
        """Make the writes that were kept, the oldest first. Raises as `_make_late` does."""
        kept = self.unwritten
        if self._unsure:
            await self._look_up()
        while kept.writes:
            self._sent = [made] = [replace(kept.first)]  # more may be joined to it meanwhile
            await self._ship([log.row_of(0, made)])
            if self.unwritten is not kept:
                return  # it was closed, and all of this set aside
            self._unsure = self._sent
            self._apply_unsure()
        self._forget_names()
        event("journal.caught_up", session=self.path.stem)

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

        Raises DatabaseAway: none of them is there, or they were given up; JournalError: this bridge
        has lost the session.
        """
        if any(Went.ENDED in write.went for write in self._sent):
            with suppress(JournalError):  # it is tried again at the next checkpoint
                await self._save_memory()
        rows = [row._replace(n=self._applied + at) for at, row in enumerate(rows, 1)]
        unknown, until = False, now() + self._lease.half
        while True:
            asked = False
            try:
                self._lease.check()
                async with self._database.connection() as connection:
                    asked = True
                    if await self._put(connection, rows):
                        break
                    there = await self._last(connection)
                if there == rows[-1].n:
                    break
                if there < self._applied:  # the database has lost what it had not on its disk
                    await self.rebase()
                    self._saved = self._saved._replace(size=0)  # it has less, nobody knows how much
                    with suppress(JournalError):
                        await self._save_memory()
            except DatabaseAway as error:
                unknown = unknown or (asked and not was_refused(error))
                if not unknown:
                    raise
                await anyio.sleep(_LOOK)
                if self._lease.over or now() >= until:
                    self.give_up()
                if self._unsure:
                    raise  # nobody knows what became of it
        self._applied = rows[-1].n
        self._log_bytes += sum(row.size for row in rows)

    async def _put(self, connection: log.Connection, rows: list[log.Row]) -> bool:
        changes = [sql for write in self._sent for sql, _ in write.statements]
        return await log.put(
            connection,
            self._session_id,
            self._lease.owner,
            self._fence,
            rows,
            sure=bool(changes),
            prompted=PROMPTED in changes,
        )

    async def _last(self, connection: log.Connection) -> int:
        """Return the number of the last write in the log; none sent before can get there later.

        That write is on the disk of the database, and of the replicas for which that waits. Raises
        JournalError: this bridge has lost the session.
        """
        owned = self._lease.owner, self._lease.owners
        found = await log.fence(connection, self._session_id, *owned)
        if found is None:
            raise JournalError(TAKEN)
        self._fence, applied = found
        return applied

    # --- the copy ------------------------------------------------------------------------------

    def _apply(self, writes: Iterable[Write]) -> dict[int, JournalError]:
        """Make writes in the copy that are in the log.

        Returns the errors of those that its tables refuse, by the `id` of the write. Raises
        JournalError: the copy can't be written.
        """
        refused: dict[int, JournalError] = {}
        if self.closed:  # the database has them
            return refused
        super().look()
        with transaction(self.db):
            for write in writes:
                if error := log.make(self.db, write.all):
                    refused[id(write)] = failure(error)
            self.db.execute(*log.applied(self._applied))
        return refused

    def _catch_up(self) -> None:
        """Do nothing: the copy gets no write that the database does not have."""

    def _lose(self, error: JournalError) -> None:
        """Give the session up for `error`: another bridge has it, or the copy can't be used.

        Queued writes are refused, kept ones are put into a file of their own, `on_back` is called.
        """
        event("journal.lost", session=self.path.stem, what=error)
        self._lost = error
        self._unsure = []
        while self._late:
            late = self._late[0]
            if not late.must:
                self.unwritten.add(late.write, late.key)
            self._leaves(error)
        self._save_kept()
        self._awaited = False
        self.on_back(error)

    def _save_kept(self) -> None:
        if self.unwritten.writes:
            with suppress(JournalError):
                self._set_aside()

    def _set_aside(self) -> None:
        """Make the kept writes in the copy, and save it under a name of its own."""
        with transaction(self.db):
            for write in self.unwritten:
                log.make(self.db, write.all)
        with journal_errors():
            log.set_aside(self.path, self._applied)
        self.unwritten = Unwritten()

    def rewrite(self, statements: tuple[tuple[str, tuple[object, ...]], ...]) -> None:
        """Execute statements in the copy alone that change how rows are stored.

        Raises JournalError.
        """
        self.look()
        with transaction(self.db):
            for sql, values in statements:
                self.db.execute(sql, values)

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
            refused = refused or self._lost or DatabaseAway(_AWAY)
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

    async def _save_memory(self) -> None:
        """Save the new part of the built-in agent's memory in the database. Raises JournalError.

        It is done before clients are told of a turn's end: who has seen that can go on elsewhere.
        """
        if self.closed or not self._memories:
            return
        agent_session_id = self.value("SELECT agent_session_id FROM session")
        async with self._saving, self._database.connection() as connection:
            owned = self._lease.owner, self._fence
            self._saved = await self._memories.save(
                connection, self._session_id, agent_session_id, self._saved, owned
            )

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
                    await self._late[-1].wait()
            self._closing = True
            if not self.closed:
                self._save_kept()
            first = await super().close()
            self._more.set()
            if first and self._lost is None:
                await self._lease.release(self._session_id, self._fence)
        return first
