"""The journal of one session: an SQLite file with one writer, on the event loop's thread.

Invariants
- A synchronous method has committed when it returns: that survives the death of the process.
  When `sync` returns, everything written before it survives a loss of power (invariant K1).
- The order of the calls is the order of the journal. Every transition of a prompt is one
  transaction; a second one to the same state is refused and changes nothing (invariant Q7).
- On the event loop there are only short writes into the WAL. Worker threads, with connections of
  their own, do fsync, checkpoints, long reads and merging.
- An outcome stays once it is there; a prompt that has one never waits again (invariant Q4).
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio

from acp_bridge.core.journal import left_queue, prompt_rows, turns
from acp_bridge.core.journal.connection import in_thread, journal_errors
from acp_bridge.core.journal.errors import JournalError
from acp_bridge.core.journal.file import (
    PROMPTED,
    SessionFile,
    Statement,
    Unwritten,
    Write,
    last_value,
)
from acp_bridge.core.journal.history import SALVAGED_ROWS, Extent, Slice, read_entries, read_slice
from acp_bridge.core.journal.left_queue import Went
from acp_bridge.core.journal.merge import Merger, merged
from acp_bridge.core.journal.prompt_rows import pages, words_line
from acp_bridge.core.journal.records import (
    DROPPED,
    INTERRUPTED,
    PromptRow,
    PromptState,
    Receipt,
    SessionInfo,
)
from acp_bridge.core.records import replace
from acp_bridge.core.wire.jsonrpc import dumps, loads

#: the row stays, empty: no later row gets its number.
_CLEAR: Final = "UPDATE updates SET lines = x'' WHERE id = ? AND lines = ?"

Pages: TypeAlias = AsyncIterator[list[dict[str, Any]]]


class SessionJournal:
    """The journal of one open session; made by `Journal.create` and `Journal.open`."""

    def __init__(
        self,
        file: SessionFile,
        info: SessionInfo,
        on_closed: Callable[[str, Unwritten], None] = lambda session_id, unwritten: None,
    ) -> None:
        """Take over an open file; `info` is what it says of the session.

        `on_closed` is called once, at the close, with the session's id and the writes that could
        not be made by then.
        """
        self.info = info
        self._file = file
        self._on_closed = on_closed
        self._compacting = anyio.Lock()
        #: the extents that are open: compaction moves rows, so it waits until each is closed.
        self._readers: set[Extent] = set()
        #: the number of the prompt that was accepted last, once one was.
        self._numbered = 0
        #: called when a write goes on its way: no message may tell of it before it is made.
        self.on_late: Callable[[], None] = lambda: None
        file.on_late = lambda: self.on_late()
        #: called when the journal's database is away, with the seconds until turns must end.
        self.on_away: Callable[[float], None] = lambda seconds: None
        file.on_away = lambda seconds: self.on_away(seconds)
        #: called with None when the database takes writes again after that, or after it had refused
        #: one with DatabaseAway; or with the error that says why it never will.
        self.on_back: Callable[[JournalError | None], None] = lambda lost: None
        file.on_back = lambda lost: self.on_back(lost)
        #: called with the lines of each row of the transcript, once they are written or kept.
        self.follower: Callable[[bytes], None] | None = None

    # -- completions -----------------------------------------------------------------------

    @property
    def in_flight(self) -> bool:
        """True while a write is on its way, so that it is not known whether it will be made."""
        return self._file.in_flight

    def then(self, action: Callable[[JournalError | None], None]) -> None:
        """Call `action` once the write before this call was made, refused or kept in memory.

        That is at once unless one is `in_flight`. The actions are called in the order of the
        writes; each gets None, or the error if its write was refused after the call that made it
        had returned.
        """
        self._file.then(action)

    async def made(self) -> None:
        """Wait until every write before this call was made, refused or kept in memory."""
        if self._file.in_flight:
            made = anyio.Event()
            self._file.then(lambda error: made.set())
            await made.wait()

    # -- prompts ---------------------------------------------------------------------------

    def accept(self, prompt_id: str, params: Mapping[str, Any]) -> int:
        """Put a prompt at the end of the queue, with its key if it has one; returns its number.

        Acknowledge it only after `then` and `sync`. Raises JournalError, also for an id, or a key,
        that was used before.
        """
        seq = (self._numbered or self._last_prompt()) + 1
        statements = prompt_rows.accept(seq, prompt_id, params)
        if not self.info.prompted:
            statements = (*statements, (PROMPTED, ()))
        self._file.write(Write(statements))
        self._numbered = seq
        self.info = replace(self.info, prompted=True)
        return seq

    def start_turn(self, seq: int, *, shown: bool = False) -> None:
        """Note that a waiting prompt is about to be sent; its words begin the transcript of `seq`.

        `shown`: the words stand in the turn that the prompt was to join, so an empty row begins its
        own.

        Raises:
            RuntimeError: the prompt does not wait: a bug of the caller, nothing is changed.
            JournalError: it must not be sent. After a kill of the bridge nobody would know of it.
        """
        move = prompt_rows.move(seq, PromptState.WAITING, PromptState.SENT)
        words = b"" if shown else words_line(seq)
        self._take(seq, Write((move, prompt_rows.began(seq)), seq, (words,), Went.SENT))
        self._follow(words)

    def start_steering(self, seq: int, turn: int) -> None:
        """Note that a waiting prompt is about to join the turn of another, where its words stand.

        Raises as `start_turn` does.
        """
        move = prompt_rows.move(seq, PromptState.WAITING, PromptState.SENT)
        words = words_line(seq)
        self._take(seq, Write((move,), turn, (words,), Went.SENT, seq))
        self._follow(words)

    def return_to_queue(self, seq: int, origin: PromptState = PromptState.SENT) -> None:
        """Let a prompt in the state `origin` wait again: it was to be sent, or was left over.

        Raises JournalError when the journal is closed.
        """
        move = prompt_rows.move(seq, origin, PromptState.WAITING)
        self._file.write_or_keep(Write((move,)))

    def change_params(self, seq: int, params: Mapping[str, Any]) -> None:
        """Replace the parameters of a prompt. Raises JournalError when the journal is closed."""
        self._file.write_or_keep(Write((prompt_rows.change(seq, params),)))

    def edit(self, seq: int, params: Mapping[str, Any]) -> None:
        """Replace the parameters of a prompt that waits or is left over, for the user's edit.

        Acknowledge it only after `sync`. Raises JournalError: nothing is changed, now or later.
        """
        self._file.write(Write((prompt_rows.change(seq, params),)))

    def reorder(self, seqs: Iterable[int]) -> None:
        """Set the user's order of the prompts that wait or are left over: `seqs` has all of them.

        Acknowledge it only after `sync`. Raises JournalError: nothing is changed, now or later.
        """
        order = dumps(list(seqs)).decode()
        self._file.write(Write(((prompt_rows.SET, (prompt_rows.ORDER, order)),)))

    def put_back_order(self, seqs: list[int]) -> None:
        """Set the order `seqs` again, since a change of it was not made after all.

        Raises JournalError when the journal is closed.
        """
        self.set(prompt_rows.ORDER, seqs)

    @property
    def order(self) -> list[int]:
        """The numbers of prompts in the user's order, as it was set last. Raises JournalError."""
        return self.get(prompt_rows.ORDER) or []

    def began_turn(self, seq: int) -> bool:
        """Return True if a prompt has a turn of its own, False if it has joined that of another.

        Raises JournalError.
        """
        sql = "SELECT count(*) FROM (SELECT 1 FROM updates WHERE turn = ? LIMIT 1)"
        return bool(self._file.value(sql, (seq,)))

    def end_prompt(
        self, seq: int, outcome: Mapping[str, Any], agent_outcome: Mapping[str, Any] | None
    ) -> None:
        """Record the client's answer and the agent's own outcome; of each the first one stays.

        Raises JournalError when the journal is closed.
        """
        end = prompt_rows.end(seq, outcome, agent_outcome)
        # An interrupted one counts as that without its end.
        went = Went.NOTHING if outcome == INTERRUPTED else Went.ENDED
        self._file.write_or_keep(Write((end, prompt_rows.ended(seq)), seq, went=went))

    def release(self, seq: int) -> None:
        """Let a left-over prompt wait again, on the user's word.

        Raises:
            RuntimeError: the prompt is not left over, as far as the file can say.
            JournalError: nothing is changed, now or later.
        """
        self._file.catch_up()  # it may be left over by a write that was kept
        if not self._file.in_flight:
            self._expect(seq, PromptState.LEFT_OVER)
        move = prompt_rows.move(seq, PromptState.LEFT_OVER, PromptState.WAITING)
        self._file.write(Write((move,)))

    def leave_over(self, seq: int) -> None:
        """Make a waiting prompt a left-over one. Raises as `start_turn` does."""
        self._take(seq, Write((prompt_rows.move(seq, PromptState.WAITING, PromptState.LEFT_OVER),)))

    def drop(self, seq: int, outcome: Mapping[str, Any] = DROPPED) -> None:
        """End a prompt with `outcome`, so that it never runs. Raises JournalError."""
        self._file.write(Write((prompt_rows.end(seq, outcome, None),)))

    async def recover(self, said: Mapping[int, bytes] | None = None) -> list[PromptRow]:
        """Take over from another bridge; returns the prompts that are left over, in order (Q6).

        Prompts that the other bridge had sent become done, `INTERRUPTED` if they have no outcome.
        `said`: by prompt, the lines, as for `record`, that end its transcript. Raises JournalError:
        nothing is changed.
        """
        await self._make(*prompt_rows.recover(said or {}))
        return self.prompts(PromptState.LEFT_OVER)

    async def settle_left(self) -> None:
        """Note what became of prompts where a killed bridge could not write it (Q5).

        The link of `left_queue` tells it, and is removed. Raises JournalError.
        """
        if named := left_queue.read(self._file.path):
            not_ended = PromptState.WAITING, PromptState.LEFT_OVER, PromptState.SENT
            await self._make(*prompt_rows.settle(self.prompts(*not_ended), named))
            left_queue.clear(self._file.path)

    def prompts(self, *states: PromptState) -> list[PromptRow]:
        """Return the prompts in these states (none given: all), in order. Raises JournalError."""
        with journal_errors():
            return prompt_rows.read(self._file.db, states)

    def receipt(self, key: str) -> Receipt | None:
        """Return the receipt of the prompt that was accepted under a key; None if none was.

        Raises JournalError, also for one that can't be read: its prompt may have run.
        """
        sql = "SELECT value FROM settings WHERE key = ?"
        text = self._file.value(sql, (prompt_rows.receipt_key(key),))
        receipt = None if text is None else prompt_rows.read_receipt(text)
        if text is not None and receipt is None:
            raise JournalError("the receipt of a prompt is damaged")
        return receipt

    def has_words(self, seq: int, turn: int) -> bool:
        """Return whether the words of a prompt stand in a turn. Raises JournalError."""
        end = "char(10)"
        sql = (
            "SELECT EXISTS(SELECT 1 FROM updates WHERE turn = ?"
            f" AND instr({end} || lines || {end}, {end} || ? || {end}))"
        )
        return bool(self._file.value(sql, (turn, words_line(seq).decode())))

    def has_begun(self, seq: int) -> bool:
        """Return whether a prompt had a turn of its own; False if the file can't be read."""
        try:
            return bool(
                self._file.value("SELECT EXISTS(SELECT 1 FROM updates WHERE turn = ?)", (seq,))
            )
        except JournalError:
            return False

    def answer_receipt(self, key: str, told: Mapping[str, Any]) -> None:
        """Note in a key's receipt what its clients are told, if the prompt has another outcome.

        Raises JournalError when the journal is closed, or if the receipt can't be read.
        """
        if receipt := self.receipt(key):
            self._file.write_or_keep(Write((prompt_rows.answer_receipt(key, receipt, told),)))

    def take_receipt_back(self, key: str) -> None:
        """Free a key: its prompt was not taken. Raises JournalError when the journal is closed."""
        self._file.write_or_keep(Write((prompt_rows.take_receipt_back(key),)))

    def prompt(self, seq: int) -> PromptRow | None:
        """Return the prompt with this number; None if it is damaged. Raises JournalError."""
        with journal_errors():
            return prompt_rows.find(self._file.db, self._file.to_come, seq)

    def turns_finished(self) -> int:
        """Count the turns that the agent itself has ended well (invariant R10).

        A turn with an error, or a cancelled one, does not count: the agent may have forgotten it.
        Raises JournalError.
        """
        with journal_errors():
            return prompt_rows.turns_finished(self._file.db, self._file.to_come)

    async def take_in(self, statements: Iterable[Statement]) -> None:
        """Fill a new session by executing the statements of an exported one.

        It counts as prompted from then on. Raises JournalError: nothing is changed.
        """
        await self._make(*statements, (PROMPTED, ()))
        self.info = replace(self.info, prompted=True)

    # -- updates ---------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """True while writes that could not be made are kept in memory, where a kill loses them."""
        return bool(self._file.kept)

    @property
    def why(self) -> str:
        """Why writes can't be made now, for the user; empty if that is not known."""
        return self._file.why.removeprefix("the journal failed: ")

    @property
    def gone(self) -> bool:
        """True if another file, or none, has the name of the session's file or of its WAL."""
        return self._file.gone

    def look(self) -> None:
        """Raise JournalError if another bridge has the session, or its file can't be used."""
        self._file.look()

    @property
    def broken(self) -> bool:
        """True if an fsync has failed: no prompt is taken until `checkpoint` has worked."""
        return self._file.broken

    def catch_up(self) -> None:
        """Make the writes that could not be made before. Raises JournalError if one still can't."""
        self._file.catch_up()

    def record(self, turn: int, lines: bytes, superseded: Sequence[tuple[int, bytes]] = ()) -> None:
        """Record one read of the agent's pipe before it is shown (T2); turn 0 is outside any turn.

        `lines`: params of `session/update` without the session's id, JSON objects, one a line.
        `superseded`: numbers and lines of rows that become empty, if they still have these lines.
        Raises JournalError when the journal is closed.
        """
        cleared = tuple([(_CLEAR, row) for row in superseded]) if superseded else ()
        self._file.write_or_keep(Write(cleared, turn, (lines,)))
        self._follow(lines)

    def is_read(self, row: int) -> bool:
        """Return True if a replay goes on up to a row, or beyond: the row is to stay until then."""
        return any(extent.last_row >= row for extent in self._readers)

    def _follow(self, lines: bytes) -> None:
        if self.follower:
            self.follower(lines)

    @property
    def is_empty(self) -> bool:
        """True if nothing was recorded yet. Raises JournalError."""
        return not self._file.kept and not self._last_row()

    def words(self, seq: int) -> list[dict[str, Any]]:
        """Return the words of a prompt as the updates that stand for them in the transcript.

        There are none if the words are damaged. Raises JournalError.
        """
        with journal_errors():
            return prompt_rows.words_in(self._file.db, [seq]).get(seq, [])

    def extent(self) -> Extent:
        """Return how far the transcript goes now; no rows are merged until the extent is closed.

        Raises JournalError.
        """
        lines = [(write.turn, write.row) for write in self._file.kept if write.lines]
        return Extent(self._readers, self._last_row(), lines)

    async def replay(self, *, turn: int | None = None, up_to: Extent | None = None) -> Pages:
        """Give the transcript as far as `up_to` goes, in pages, with messages joined (R1).

        Without it, as far as it goes at the first step.
        `turn`: only what was recorded in that prompt's turn. Raises JournalError.
        """
        extent = up_to or self.extent()
        try:
            self._file.look()
            unwritten = [each for each in extent.unwritten if turn in (None, each[0])]
            async for page in self.stretch(0, extent.last_row, turn):
                yield page
            if unwritten:
                async for page in pages(self._file.path, await in_thread(merged, unwritten)):
                    yield page
        finally:
            if up_to is None:
                extent.close()

    async def stretch(self, after: int, to: int, turn: int | None = None) -> Pages:
        """Give the transcript of the rows with after < id <= to in pages; raises as `replay` does.

        The caller has an extent open that was made when `after` was the last row, or earlier.
        """
        merger = Merger()
        await self.made()
        while after < to:
            entries, after = await in_thread(read_entries, self._file.path, merger, after, to, turn)
            async for page in pages(self._file.path, entries):
                yield page

    @property
    def last_row(self) -> int:
        """The number of the row that was recorded last. Raises JournalError."""
        return self._last_row()

    async def compact(self, turn: int) -> None:
        """Join the chunks of everything recorded up to the end of `turn`.

        It goes on where it was stopped, also by a crash; every step leaves the same transcript.
        Raises JournalError.
        """
        async with self._compacting:
            to = 0 if self._file.closed else self._last_row()
            while not self._file.closed:
                after = int(self._file.value("SELECT merged_to FROM session"))
                if after >= to:
                    return
                part = await in_thread(read_slice, self._file.path, after, to, turn)
                if part is None or self._readers or self._file.closed:
                    return
                merged_to = ("UPDATE session SET merged_to = ?", (part.last,))
                self._file.rewrite((*_shortened(part), merged_to))

    # -- ids, session info, settings -------------------------------------------------------

    def used_ids(self) -> frozenset[str]:
        """Return every id that this session ever showed its client (P13). Raises JournalError."""
        with journal_errors():
            rows = self._file.db.execute("SELECT id FROM used_ids")
            return frozenset(row[0].decode("utf-8", "surrogatepass") for row in rows)

    def add_ids(self, ids: Iterable[str]) -> None:
        """Add ids to the used ones, if they are new. Raises JournalError as `record` does."""
        sql = "INSERT OR IGNORE INTO used_ids VALUES (?)"
        statements = [(sql, (used.encode("utf-8", "surrogatepass"),)) for used in ids]
        self._file.write_or_keep(Write(tuple(statements)))

    def change_info(self, **changes: Any) -> None:
        """Change fields of `info` and of the file, but not of the index: that is `Journal.touch`.

        Raises as `record` does, and for a text that is no Unicode.
        """
        columns = ", ".join(f"{name} = ?" for name in changes)
        sql = f"UPDATE session SET {columns}"
        self._file.write_or_keep(Write(((sql, tuple(changes.values())),)), key=sql)
        self.info = replace(self.info, **changes)

    def get(self, key: str) -> Any:
        """Return the value kept under a key, or None. Raises JournalError."""
        text: Any = last_value(self._file.to_come, prompt_rows.SET, key)
        if text is None:
            text = self._file.value("SELECT value FROM settings WHERE key = ?", (key,))
        return None if text is None else loads(text)

    def set(self, key: str, value: object) -> None:
        """Keep a JSON value under a key. Raises JournalError as `record` does."""
        statement = prompt_rows.SET, (key, dumps(value).decode())
        self._file.write_or_keep(Write((statement,)), key=(prompt_rows.SET, key))

    def set_usage(self, turn: str, told: Mapping[str, Any]) -> None:
        """Keep what the agent tells of a turn's usage. Raises JournalError as `record` does."""
        self.set(f"{turns.USAGE}{turn}", told)

    def usage(self) -> list[tuple[int, dict[str, Any]]]:
        """Return what the agent told of the usage of each turn, in order of time.

        Each item is the turn's number, 0 outside of any, and what was told. Raises JournalError.
        """
        with journal_errors():
            return turns.usage(self._file.db)

    @property
    def machine(self) -> str:
        """The name of this machine among those that may have the session; empty: no other may."""
        return self._file.machine

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._file.closed

    # -- the file --------------------------------------------------------------------------

    def sync(self) -> Coroutine[Any, Any, None]:
        """Wait until everything that was written before this call is on the disk (invariant K1).

        Calls that wait at the same time share one fsync. Raises JournalError.
        """
        return self._file.sync()

    def checkpoint(self) -> Coroutine[Any, Any, None]:
        """Copy a long WAL, or any after a failed fsync, into the file. Raises JournalError."""
        return self._file.checkpoint()

    async def close(self) -> None:
        """Close the file, which is whole on disk afterwards. Never raises; may be called again."""
        if await self._file.close():
            self._on_closed(self.info.session_id, self._file.unwritten)

    async def _make(self, *statements: Statement) -> None:
        """Execute all statements or none, and wait until it is done. Raises JournalError."""
        self._file.write(Write(statements))
        refused: list[JournalError] = []
        self._file.then(lambda error: refused.extend([error] if error else []))
        await self.made()
        if refused:
            raise refused[0]

    def _last_prompt(self) -> int:
        return int(self._file.value("SELECT coalesce(max(seq), 0) FROM prompts"))

    def _last_row(self) -> int:
        try:
            last = int(self._file.value("SELECT coalesce(max(id), 0) FROM updates"))
        except JournalError:  # it is in a damaged page
            last = int(self._file.value("SELECT merged_to FROM session")) + SALVAGED_ROWS
        return last + self._file.rows_in_flight

    def _take(self, seq: int, write: Write) -> None:
        """Make `write`, which moves the waiting prompt `seq`.

        Raises RuntimeError if the prompt does not wait, as far as the file can say; JournalError.
        """
        if not self._file.kept and not self._file.in_flight:
            self._expect(seq, PromptState.WAITING)
        self._file.write_or_keep(write)

    def _expect(self, seq: int, state: PromptState) -> None:
        found = self._file.value("SELECT state FROM prompts WHERE seq = ?", (seq,))
        if found != state:
            raise RuntimeError(f"prompt {seq} is {found} and not {state}")


def _shortened(part: Slice) -> tuple[Statement, ...]:
    """Return the statements that put the one merged row of a slice in the place of its rows."""
    if not part.shorter:
        return ()
    return (
        ("DELETE FROM updates WHERE id BETWEEN ? AND ?", (part.first, part.last)),
        (
            "INSERT INTO updates(id, turn, lines) VALUES (?, ?, ?)",
            (part.last, part.turn, part.lines),
        ),
    )
