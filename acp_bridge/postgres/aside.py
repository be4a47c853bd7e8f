"""A file beside a session's copy that has what the database does not have of the session.

Invariants
- Its name ends in `.lost-` and the number of the last write that both have. It takes no other
  file's name.
- It is whole after each write, and nothing of it is sent anywhere.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from acp_bridge.core.journal.connection import connect, journal_errors, transaction
from acp_bridge.core.journal.file import Write
from acp_bridge.core.journal.schema import make_file
from acp_bridge.core.runtime.log import event
from acp_bridge.postgres import log


class Aside:
    """The file, open to be written."""

    def __init__(self, copy: sqlite3.Connection, path: Path, applied: int) -> None:
        """Make it as the copy is now.

        `path`: that of the copy. `applied`: the number of the last write that the database has,
        too. Raises JournalError; then there is none.
        """
        aside = log.name_aside(path, applied)
        with journal_errors():
            make_file(aside)
            try:
                with closing(sqlite3.connect(aside)) as target:
                    copy.backup(target)
                    target.execute("PRAGMA journal_mode=DELETE").close()
                self._db = connect(aside, wait=1)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
            # The system writes it to the disk when it likes: a session can't wait for that here.
            self._db.execute("PRAGMA synchronous=OFF").close()
        event("journal.set_aside", session=path.stem, what=aside.name)

    def add(self, writes: Iterable[Write]) -> None:
        """Make writes in it, all or none. Raises JournalError."""
        with transaction(self._db):
            for write in writes:
                log.make(self._db, write.all)

    def keep(self, writes: Iterable[Write]) -> None:
        """Make writes in it, all or none, and close it. Raises JournalError."""
        try:
            self.add(writes)
        finally:
            self.close()

    def close(self) -> None:
        """Close it."""
        self._db.close()
