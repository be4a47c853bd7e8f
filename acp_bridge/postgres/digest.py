"""The sum of all that a session's file has, by which two files are compared; nothing is changed.

Invariants
- The same rows have the same sum, also in a file of an earlier version. The setting that tells
  which writes of a log a copy has is left out.
- A file that is damaged, or of which a killed bridge has left something to settle, is refused.
- Memory stays flat: one row is read after the other.
"""

import sqlite3
from contextlib import closing
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path
from typing import Final

from acp_bridge.core.journal import left_queue
from acp_bridge.core.journal.connection import check_whole, connect, journal_errors
from acp_bridge.core.journal.errors import JournalError, UnknownSession
from acp_bridge.core.journal.files import info_in
from acp_bridge.core.journal.records import SessionInfo
from acp_bridge.core.journal.schema import SESSION_SCHEMA, known_version
from acp_bridge.core.records import replace
from acp_bridge.postgres.log import APPLIED

#: the columns of each table but that of the session itself; the first one gives the order.
TABLES: Final = {
    "prompts": "seq, prompt_id, state, outcome, agent_outcome",
    "prompt_params": "seq, params",
    "updates": "id, turn, lines",
    "settings": "key, value",
    "used_ids": "id",
}


def digest(path: Path) -> tuple[SessionInfo, str]:
    """Return the row of a session and the sum of all that its file has.

    Raises:
        UnknownSession: there is no session in the file.
        JournalError: it can't be read, is damaged, or of a newer version.
    """
    if left_queue.read(path):
        raise JournalError(
            "a killed bridge has left something to settle in it: load the session once"
        )
    if not path.is_file():
        raise UnknownSession
    with journal_errors(), closing(connect(path, wait=5, read_only=True)) as db:
        known_version(db, SESSION_SCHEMA)
        db.execute("BEGIN").close()
        check_whole(db)
        return _digest(db)


def _digest(db: sqlite3.Connection) -> tuple[SessionInfo, str]:
    info = info_in(db)
    if info is None:
        raise UnknownSession
    info = replace(info, prompted=bool(info.prompted))
    (merged_to,) = db.execute("SELECT merged_to FROM session").fetchone()
    found = sha256(repr((*astuple(info), merged_to)).encode())
    for table, columns in TABLES.items():
        order, _, _ = columns.partition(",")
        for row in db.execute(f"SELECT {columns} FROM {table} ORDER BY {order}"):
            if (table, row[0]) != ("settings", APPLIED):
                found.update(repr((table, *row)).encode())
    return info, found.hexdigest()
