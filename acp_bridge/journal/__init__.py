"""The journal keeps what was accepted, shown and decided in SQLite (invariants K1 to K4)."""

from acp_bridge.journal.errors import (
    GONE,
    WAL_GONE,
    BadCursor,
    IndexUnusable,
    JournalError,
    NewerVersion,
    UnknownSession,
)
from acp_bridge.journal.records import (
    INTERRUPTED,
    UNSET,
    Owns,
    PromptRow,
    PromptState,
    SessionInfo,
    Unset,
    days_ago,
)
from acp_bridge.journal.session import SessionJournal
from acp_bridge.journal.store import Journal

__all__ = [
    "GONE",
    "INTERRUPTED",
    "UNSET",
    "WAL_GONE",
    "BadCursor",
    "IndexUnusable",
    "Journal",
    "JournalError",
    "NewerVersion",
    "Owns",
    "PromptRow",
    "PromptState",
    "SessionInfo",
    "SessionJournal",
    "UnknownSession",
    "Unset",
    "days_ago",
]
