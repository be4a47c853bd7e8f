"""The rows of prompts in a session's file: statements that change them, and how they are read.

In the transcript a line stands for the words of a prompt, which are kept once, with its parameters:
they may be megabytes of images. Short words are read with the page in which they stand, long ones
one prompt at a time (R6). Words that are damaged hide nothing else (invariant K2).
"""

import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from acp_bridge.core.journal.connection import connect, in_thread, is_damage, journal_errors
from acp_bridge.core.journal.file import INSERT_ROW, Statement, Write
from acp_bridge.core.journal.left_queue import Went
from acp_bridge.core.journal.merge import Entry
from acp_bridge.core.journal.records import (
    INTERRUPTED,
    UNRECORDED,
    PromptRow,
    PromptState,
    Receipt,
    now,
)
from acp_bridge.core.protocol import of_prompt, prompt_key, words_of
from acp_bridge.core.records import replace
from acp_bridge.core.wire.jsonrpc import dumps, loads, read_object

_MOVE: Final = "UPDATE prompts SET state = ? WHERE seq = ? AND state = ?"
_END: Final = (
    "UPDATE prompts SET state = 'done', outcome = coalesce(outcome, ?),"
    " agent_outcome = coalesce(agent_outcome, ?) WHERE seq = ?"
)
_READ: Final = (
    "SELECT seq, prompt_id, params, state, outcome, agent_outcome"
    " FROM prompts JOIN prompt_params USING (seq)"
)
SET: Final = "INSERT OR REPLACE INTO settings VALUES (?, ?)"
_UNSENT: Final = (PromptState.WAITING, PromptState.LEFT_OVER)
logger = logging.getLogger(__name__)


SHORT_WORDS: Final = 2048
"""The most characters of a prompt's parameters that are read with the page of its words."""

#: the setting that has the user's order of prompts that wait: a list of their numbers.
ORDER: Final = "order"

#: how the keys of settings begin that have the receipts of prompts which were sent under a key.
#: Older bridges leave such settings alone.
_SENT_UNDER: Final = "promptKey:"

#: how the keys of settings begin that have when the turn of a prompt began, and when it ended; the
#: prompt's number follows.
BEGAN: Final = "turnBegan:"
ENDED: Final = "turnEnded:"

#: the one key of a line that stands for a prompt's words; an update never has it alone.
_WORDS: Final = "prompt"


def words_line(seq: int) -> bytes:
    """Return the line that stands in the transcript for the words of a prompt."""
    return dumps({_WORDS: seq})


def prompt_of(params: dict[str, Any]) -> int | None:
    """Return the number of the prompt for whose words a line stands; None for an update."""
    seq = params.get(_WORDS)
    return seq if len(params) == 1 and type(seq) is int else None


async def pages(path: Path, entries: list[Entry]) -> AsyncIterator[list[dict[str, Any]]]:
    """Give a page of a transcript as lists of params.

    A list ends, and another begins, where the long words of a prompt stand: they are read there.

    Raises:
        JournalError: the file can't be opened.
    """
    page: list[dict[str, Any]] = []
    for entry in entries:
        if (params := entry.params) is None:
            continue
        if (seq := prompt_of(params)) is None:
            page.append(params)
            continue
        if page:
            yield page
        page = await in_thread(read_words, path, seq)
    if page:
        yield page


def read_words(path: Path, seq: int, *, read_only: bool = False) -> list[dict[str, Any]]:
    """Return a prompt's words as updates; none if they are damaged (invariant K2).

    Raises:
        JournalError: the file can't be opened.
    """
    with journal_errors(), closing(connect(path, wait=5, read_only=read_only)) as connection:
        found = words_in(connection, [seq])
    if seq not in found:
        logger.warning("journal: the words of prompt %d are damaged", seq)
    return found.get(seq, [])


def with_short_words(path: Path, entries: list[Entry]) -> list[Entry]:
    """Return the entries with short words of prompts in the place of the lines that stand for them.

    A line that stands for long words is left as it is: `pages` reads those.
    """
    seqs = [seq for entry in entries if entry.params and (seq := prompt_of(entry.params))]
    if not seqs:
        return entries
    with journal_errors(), closing(connect(path, wait=5)) as connection:
        words = words_in(connection, seqs, limit=SHORT_WORDS)
    spread: list[Entry] = []
    for entry in entries:
        seq = prompt_of(entry.params) if entry.params else None
        if seq in words:
            spread += [Entry(None, params) for params in words[seq]]
        else:
            spread.append(entry)
    return spread


