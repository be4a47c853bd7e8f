"""Checks the database in which sessions are kept, if they are; nothing is changed in it."""

from __future__ import annotations

from typing import Final

from acp_bridge.commands.doctor.findings import Finding, Subject, error, ok
from acp_bridge.journal.errors import JournalError

AREA: Final = "database"


async def check(subject: Subject) -> list[Finding]:
    """Look at the database; return no finding if sessions are kept in files."""
    if (url := subject.settings.journal) is None:
        return []
    from acp_bridge.journal.postgres.connection import Database  # with psycopg

    try:
        async with Database(url) as database:
            version = await database.look()
    except JournalError as why:
        return [
            error(
                f"no session can be opened: {str(why).removeprefix('the journal failed: ')}",
                "see the chapter on databases in docs/postgres.md",
            )
        ]
    if version:
        return [ok(f"it can be read and written (tables of version {version})", tables=version)]
    return [ok("it can be used; the first bridge makes the tables", tables=0)]
