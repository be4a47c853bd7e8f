"""A database that does not answer: how long it is waited for, and who may ask it meanwhile.

Invariants
- A wait for the database ends when no byte has come or gone for some seconds. A transfer may take
  as long as it likes while bytes flow, and a slow database has these seconds for each statement.
- While the database is silent, one caller at a time asks it. Nobody else waits for it: others are
  refused at once, so that callers who wait don't use up the connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, TypeVar

import anyio
import psycopg
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.waiting import wait_async

from acp_bridge.core.journal.errors import DatabaseSilent
from acp_bridge.core.runtime import waits

T = TypeVar("T")

#: seconds between two looks of psycopg at whether a connection is ready.
_LOOK: Final = 0.1
_SILENT: Final = "the journal failed: the database does not answer"


class NoAnswer(psycopg.OperationalError):
    """The database has sent nothing, and taken nothing, for too long."""


def silent() -> DatabaseSilent:
    """Return the error that tells a person that the database does not answer."""
    return DatabaseSilent(_SILENT)


class BoundedConnection(AsyncConnection[Any]):
    """A connection that waits for each answer, while it is silent, for some seconds only."""

    #: seconds.
    patience = waits.DATABASE
    #: it was closed, because no answer came.
    was_silent = False
    #: called after each answer.
    on_answer: Callable[[], None] = staticmethod(lambda: None)

    async def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        """Run what psycopg does on the connection.

        A wait that is cancelled closes the connection. The server is not asked to cancel the
        statement: poolers were seen to crash by that, and no statement runs for long.

        Raises psycopg.Error; NoAnswer: the connection is closed, and nobody knows what became of
        the statement.
        """
        run = bounded(gen, self.patience)
        if not args:
            more.setdefault("interval", _LOOK)
        try:
            answer = await wait_async(run, self.pgconn.socket, *args, **more)
        except NoAnswer:
            self.was_silent = True
            self.pgconn.finish()  # so that nobody waits for a rollback on it
            raise
        except anyio.get_cancelled_exc_class():
            self.pgconn.finish()
            raise
        self.on_answer()
        return answer


def bounded(gen: PQGen[T], seconds: float, clock: Callable[[], float] = monotonic) -> PQGen[T]:
    """Run `gen`, and raise NoAnswer if its connection was not ready for so many seconds.

    psycopg looks several times a second whether it is ready, and sends 0 into `gen` if it is not.
    """
    since = clock()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                since = clock()
            elif clock() - since >= seconds:
                raise NoAnswer("the server does not answer")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


class Silence:
    """Whether a database is silent, as far as its callers have found out."""

    def __init__(self) -> None:
        """It answers."""
        self._is, self._asked = False, False
        #: how often it was found to be silent.
        self.found = 0

    def answered(self) -> None:
        """Note that the database answers: everybody may ask it."""
        self._is = False

    @contextmanager
    def asking(self, found: int, *, always: bool = False) -> Iterator[None]:
        """Let a caller ask the database in the block, and note whether it was answered.

        `found`: the value of `found` when the caller came. `always`: let it ask in any case.

        Raises DatabaseSilent: the database is silent, and another asks it, or the caller has waited
        for its turn since before that was known.
        """
        probes = self._is and not always
        if probes:
            if self._asked or found != self.found:
                raise silent()
            self._asked = True
        try:
            yield
            self.answered()
        except DatabaseSilent:
            self._is = True
            self.found += 1
            raise
        except Exception:
            self.answered()
            raise
        finally:
            if probes:
                self._asked = False
