"""Finds out if the database refuses a write for what that holds, and will do so for good."""

from typing import Final

from acp_bridge.core.journal.errors import JournalError
from acp_bridge.postgres import log
from acp_bridge.postgres.connection import Database

#: how often, in a row, the database refuses a write and takes an empty one, until that is for good.
_ENOUGH: Final = 5


class Refusals:
    """How often the database has refused a session's oldest write, and taken an empty one."""

    def __init__(self, database: Database) -> None:
        """It has refused none."""
        self._database = database
        self._count = 0

    def over(self) -> None:
        """Note that the write was made, or set aside: the next one counts from the beginning."""
        self._count = 0

    async def is_for_good(self, session_id: str, owner: str, fence: int, n: int) -> bool:
        """Note that the write with the number `n` was refused; returns whether that is for good.

        It is if the database takes an empty write instead, several times in a row.
        """
        try:
            async with self._database.connection() as connection:
                taken = await log.takes(connection, session_id, owner, fence, n)
        except JournalError:
            taken = False
        self._count = self._count + 1 if taken else 0
        return self._count >= _ENOUGH
