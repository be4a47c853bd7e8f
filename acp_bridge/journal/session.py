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

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio

from acp_bridge.journal.errors import JournalError
from acp_bridge.journal.file import SessionFile
from acp_bridge.journal.history import read_entries, read_slice
from acp_bridge.journal.merge import Merger, dumps, loads, read_object
from acp_bridge.journal.records import PromptRow, PromptState, SessionInfo
from acp_bridge.journal.schema import journal_errors
from acp_bridge.journal.threads import in_thread

_INSERT: Final = "INSERT INTO updates(turn, lines) VALUES (?, ?)"
_PROMPT: Final = (
    "SELECT seq, prompt_id, params, state, outcome, agent_outcome"
    " FROM prompts JOIN prompt_params USING (seq)"
)
#: If the last row can't be read, so many rows after the merged ones are looked through.
SALVAGED_ROWS: Final = 100_000
logger = logging.getLogger(__name__)


class SessionJournal:
    """The journal of one open session; made by `Journal.create` and `Journal.open`."""

    def __init__(self, file: SessionFile, info: SessionInfo) -> None:
        """Take over an open file; `info` is what it says of the session."""
        self.info = info
        self._file = file
        self._compacting = anyio.Lock()
        self._replays = 0

    # -- prompts ---------------------------------------------------------------------------

    def accept(self, prompt_id: str, params: Mapping[str, Any]) -> int:
        """Put a prompt at the end of the queue; returns its number.

        Acknowledge it only after `sync`. Raises JournalError, also for an id that was used before.
        """
        with self._file.transaction():
            added = self._file.db.execute(
                "INSERT INTO prompts(prompt_id, state) VALUES (?, 'waiting')", (prompt_id,)
            )
            self._file.db.execute(
                "INSERT INTO prompt_params VALUES (?, ?)", (added.lastrowid, _json(params))
            )
            assert added.lastrowid is not None
            return added.lastrowid

    def start_turn(self, seq: int, user_updates: Iterable[Mapping[str, Any]]) -> None:
        """Note that a waiting prompt is about to be sent, and open the transcript of turn `seq`.

        `user_updates` are params of `session/update` (without the session's id).

        Raises:
            RuntimeError: the prompt does not wait: a bug of the caller, nothing is changed.
            JournalError: nothing is changed.
        """
        with self._file.transaction():
            self._move(seq, PromptState.WAITING, PromptState.SENT)
            lines = b"\n".join(dumps(update) for update in user_updates)
            if lines:
                self._file.db.execute(_INSERT, (seq, lines))

    def end_prompt(
        self, seq: int, outcome: Mapping[str, Any], agent_outcome: Mapping[str, Any] | None
    ) -> None:
        """Keep what the client was told and what the agent said; of each the first one stays.

        Raises JournalError.
        """
        self._file.write(
            "UPDATE prompts SET state = 'done', outcome = coalesce(outcome, ?),"
            " agent_outcome = coalesce(agent_outcome, ?) WHERE seq = ?",
            (_json(outcome), None if agent_outcome is None else _json(agent_outcome), seq),
        )

    def release(self, seq: int) -> None:
        """Let a held prompt wait again, on the user's word. Raises as `start_turn` does."""
        with self._file.transaction():
            self._move(seq, PromptState.HELD, PromptState.WAITING)

    def hold(self, seq: int) -> None:
        """Hold a waiting prompt. Raises as `start_turn` does."""
        with self._file.transaction():
            self._move(seq, PromptState.WAITING, PromptState.HELD)

    def drop(self, seq: int) -> None:
        """End a prompt that shall never run. Raises JournalError."""
        self.end_prompt(seq, {"dropped": True}, None)

    def recover(self) -> list[PromptRow]:
        """Take over from another bridge; returns the prompts that are held, in order (Q6).

        Prompts that it had sent are done, with the outcome `{"interrupted": true}`; those that
        waited are held. To be called once, after the session was opened. Raises JournalError.
        """
        with self._file.transaction():
            self._file.db.execute(
                "UPDATE prompts SET state = 'done', outcome = ? WHERE state = 'sent'",
                (_json({"interrupted": True}),),
            )
            self._file.db.execute("UPDATE prompts SET state = 'held' WHERE state = 'waiting'")
            return self.prompts(PromptState.HELD)

    def prompts(self, *states: PromptState) -> list[PromptRow]:
        """Return the prompts in these states (none given: all), in order. Raises JournalError."""
        wanted = states or tuple(PromptState)
        marks = ", ".join("?" * len(wanted))
        with journal_errors():
            rows = self._file.db.execute(
                f"{_PROMPT} WHERE state IN ({marks}) ORDER BY seq", wanted
            ).fetchall()
        return [prompt for row in rows if (prompt := _prompt(row)) is not None]

    def turns_finished(self) -> int:
        """Count the turns that the agent itself has ended well (invariant R10).

        One that ended with an error, or cancelled, does not count: an agent may keep nothing of it.
        Raises JournalError.
        """
        with journal_errors():
            rows = self._file.db.execute(
                "SELECT agent_outcome FROM prompts WHERE agent_outcome IS NOT NULL"
            ).fetchall()
        return sum(_ended_well(outcome) for (outcome,) in rows)

    # -- updates ---------------------------------------------------------------------------

    def record(self, turn: int, lines: bytes) -> None:
        """Record one read of the agent's pipe before it is shown (T2); turn 0 is outside any turn.

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

    # -- ids, session info, settings -------------------------------------------------------

    def used_ids(self) -> frozenset[str]:
        """Return every id that this session ever showed its client (P13). Raises JournalError."""
        with journal_errors():
            rows = self._file.db.execute("SELECT id FROM used_ids")
            return frozenset(row[0].decode("utf-8", "surrogatepass") for row in rows)

    def add_ids(self, ids: Iterable[str]) -> None:
        """Remember ids as used; one may be so already. Raises JournalError."""
        with self._file.transaction():
            self._file.db.executemany(
                "INSERT OR IGNORE INTO used_ids VALUES (?)",
                [(used.encode("utf-8", "surrogatepass"),) for used in ids],
            )

    def change_info(self, **changes: Any) -> None:
        """Change fields of `info`, not in the index: see `Journal.touch`. Raises JournalError."""
        columns = ", ".join(f"{name} = ?" for name in changes)
        self._file.write(f"UPDATE session SET {columns}", tuple(changes.values()))
        self.info = replace(self.info, **changes)

    def get(self, key: str) -> Any:
        """Return the value kept under a key, or None. Raises JournalError."""
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
        """Return when everything that was written before this call is on the disk (invariant K1).

        Calls that wait at the same time share one fsync. Raises JournalError.
        """
        await self._file.sync()

    async def checkpoint(self) -> None:
        """Move a long WAL into the file, at the end of a turn. Raises JournalError."""
        await self._file.checkpoint()

    async def close(self) -> None:
        """Close the file, which is whole on disk afterwards. Never raises; may be called again."""
        await self._file.close()

    # -- helpers ---------------------------------------------------------------------------

    def _last_row(self) -> int:
        try:
            return int(self._file.value("SELECT coalesce(max(id), 0) FROM updates"))
        except JournalError:  # it is in a damaged page
            return int(self._file.value("SELECT merged_to FROM session")) + SALVAGED_ROWS

    def _move(self, seq: int, origin: PromptState, target: PromptState) -> None:
        """Move a prompt from one state to another; RuntimeError if it is not in the first."""
        moved = self._file.db.execute(
            "UPDATE prompts SET state = ? WHERE seq = ? AND state = ?", (target, seq, origin)
        )
        if not moved.rowcount:
            raise RuntimeError(f"prompt {seq} is not {origin} and can't become {target}")


def _json(value: Any) -> str:
    return dumps(value).decode()


def _ended_well(agent_outcome: str) -> bool:
    """Return False for an error and for `cancelled`; what can't be read counts as ended well."""
    answer = read_object(agent_outcome)
    return answer is None or not ("error" in answer or answer.get("stopReason") == "cancelled")


def _prompt(row: tuple[Any, ...]) -> PromptRow | None:
    """Read a row; None if it is damaged, since it must hide no other (invariant K2)."""
    seq, prompt_id, params, state, outcome, agent_outcome = row
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
    )
