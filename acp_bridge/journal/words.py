"""The words of a prompt in the transcript: a line that stands for them, and its replacement.

- The words are kept once, with the prompt's parameters: they may be megabytes of images.
- Short ones are read with the page in which they stand; long ones one prompt at a time (R6).
- Words that are damaged hide nothing else (invariant K2).
"""

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from acp_bridge.journal.merge import Entry, dumps, read_object
from acp_bridge.journal.schema import connect, is_damage, journal_errors
from acp_bridge.journal.threads import in_thread
from acp_bridge.protocol import words_of

SHORT_WORDS: Final = 2048
"""Characters of a prompt's parameters that are read with the page in which its words stand."""

#: the one key of a line that stands for a prompt's words; an update never has it alone.
_WORDS: Final = "prompt"

logger = logging.getLogger(__name__)


def words_line(seq: int) -> bytes:
    """Return the line that stands in the transcript for the words of a prompt."""
    return dumps({_WORDS: seq})


def prompt_of(params: dict[str, Any]) -> int | None:
    """Return the number of the prompt whose words belong here; None for an update."""
    seq = params.get(_WORDS)
    return seq if len(params) == 1 and type(seq) is int else None


async def pages(path: Path, entries: list[Entry]) -> AsyncIterator[list[dict[str, Any]]]:
    """Give a page of a transcript, divided where long words stand: those are read apart.

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
        found = _read_words(connection, [seq], limit=None)
    if seq not in found:
        logger.warning("journal: the words of prompt %d are damaged", seq)
    return found.get(seq, [])


def with_short_words(path: Path, entries: list[Entry]) -> list[Entry]:
    """Put short words where they belong; long ones are read apart, each as a page of its own."""
    seqs = [seq for entry in entries if entry.params and (seq := prompt_of(entry.params))]
    if not seqs:
        return entries
    with journal_errors(), closing(connect(path, wait=5)) as connection:
        words = _read_words(connection, seqs, limit=SHORT_WORDS)
    spread: list[Entry] = []
    for entry in entries:
        seq = prompt_of(entry.params) if entry.params else None
        if seq in words:
            spread += [Entry(None, params) for params in words[seq]]
        else:
            spread.append(entry)
    return spread


def _read_words(
    connection: sqlite3.Connection, seqs: list[int], limit: int | None
) -> dict[int, list[dict[str, Any]]]:
    """Return the words of those prompts whose parameters are readable and not over the limit."""
    marks = ", ".join("?" * len(seqs))
    try:
        rows = connection.execute(
            f"SELECT seq, params FROM prompt_params WHERE seq IN ({marks})"
            " AND (? IS NULL OR length(params) <= ?)",
            (*seqs, limit, limit),
        ).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return {}
    found = {}
    for seq, text in rows:
        params = read_object(text)
        if params is not None:
            found[seq] = words_of(params)
    return found
