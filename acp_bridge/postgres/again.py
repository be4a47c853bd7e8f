"""Statements that the database has undone for the sake of another, and asks to be sent again.

A bridge sets an isolation level in which that is rare. Behind a pooler that setting may not hold,
and statements that lock in another order than usual can always meet.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
import psycopg

from acp_bridge.core.journal.errors import JournalError

T = TypeVar("T")

#: seconds before each try.
_PAUSES: Final = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.13, 0.21, 0.34)
_ASKS: Final = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)


class Again:
    """How often a statement may still be sent again."""

    def __init__(self) -> None:
        """It was not sent yet."""
        self._pauses = iter(_PAUSES)

    async def asked_by(self, error: JournalError) -> bool:
        """Return, after a short wait, whether the statement with this error is to be sent again."""
        if not isinstance(error.__cause__, _ASKS):
            return False
        if (pause := next(self._pauses, None)) is None:
            return False
        await anyio.sleep(pause)
        return True


async def repeated(work: Callable[[], Awaitable[T]]) -> T:
    """Do `work`, and do it again while the database asks for that; it is undone each time."""
    again = Again()
    while True:
        try:
            return await work()
        except JournalError as error:
            if not await again.asked_by(error):
                raise
