"""The journal keeps what was accepted, shown and decided in SQLite (invariants K1 to K4)."""

from acp_bridge.journal.errors import BadCursor, JournalError, UnknownSession
from acp_bridge.journal.records import (
    UNSET,
    PromptRow,
    PromptState,
    SessionInfo,
    SessionRow,
    Unset,
)
from acp_bridge.journal.session import SessionJournal
from acp_bridge.journal.store import Journal

__all__ = [
    "UNSET",
    "BadCursor",
    "Journal",
    "JournalError",
    "PromptRow",
    "PromptState",
    "SessionInfo",
    "SessionJournal",
    "SessionRow",
    "UnknownSession",
    "Unset",
]
