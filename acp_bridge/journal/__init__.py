"""The journal keeps what was accepted, shown and decided in SQLite (invariants K1 to K4)."""

from acp_bridge.journal.errors import (
    GONE,
    TAKEN,
    WAL_GONE,
    BadCursor,
    DatabaseAway,
    DatabaseError,
    DatabaseRefuses,
    HeldElsewhere,
    IndexUnusable,
    JournalError,
    NewerVersion,
    SessionExists,
    UnknownSession,
)
from acp_bridge.journal.prompt_rows import sum_of_words
from acp_bridge.journal.records import (
    DROPPED,
    INTERRUPTED,
    UNRECORDED,
    UNSET,
    Owns,
    PromptRow,
    PromptState,
    Receipt,
    SessionInfo,
    Unset,
    days_ago,
)
from acp_bridge.journal.session import SessionJournal
from acp_bridge.journal.store import Journal

__all__ = [
    "DROPPED",
    "GONE",
    "INTERRUPTED",
    "TAKEN",
    "UNRECORDED",
    "UNSET",
    "WAL_GONE",
    "BadCursor",
    "DatabaseAway",
    "DatabaseError",
    "DatabaseRefuses",
    "HeldElsewhere",
    "IndexUnusable",
    "Journal",
    "JournalError",
    "NewerVersion",
    "Owns",
    "PromptRow",
    "PromptState",
    "Receipt",
    "SessionExists",
    "SessionInfo",
    "SessionJournal",
    "UnknownSession",
    "Unset",
    "days_ago",
    "sum_of_words",
]
