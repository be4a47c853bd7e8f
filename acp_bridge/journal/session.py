"""One session's journal: an SQLite file with one writer, used on the event loop's thread.

Invariants
- A synchronous method has committed when it returns: that survives the death of the process.
  When `sync` returns, everything written before it was called survives a loss of power (K1).
- The order of the calls is the order of the journal; every transition of a prompt is one
  transaction, and doing it again changes nothing (Q7).
- On the loop there are only short writes into the WAL: fsync, checkpoints, reading long things
  and merging happen in worker threads, with connections of their own.
- An outcome, once there, stays; a prompt that has one is never waiting again (Q4).
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio

from acp_bridge.journal.errors import JournalError
from acp_bridge.journal.file import SessionFile
from acp_bridge.journal.history import read_entries, read_slice
from acp_bridge.journal.merge import Merger, dumps, loads, read_object
from acp_bridge.journal.records import PromptRow, PromptState, Recovery, SessionInfo, now
from acp_bridge.journal.schema import journal_errors
from acp_bridge.journal.threads import in_thread

_INSERT: Final = "INSERT INTO updates(turn, lines) VALUES (?, ?)"
_PROMPT: Final = (
    "SELECT seq, prompt_id, params, state, outcome, agent_outcome, accepted_at, ended_at"
    " FROM prompts JOIN prompt_params USING (seq)"
)
#: How far beyond the merged rows to look for more if the end can't be found.
SALVAGED_ROWS: Final = 100_000
logger = logging.getLogger(__name__)


class SessionJournal:
    """The journal of one open session; made by `Journal.create` and `Journal.open`."""

    def __init__(self, file: SessionFile, info: SessionInfo) -> None:
        """Take over a file, and what it says of the session."""
        self.info = info
        self._file = file
        self._compacting = anyio.Lock()
        self._replays = 0

    # -- prompts ---------------------------------------------------------------------------

    def accept(self, prompt_id: str, params: Mapping[str, Any]) -> int:
        """Put a prompt at the end; the same id again gives the same number.

        Acknowledge it only after `sync`. Raises JournalError.
        """
        with self._file.transaction():
            added = self._file.db.execute(
                "INSERT INTO prompts(prompt_id, state, accepted_at) VALUES (?, 'waiting', ?)"
                " ON CONFLICT DO NOTHING",
                (prompt_id, now()),
            )
            if added.rowcount:
                self._file.db.execute(
                    "INSERT INTO prompt_params VALUES (?, ?)", (added.lastrowid, _json(params))
                )
            return int(
                self._file.value("SELECT seq FROM prompts WHERE prompt_id = ?", (prompt_id,))
            )

    def start_turn(self, seq: int, user_updates: Iterable[Mapping[str, Any]]) -> None:
        """A waiting prompt is about to be sent: it opens the transcript of turn `seq`.

        `user_updates` are params of `session/update` (without the session's id). For a prompt
        that is sent already nothing happens.

        Raises:
            RuntimeError: the prompt is held or done: a bug of the caller, nothing is changed.
            JournalError: nothing is changed.
        """
        with self._file.transaction():
            if self._move(seq, PromptState.WAITING, PromptState.SENT):
                lines = b"\n".join(dumps(update) for update in user_updates)
                if lines:
                    self._file.db.execute(_INSERT, (seq, lines))

    def end_prompt(
        self, seq: int, outcome: Mapping[str, Any], agent_outcome: Mapping[str, Any] | None
    ) -> None:
        """What the client was told and what the agent said; of each the first one stays.

        Raises JournalError.
        """
        self._file.write(
            "UPDATE prompts SET state = 'done', outcome = coalesce(outcome, ?),"
            " agent_outcome = coalesce(agent_outcome, ?), ended_at = coalesce(ended_at, ?)"
            " WHERE seq = ?",
            (_json(outcome), None if agent_outcome is None else _json(agent_outcome), now(), seq),
        )

    def release(self, seq: int) -> None:
        """A held prompt waits again, on the user's word. Raises as `start_turn` does."""
        with self._file.transaction():
            self._move(seq, PromptState.HELD, PromptState.WAITING)

    def hold(self, seq: int) -> None:
        """A waiting prompt is held again. Raises as `start_turn` does."""
        with self._file.transaction():
            self._move(seq, PromptState.WAITING, PromptState.HELD)

    def drop(self, seq: int) -> None:
        """A prompt that shall never run. Raises JournalError."""
        self.end_prompt(seq, {"dropped": True}, None)

    def hold_waiting(self) -> None:
        """This bridge ends in order: what waits is held for the next one. Raises JournalError."""
        self._file.write("UPDATE prompts SET state = 'held' WHERE state = 'waiting'")

    def recover(self) -> Recovery:
        """What another bridge left: prompts it had sent are interrupted, waiting ones held (Q6).

        To be called once, by a bridge that has just opened the session. Raises JournalError.
        """
        with self._file.transaction():
            sent = self.prompts(PromptState.SENT)
            self._file.db.execute(
                "UPDATE prompts SET state = 'done', outcome = ?, ended_at = ? WHERE state = 'sent'",
                (_json({"interrupted": True}), now()),
            )
            self._file.db.execute("UPDATE prompts SET state = 'held' WHERE state = 'waiting'")
            interrupted = self._select("WHERE seq IN (%s)", [row.seq for row in sent])
            return Recovery(tuple(self.prompts(PromptState.HELD)), tuple(interrupted))

    def prompts(self, *states: PromptState | str) -> list[PromptRow]:
        """The prompts in these states (none given: all), in order. Raises JournalError."""
        return self._select("WHERE state IN (%s)", [str(s) for s in states or PromptState])

    def turns_finished(self) -> int:
        """How many turns the agent itself has ended (R10). Raises JournalError."""
        return int(self._file.value("SELECT count(*) FROM prompts WHERE agent_outcome IS NOT NULL"))

    # -- updates ---------------------------------------------------------------------------

    def record(self, turn: int, lines: bytes) -> None:
        """One read of the agent's pipe, before it is shown (T2); turn 0 is outside any turn.

        `lines`: params of `session/update` without the session's id, JSON objects, one a line.
        Raises JournalError.
        """
        self._file.write(_INSERT, (turn, lines))

    async def replay(self, *, turn: int | None = None) -> AsyncIterator[list[dict[str, Any]]]:
        """Give the transcript up to the moment of the first step, in pages, messages joined (R1).

        `turn`: only what was recorded in the turn of the prompt with this number. What is recorded
        meanwhile is not part of it. Raises JournalError.
        """
        self._replays += 1  # compaction moves rows: it waits until nobody reads them
        try:
            merger, after, to = Merger(), 0, self._last_row()
            while after < to:
                entries, after = await in_thread(
                    read_entries, self._file.path, merger, after, to, turn
                )
                if page := [entry.params for entry in entries if entry.params is not None]:
                    yield page
        finally:
            self._replays -= 1

    async def compact(self, turn: int) -> None:
        """Join the chunks of everything recorded up to the end of `turn`.

        Goes on where it was stopped, by a crash too; every step leaves the same transcript.
        Raises JournalError.
        """
        async with self._compacting:
            to = 0 if self._file.closed else self._last_row()
            while not self._file.closed:
                after = int(self._file.value("SELECT merged_to FROM session"))
                if after >= to:
                    return
                part = await in_thread(read_slice, self._file.path, after, to, turn)
                if part is None or self._replays or self._file.closed:
                    return
                with self._file.transaction():
                    if part.shorter:
                        self._file.db.execute(
                            "DELETE FROM updates WHERE id BETWEEN ? AND ?", (part.first, part.last)
                        )
                        self._file.db.execute(
                            "INSERT INTO updates(id, turn, lines) VALUES (?, ?, ?)",
                            (part.last, part.turn, part.lines),
                        )
                    self._file.db.execute("UPDATE session SET merged_to = ?", (part.last,))

    # -- small things ----------------------------------------------------------------------

    def used_ids(self) -> frozenset[str]:
        """Every id that this session ever showed its client (P13). Raises JournalError."""
        with journal_errors():
            rows = self._file.db.execute("SELECT id FROM used_ids")
            return frozenset(row[0].decode("utf-8", "surrogatepass") for row in rows)

    def add_ids(self, ids: Iterable[str]) -> None:
        """Remember ids as used; those that are already are no error. Raises JournalError."""
        with self._file.transaction():
            self._file.db.executemany(
                "INSERT OR IGNORE INTO used_ids VALUES (?)",
                [(used.encode("utf-8", "surrogatepass"),) for used in ids],
            )

    def change_info(self, **changes: Any) -> None:
        """Change fields of `info`, here only: see `Journal.touch`. Raises JournalError."""
        if changes:
            columns = {
                key: _json(value) if key == "additional_directories" else value
                for key, value in changes.items()
            }
            self._file.write(
                f"UPDATE session SET {', '.join(f'{key} = ?' for key in columns)}",
                tuple(columns.values()),
            )
            self.info = replace(self.info, **changes)

    def get(self, key: str) -> Any:
        """The value kept under a key, or None. Raises JournalError."""
        text = self._file.value("SELECT value FROM settings WHERE key = ?", (key,))
        return None if text is None else loads(text)

    def set(self, key: str, value: object) -> None:
        """Keep a JSON value under a key. Raises JournalError."""
        self._file.write("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, _json(value)))

    @property
    def closed(self) -> bool:
        """`close` was called."""
        return self._file.closed

    # -- the file --------------------------------------------------------------------------

    async def sync(self) -> None:
        """Return when everything that was written before this call is on the disk (K1).

        Calls that wait at the same time share one fsync. Raises JournalError.
        """
        await self._file.sync()

    async def checkpoint(self) -> None:
        """Move a long WAL into the file: for the end of a turn. Raises JournalError."""
        await self._file.checkpoint()

    async def close(self) -> None:
        """Give the file back; whole on disk afterwards. Never raises; twice is fine."""
        await self._file.close()

    # -- helpers ---------------------------------------------------------------------------

    def _last_row(self) -> int:
        try:
            return int(self._file.value("SELECT coalesce(max(id), 0) FROM updates"))
        except JournalError:  # it is in a damaged page: a bound to look up to
            return int(self._file.value("SELECT merged_to FROM session")) + SALVAGED_ROWS

    def _move(self, seq: int, origin: PromptState, target: PromptState) -> bool:
        """Move a prompt on; False if it is there already. Raises RuntimeError otherwise."""
        row = self._file.db.execute("SELECT state FROM prompts WHERE seq = ?", (seq,)).fetchone()
        if row is None or row[0] not in (origin, target):
            raise RuntimeError(f"prompt {seq}: {row and row[0]} can't become {target}")
        self._file.db.execute("UPDATE prompts SET state = ? WHERE seq = ?", (target, seq))
        return bool(row[0] == origin)

    def _select(self, where: str, values: list[Any]) -> list[PromptRow]:
        with journal_errors():
            marks = ", ".join("?" * len(values))
            rows = self._file.db.execute(
                f"{_PROMPT} {where % marks} ORDER BY seq", values
            ).fetchall()
        return [prompt for row in rows if (prompt := _prompt(row)) is not None]


def _json(value: Any) -> str:
    return dumps(value).decode()


def _prompt(row: tuple[Any, ...]) -> PromptRow | None:
    """None for a damaged row: it hides no other (K2)."""
    seq, prompt_id, params, state, outcome, agent_outcome, accepted_at, ended_at = row
    read = read_object(params)
    if read is None or state not in PromptState.__members__.values():
        logger.warning("journal: prompt %s is damaged", seq)
        return None
    return PromptRow(
        seq=seq,
        prompt_id=prompt_id,
        params=read,
        state=PromptState(state),
        outcome=None if outcome is None else read_object(outcome),
        agent_outcome=None if agent_outcome is None else read_object(agent_outcome),
        accepted_at=accepted_at,
        ended_at=ended_at,
    )
