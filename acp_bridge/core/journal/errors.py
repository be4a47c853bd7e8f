"""The errors of the journal."""

from typing import Final

#: the texts of a JournalError, for the user, when a file was removed, moved or replaced.
GONE: Final = (
    "the file of this session was removed or replaced. Put it back, or go on in a new session"
)
WAL_GONE: Final = (
    "a part of this session's file (-wal) was removed or replaced. Close the session, or start your"
    " editor again, and load it again"
)
#: the text of a JournalError when a bridge of another machine has taken a session of a database.
TAKEN: Final = (
    "another machine has taken up this session, because for the database this machine was gone. So"
    " the agent here was ended. Close the session, and load it again where it is open"
)


#: the same when the database does not have it, or says that no bridge has it.
UNKNOWN_THERE: Final = (
    "the database no longer knows that this machine has the session: it was deleted there, or the"
    " database was put back to an earlier state. Close the session, and load it again"
)


class JournalError(Exception):
    """The journal could not be read or written: disk full, read-only, corrupt, closed.

    The cause is chained and is for the log only. What was stored before is whole, and the
    journal stays usable: the next write may work.
    """


class DiskTrouble(JournalError):
    """A disk is full, or fails. The text is for the user: which folder, on which disk."""


class NewerVersion(JournalError):
    """The file was written by a newer acp-bridge and is left as it is.

    The text names the file's version and the one that this acp-bridge knows.
    """


class IndexUnusable(JournalError):
    """The list of sessions can't be used. The text is for the user: why, and what to do.

    Every session can be used all the same.
    """


class SessionExists(JournalError):
    """A session can't be made, since there is one of its id already."""

    def __init__(self) -> None:
        super().__init__("the session exists already")


class UnknownSession(JournalError):
    """There is no session of this id (invariant R2)."""

    def __init__(self, why: str = "its file is gone or empty") -> None:
        """`why`: the text for the user."""
        super().__init__(why)


class SessionTaken(JournalError):
    """The database says that this bridge does not have the session any more. That is for good."""

    def __init__(self, why: str = TAKEN) -> None:
        """`why`: the text for the user."""
        super().__init__(why)


class DatabaseError(JournalError):
    """The database can't be used, for some time or until somebody changes something.

    The text is for the user.
    """


class DatabaseAway(DatabaseError):
    """The database can't be used now; a later try may work."""


class DatabaseSilent(DatabaseAway):
    """The database has not answered in time. It may have done what it was asked for, or do it."""


class DatabaseRefuses(DatabaseError):
    """The database can't be used until somebody changes something: the text says what."""


class StatementRefused(DatabaseError):
    """The database refuses a statement, perhaps for what it holds."""


class Incomplete(JournalError):
    """The database has lost a part of a session. The text is for the user."""

    def __init__(self, what: str) -> None:
        """`what`: the part that is missing."""
        super().__init__(
            f"the database has lost a part of this session: {what}. Nothing was changed. Restore"
            " the database from a backup. The machine that had the session last may have a whole"
            " copy: `acp-bridge show` reads that with --home (docs/postgres.md)"
        )


class HeldElsewhere(JournalError):
    """A bridge of another machine has the session."""

    def __init__(self, machine: str, address: str | None = None) -> None:
        """`machine` is that machine's name, `address` where its bridge is reached, if anywhere."""
        self.machine, self.address = machine, address
        super().__init__(
            f"the session is open on the machine {machine}: close it there, or wait until its"
            " bridge has not reached the database for the time of its lease"
        )


class BadCursor(ValueError):
    """The cursor of a listing was not given out by this journal."""


class ForUser(str):
    """A reason that the user is told as it is."""

    __slots__ = ()


def told(error: JournalError) -> str:
    """Return the text of an error; it is a ForUser if the user has to know or do something."""
    if isinstance(error, DatabaseError | SessionTaken | DiskTrouble):
        return ForUser(str(error).removeprefix("the journal failed: "))
    return str(error)
