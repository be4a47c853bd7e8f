"""The rows of prompts in a session's file: statements that change them, and how they are read."""

import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from acp_bridge.journal.left_queue import Went
from acp_bridge.journal.merge import dumps, read_object
from acp_bridge.journal.records import INTERRUPTED, UNRECORDED, PromptRow, PromptState
from acp_bridge.journal.unwritten import INSERT_ROW, Statement, Write
from acp_bridge.journal.words import words_line

_MOVE: Final = "UPDATE prompts SET state = ? WHERE seq = ? AND state = ?"
_END: Final = (
    "UPDATE prompts SET state = 'done', outcome = coalesce(outcome, ?),"
    " agent_outcome = coalesce(agent_outcome, ?) WHERE seq = ?"
)
_READ: Final = (
    "SELECT seq, prompt_id, params, state, outcome, agent_outcome"
    " FROM prompts JOIN prompt_params USING (seq)"
)
logger = logging.getLogger(__name__)


def move(seq: int, origin: PromptState, target: PromptState) -> Statement:
    """Return the statement that moves a prompt; one that is in another state stays."""
    return _MOVE, (target, seq, origin)


def end(seq: int, outcome: Mapping[str, Any], agent_outcome: Mapping[str, Any] | None) -> Statement:
    """Return the statement that ends a prompt; an outcome that it has already stays."""
    own = None if agent_outcome is None else dumps(agent_outcome).decode()
    return _END, (dumps(outcome).decode(), own, seq)


def settle(db: sqlite3.Connection, named: Mapping[int, Went]) -> None:
    """Note what prompts did that their file does not know; raises sqlite3.Error.

    Those that the agent got are `SENT`; if they had ended, with the outcome `UNRECORDED`.
    """
    for row in read(db, (PromptState.WAITING, PromptState.HELD, PromptState.SENT)):
        went = named.get(row.seq, Went.NOTHING)
        if row.state is not PromptState.SENT and Went.SENT in went:
            db.execute(*move(row.seq, row.state, PromptState.SENT))
            db.execute(INSERT_ROW, (row.seq, words_line(row.seq)))
        elif row.state is not PromptState.SENT and went:
            db.execute(*end(row.seq, UNRECORDED, None))
        if Went.ENDED in went:
            outcome = dumps(UNRECORDED).decode()
            db.execute("UPDATE prompts SET outcome = ? WHERE seq = ?", (outcome, row.seq))


def recover(db: sqlite3.Connection, said: Mapping[int, bytes]) -> None:
    """End the turns that ran, with these updates, and hold what waits; raises sqlite3.Error."""
    for seq, lines in said.items():
        db.execute(INSERT_ROW, (seq, lines))
    db.execute(
        "UPDATE prompts SET state = 'done', outcome = coalesce(outcome, ?) WHERE state = 'sent'",
        (dumps(INTERRUPTED).decode(),),
    )
    db.execute("UPDATE prompts SET state = 'held' WHERE state = 'waiting'")


def turns_finished(db: sqlite3.Connection, unwritten: Iterable[Write]) -> int:
    """Count the turns that the agent itself has ended well, also those not written yet.

    Raises sqlite3.Error.
    """
    rows = db.execute("SELECT agent_outcome, seq FROM prompts WHERE agent_outcome IS NOT NULL")
    outcomes: dict[object, Any] = {seq: outcome for outcome, seq in rows}
    for write in unwritten:
        for sql, values in write.statements:
            if sql == _END and values[1]:
                outcomes.setdefault(values[2], values[1])  # the first one stays
    return sum(map(_ended_well, outcomes.values()))


def read(db: sqlite3.Connection, states: Sequence[PromptState]) -> list[PromptRow]:
    """Return the prompts in these states (none given: all), in order. Raises sqlite3.Error."""
    wanted = states or tuple(PromptState)
    marks = ", ".join("?" * len(wanted))
    rows = db.execute(f"{_READ} WHERE state IN ({marks}) ORDER BY seq", wanted).fetchall()
    return [prompt for row in rows if (prompt := _prompt(row)) is not None]


def _ended_well(agent_outcome: str) -> bool:
    """Return False for an error and for `cancelled`; what can't be read counts as ended well."""
    answer = read_object(agent_outcome)
    return answer is None or not ("error" in answer or answer.get("stopReason") == "cancelled")


def _prompt(row: tuple[Any, ...]) -> PromptRow | None:
    """Read a row; None if it is damaged, since it must hide no other (invariant K2)."""
    seq, prompt_id, params, state, outcome, agent_outcome = row
    given = read_object(params)
    if given is None or state not in PromptState.__members__.values():
        logger.warning("journal: prompt %s is damaged", seq)
        return None
    return PromptRow(
        seq=seq,
        prompt_id=prompt_id,
        params=given,
        state=PromptState(state),
        outcome=None if outcome is None else read_object(outcome),
        agent_outcome=None if agent_outcome is None else read_object(agent_outcome),
    )
