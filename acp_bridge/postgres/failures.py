"""What an error of psycopg means for the journal, and what a person is told of it.

Invariants
- No error says that another bridge has a session: only the session's row does (`log.fence`).
- A lasting refusal is a `DatabaseRefuses`, a passing error a `DatabaseAway`. A session that is open
  waits for both alike. The difference is for a person who opens one.
- The server's own text might hold a host, a path or a secret, so it is only chained, for the log.
"""

import re
from typing import Final

import psycopg

from acp_bridge.core.journal.errors import (
    DatabaseAway,
    DatabaseRefuses,
    JournalError,
    StatementRefused,
)
from acp_bridge.postgres import tables

_FAILED: Final = "the journal failed: "
#: the first characters of an SQLSTATE, and what a person is told of it: of errors that may pass.
_AWAY: Final = {
    "08": "the database can't be reached",
    "57": "the database stopped what it was doing",
    "57P": "the database is shutting down or starting",
    "53100": "the disk of the database is full",
    "53": "the database has no room for this now",
    "55P03": "the database was held by another for too long",
    "40": "the database was held by another for too long",
    "25P": "the database was left waiting for too long",
}
#: the texts of a DatabaseAway without an error of the database: nothing is known; the log of a
#: session in the database goes on otherwise than here, which nobody but a person can have done.
UNREACHED: Final = _FAILED + _AWAY["08"]
OTHERS: Final = f"{_FAILED}the database has other writes of this session than this machine"
#: no SQLSTATEs: the way to the database is not safe, for these reasons.
_UNSAFE, _OTHER_NAME, _UNSIGNED = "unsafe", "other name", "unsigned"
#: no SQLSTATE: the database is closed for everybody.
_CLOSED: Final = "closed"
#: no SQLSTATEs: what a pooler before the database does not do.
_STARTUP, _STATEMENTS = "startup", "statements"
#: the same of errors that stay until somebody changes something.
_REFUSED: Final = {
    "28": "the database refused the login: look at .pgpass or PGPASSWORD, and at the user's name",
    "3D000": "there is no such database: make it first, for example with createdb",
    _CLOSED: "the database takes no connections: an administrator can allow them with ALTER"
    " DATABASE ... ALLOW_CONNECTIONS true",
    "42501": "the database's user may not do this: it must be able to make a schema, or own it",
    "25006": "the database can only be read: it might be a copy of another server, or set to"
    " read-only (default_transaction_read_only)",
    "3F000": "the tables of the journal are missing: was the schema acp_bridge renamed or removed?",
    "42P01": "the tables of the journal are missing: was the schema acp_bridge renamed or removed?",
    _UNSAFE: "the way to the database is not as safe as sslmode asks for",
    _OTHER_NAME: "the server's certificate is for another name: give the server the name in the"
    " certificate",
    _UNSIGNED: "the server's certificate can't be verified: sslrootcert must name the certificate"
    " that has signed it",
    _STARTUP: "a pooler before the database (such as pgbouncer) refuses a startup parameter: list"
    " it in ignore_startup_parameters",
    _STATEMENTS: "a pooler before the database (such as pgbouncer) allows no transactions: its"
    " pool_mode must be session or transaction",
}
#: the first characters of SQLSTATEs that a statement may have for what it holds.
_OF_CONTENT: Final = ("21", "22", "23", "44", "54", "P0")
#: the SQLSTATE of an error which leaves open what became of the statement.
_UNKNOWN: Final = "40003"
#: libpq gives no SQLSTATE while it connects, and poolers give one for everything: so it is read
#: from what they say in English. Of a server with another language the database is away.
_SAID: Final = tuple(
    (re.compile(pattern), state)
    for pattern, state in (
        (r"unsupported startup parameter", _STARTUP),
        (r"statement pooling", _STATEMENTS),
        (r"does not match host name", _OTHER_NAME),
        (r"certificate verify failed|root certificate|root\.crt", _UNSIGNED),
        (r"authentication failed|valid client certificate|pg_hba\.conf|permitted to log", "28"),
        (r"role .+ does not exist", "28"),
        (r"SSL was required|SSL required|SSL error|private key|certificate", _UNSAFE),
        (r"database .+ does not exist|no such database", "3D000"),
        (r"not currently accepting connections", _CLOSED),
        (r"permission denied for database", "42501"),
        (r"no such user|no authentication|(?:user|scram).* not supported|auth failed", "28"),
        (r"too many (clients|connections)|connection slots|no more connections", "53300"),
        (r"database system is|server_login_retry|query_wait_timeout", "57P03"),
        (r"session is read-only|hot standby mode|is in recovery", "25006"),
    )
)
#: a name in that: of a host, a user, a database or a file. It may be any word.
_NAMED: Final = re.compile(r'"[^"\n]*"')
#: the SQLSTATE of a violated protocol, which poolers give for what a server has another one for.
_PROTOCOL: Final = "08P01"


def failure(error: psycopg.Error) -> JournalError:
    """Return the JournalError to raise for an error of psycopg, without the server's text.

    It is a DatabaseRefuses if it stays until somebody changes something, a StatementRefused if
    what the statement holds may be the reason, else a DatabaseAway.
    """
    if newer := tables.newer(error):
        return newer
    state = error.sqlstate or ""
    if state in ("", _PROTOCOL):
        state = _said(error) or state
    for kind, known in ((DatabaseAway, _AWAY), (DatabaseRefuses, _REFUSED)):
        for start in sorted(known, key=len, reverse=True):
            if state.startswith(start):
                return kind(_FAILED + known[start])
    if state.startswith(_OF_CONTENT) or isinstance(error, psycopg.DataError):
        return StatementRefused(
            f"{_FAILED}the database refuses what is to be written ({_code(error)})"
        )
    if not state and isinstance(error, psycopg.OperationalError):
        return DatabaseAway(UNREACHED)
    return DatabaseAway(f"{_FAILED}the database reports an error ({_code(error)})")


def _code(error: psycopg.Error) -> str:
    return " ".join(filter(None, (type(error).__name__, error.sqlstate)))


def _said(error: psycopg.Error) -> str:
    if error.pgconn is not None and error.pgconn.needs_password:
        return "28"
    text = _NAMED.sub('""', str(error))
    return next((state for said, state in _SAID if said.search(text)), "")


def refuses_options(error: psycopg.Error) -> bool:
    """Return whether a connection was refused by a pooler that takes no settings as options."""
    return _said(error) == _STARTUP


def has_no_room(error: Exception) -> bool:
    """Return whether a connection was refused because there are as many as are allowed."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    return (error.sqlstate or _said(error)) == "53300"


def was_refused(error: JournalError) -> bool:
    """Return whether the server has said that it has done nothing of a statement.

    An error undoes the statement. One that ends the connection may have come after the commit.
    """
    cause = error.__cause__
    if not isinstance(cause, psycopg.Error):
        return False
    if not cause.sqlstate:  # psycopg's own: it did not send what it could not make of the values
        return isinstance(cause, psycopg.DataError | psycopg.ProgrammingError)
    return cause.diag.severity_nonlocalized in ("ERROR", None) and cause.sqlstate != _UNKNOWN
