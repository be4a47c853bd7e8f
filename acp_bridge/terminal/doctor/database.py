"""Checks the database in which sessions are kept, if there is one; nothing is changed in it."""

from __future__ import annotations

from typing import Final

from acp_bridge.core.journal.errors import JournalError
from acp_bridge.terminal.doctor.findings import Finding, Subject, error, ok

AREA: Final = "database"


async def check(subject: Subject) -> list[Finding]:
    """Look at the database; return the finding."""
    if (url := subject.settings.journal) is None:
        return [ok("none: sessions are kept in files of the data folder")]
    from acp_bridge.postgres.connection import Database  # with psycopg

    try:
        async with Database(url) as database:
            version = await database.look()
    except JournalError as why:
        return [
            error(
                f"no session can be opened: {str(why).removeprefix('the journal failed: ')}",
                "docs/postgres.md says more of it, under Errors of the database",
            )
        ]
    if version:
        return [ok(f"it can be read and written (tables of version {version})", tables=version)]
    return [ok("it can be used; the first bridge makes the tables", tables=0)]
