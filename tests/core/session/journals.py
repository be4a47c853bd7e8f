"""A session's journal as a test sees it: what was recorded, and writes that fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from acp_bridge.core.journal import PromptState, SessionJournal
from acp_bridge.core.protocol import without_prompt_id

Json = dict[str, Any]


async def recorded(journal: SessionJournal) -> list[Json]:
    """Return the transcript as a load would read it."""
    return [without_prompt_id(each) async for page in journal.replay() for each in page]


async def recorded_texts(journal: SessionJournal) -> list[str]:
    """Return the texts of the recorded messages."""
    return [params["update"]["content"]["text"] for params in await recorded(journal)]


def states(journal: SessionJournal) -> list[PromptState]:
    """Return the states of all prompts, in their order."""
    return [row.state for row in journal.prompts()]


@contextmanager
def failing(journal: SessionJournal, write: str) -> Iterator[None]:
    """Let one kind of write fail inside the block: "INSERT ON updates", say."""
    db = journal._file.db
    db.execute(f"CREATE TRIGGER full BEFORE {write} BEGIN SELECT RAISE(ABORT, 'full'); END")
    try:
        yield
    finally:
        db.execute("DROP TRIGGER full")


@contextmanager
def unreadable(journal: SessionJournal, table: str) -> Iterator[None]:
    """Let a table be gone inside the block."""
    db = journal._file.db
    db.execute(f"ALTER TABLE {table} RENAME TO lost")
    try:
        yield
    finally:
        db.execute(f"ALTER TABLE lost RENAME TO {table}")