def words_in(
    connection: sqlite3.Connection, seqs: list[int], limit: int | None = None
) -> dict[int, list[dict[str, Any]]]:
    """Return the words of some prompts as updates, by the prompt's number.

    A prompt is left out if its parameters are damaged, or longer than `limit` characters. Each
    update is marked with its prompt's id.
    """
    marks = ", ".join("?" * len(seqs))
    try:
        rows = connection.execute(
            "SELECT seq, params, prompt_id FROM prompt_params LEFT JOIN prompts USING (seq)"
            f" WHERE seq IN ({marks})"
            " AND (? IS NULL OR length(params) <= ?)",
            (*seqs, limit, limit),
        ).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return {}
    found = {}
    for seq, text, prompt_id in rows:
        params = read_object(text)
        if params is not None:
            found[seq] = [of_prompt(each, prompt_id) for each in words_of(params)]
    return found


def accept(seq: int, prompt_id: str, params: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Return the statements that add a waiting prompt, and bind its key, if it has one, to it."""
    statements: list[Statement] = [
        ("INSERT INTO prompts(seq, prompt_id, state) VALUES (?, ?, 'waiting')", (seq, prompt_id)),
        ("INSERT INTO prompt_params VALUES (?, ?)", (seq, dumps(params).decode())),
    ]
    if (key := prompt_key(dict(params))) is not None:
        statements.append(give_receipt(key, seq, params))
    return tuple(statements)


def move(seq: int, origin: PromptState, target: PromptState) -> Statement:
    """Return the statement that moves a prompt from one state to another, if it is in the first."""
    return _MOVE, (target, seq, origin)


def change(seq: int, params: Mapping[str, Any]) -> Statement:
    """Return the statement that gives a prompt other parameters."""
    return "UPDATE prompt_params SET params = ? WHERE seq = ?", (dumps(params).decode(), seq)


def sum_of_words(params: Mapping[str, Any]) -> str:
    """Return a checksum of a prompt's words, the same for any order of the members of an object.

    It is made of the words as JSON, so any text has one, lone surrogates too.
    """
    return sha256(json.dumps(params["prompt"], sort_keys=True).encode()).hexdigest()


def receipt_key(key: str) -> str:
    """Return the key of the setting that has the receipt of the prompt sent under `key`."""
    return _SENT_UNDER + dumps(key).decode()


def give_receipt(key: str, seq: int, params: Mapping[str, Any]) -> Statement:
    """Return the statement that binds a key to a new prompt; it fails for a key that is bound."""
    receipt = dumps({"seq": seq, "words": sum_of_words(params)}).decode()
    return "INSERT INTO settings VALUES (?, ?)", (receipt_key(key), receipt)


def take_receipt_back(key: str) -> Statement:
    """Return the statement that frees a key: its prompt was not taken after all."""
    return "DELETE FROM settings WHERE key = ?", (receipt_key(key),)


def answer_receipt(key: str, receipt: Receipt, told: Mapping[str, Any]) -> Statement:
    """Return the statement that notes in a receipt what the clients of its prompt are told."""
    answered = {"seq": receipt.seq, "words": receipt.words, "told": told}
    given = dumps(answered).decode(), receipt_key(key)
    return "UPDATE settings SET value = ? WHERE key = ?", given


def read_receipt(text: str) -> Receipt | None:
    """Return the receipt that a setting holds; None if it is damaged."""
    match read_object(text):
        case {"seq": int(seq), "words": str(words), **more}:
            told = more.get("told")
            return Receipt(seq, words, told if isinstance(told, dict) else None)
    return None


def end(seq: int, outcome: Mapping[str, Any], agent_outcome: Mapping[str, Any] | None) -> Statement:
    """Return the statement that ends a prompt; an outcome that it has already stays."""
    own = None if agent_outcome is None else dumps(agent_outcome).decode()
    return _END, (dumps(outcome).decode(), own, seq)


def began(seq: int) -> Statement:
    """Return the statement that notes that the turn of a prompt begins now."""
    return SET, (f"{BEGAN}{seq}", dumps(now()).decode())


def ended(seq: int) -> Statement:
    """Return the statement that notes that a prompt has ended now."""
    return SET, (f"{ENDED}{seq}", dumps(now()).decode())


def settle(rows: Iterable[PromptRow], named: Mapping[int, Went]) -> list[Statement]:
    """Return the statements that note what `named` says became of prompts that have not ended.

    Prompts that the agent got become `SENT`; those that had ended get the outcome `UNRECORDED`.
    """
    statements: list[Statement] = []
    for row in rows:
        went = named.get(row.seq, Went.NOTHING)
        if row.state is not PromptState.SENT and Went.SENT in went:
            statements.append(move(row.seq, row.state, PromptState.SENT))
            statements.append((INSERT_ROW, (row.seq, words_line(row.seq))))
        elif row.state is not PromptState.SENT and went:
            statements.append(end(row.seq, UNRECORDED, None))
        if Went.ENDED in went:
            outcome = dumps(UNRECORDED).decode()
            statements.append(("UPDATE prompts SET outcome = ? WHERE seq = ?", (outcome, row.seq)))
    return statements


def recover(said: Mapping[int, bytes]) -> list[Statement]:
    """Return the statements that end the turns that ran, and leave waiting prompts over.

    `said`: by prompt's number, the lines of updates that end its transcript.
    """
    interrupted = dumps(INTERRUPTED).decode()
    return [
        *((INSERT_ROW, (seq, lines)) for seq, lines in said.items()),
        (
            "UPDATE prompts SET state = 'done', outcome = coalesce(outcome, ?)"
            " WHERE state = 'sent'",
            (interrupted,),
        ),
        ("UPDATE prompts SET state = 'held' WHERE state = 'waiting'", ()),
    ]


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
    """Return the prompts in these states (none given: all), by number; raises sqlite3.Error.

    Prompts that wait or are left over come in the user's order. Damaged ones are left out.
    """
    wanted = states or tuple(PromptState)
    marks = ", ".join("?" * len(wanted))
    rows = db.execute(f"{_READ} WHERE state IN ({marks}) ORDER BY seq", wanted).fetchall()
    return _in_order(db, [prompt for row in rows if (prompt := _prompt(row)) is not None])


def find(db: sqlite3.Connection, unwritten: Iterable[Write], seq: int) -> PromptRow | None:
    """Return the prompt `seq`, with its outcome if only `unwritten` has that; None if damaged.

    Raises sqlite3.Error.
    """
    row = db.execute(f"{_READ} WHERE seq = ?", (seq,)).fetchone()
    prompt = _prompt(row) if row else None
    for sql, values in (each for write in unwritten for each in write.statements):
        if prompt and prompt.outcome is None and sql == _END and values[2] == seq:
            outcome = read_object(str(values[0]))
            prompt = replace(prompt, state=PromptState.DONE, outcome=outcome)
    return prompt


def _in_order(db: sqlite3.Connection, rows: list[PromptRow]) -> list[PromptRow]:
    """Put the rows of prompts that the user has moved into the user's order.

    They share the places in the list that they have together; all others keep theirs.
    """
    here = {row.seq: row for row in rows if row.state in _UNSENT}
    moved = [here[seq] for seq in dict.fromkeys(_order(db)) if seq in here] if here else []
    seqs = {row.seq for row in moved}
    places = [at for at, row in enumerate(rows) if row.seq in seqs]
    for at, row in zip(places, moved, strict=True):
        rows[at] = row
    return rows


def _order(db: sqlite3.Connection) -> list[int]:
    """Read the user's order; what is damaged orders nothing (invariant K2)."""
    try:
        kept = db.execute("SELECT value FROM settings WHERE key = ?", (ORDER,)).fetchone()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        kept = None
    found = loads(kept[0]) if kept else None
    return [seq for seq in found if type(seq) is int] if isinstance(found, list) else []


def _ended_well(agent_outcome: str) -> bool:
    """Return False for an outcome that is an error or `cancelled`; a damaged one counts as good."""
    answer = read_object(agent_outcome)
    return answer is None or not ("error" in answer or answer.get("stopReason") == "cancelled")


def _prompt(row: tuple[Any, ...]) -> PromptRow | None:
    """Return the prompt of a row; None if it is damaged, which hides no other (invariant K2)."""
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
