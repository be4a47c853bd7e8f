"""The errors of the journal."""

from typing import Final

#: the text of a JournalError when a file, or a folder above it, was removed, moved or replaced.
GONE: Final = "the file is gone"


class JournalError(Exception):
    """The journal could not be read or written: disk full, read-only, corrupt, closed.

    The cause is chained and is for the log only. What was stored before is whole, and the
    journal stays usable: the next write may work.
    """


class NewerVersion(JournalError):
    """The file was written by a newer acp-bridge; it is left as it is. The text names both."""


class IndexUnusable(JournalError):
    """The list of sessions can't be used. The text is for the user: why, and what to do.

    Every session can be used all the same.
    """


class UnknownSession(JournalError):
    """No session of this id is kept here (invariant R2)."""


class BadCursor(ValueError):
    """The cursor of a listing was not given out by this journal."""
