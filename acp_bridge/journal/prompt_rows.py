"""The rows of prompts in a session's file: statements that change them, and how they are read."""

import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from acp_bridge.journal.merge import dumps, read_object
from acp_bridge.journal.records import PromptRow, PromptState
from acp_bridge.journal.unwritten import Statement, Write

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


def turns_finished(db: sqlite3.Connection, unwritten: Iterable[Write]) -> int:
    """Count the turns that the agent itself has ended well, also those not written yet.

    Raises sqlite3.Error.
    """
    rows = db.execute("SELECT agent_outcome FROM prompts WHERE agent_outcome IS NOT NULL")
    outcomes = [outcome for (outcome,) in rows]
    for write in unwritten:
        outcomes += [values[1] for sql, values in write.statements if sql == _END and values[1]]
    return sum(map(_ended_well, outcomes))


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
