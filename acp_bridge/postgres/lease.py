"""The lease of this bridge: as long as it holds, no bridge of another machine has its sessions.

A bridge is a row with a random name and the time, by the database's clock, until which it counts as
alive. It renews the row again and again. One that could not is taken for dead from that time on,
and then any other may have its sessions.

Invariants
- The moment at which this bridge must have stopped is counted from when a renewal was sent, on a
  clock that goes on while the machine sleeps: the time of an answer, or a frozen process, adds
  nothing to it. Its guards kill by it without the bridge.
- A lease that is over is not renewed. The bridge has another name from then on, and takes each of
  its open sessions again under that name. The guards get no later deadline before it has done so.
- Whatever became of the lease, only a session's row says who has the session. So the rows of all
  open sessions are looked at twice a second. A session that another bridge has is lost at once.
- A session that was closed while the database was away is free a moment after it is back, however
  long the lease is.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import anyio
from psycopg import AsyncConnection

from acp_bridge.core.journal.connection import in_thread, journal_errors
from acp_bridge.core.journal.errors import (
    DatabaseAway,
    DatabaseRefuses,
    HeldElsewhere,
    JournalError,
    UnknownSession,
)
from acp_bridge.core.journal.records import file_name
from acp_bridge.core.journal.schema import make_folder
from acp_bridge.core.runtime.log import event
from acp_bridge.postgres import log
from acp_bridge.postgres.again import repeated
from acp_bridge.postgres.connection import Database
from acp_bridge.postgres.log import Head, head
from acp_bridge.postgres.tables import KNOWN

#: seconds in which a guard has killed all that it guards.
KILL: Final = 6.0
#: how far two clocks may go apart, as a fraction of the time that has passed.
_DRIFT: Final = 0.01
#: renewals in the time of one lease.
_RENEWALS: Final = 6
#: seconds for which the close of a session waits until others may have it.
_RELEASE: Final = 2.0
#: seconds in which a renewal is answered.
_ANSWER: Final = 4.0
#: seconds between two tries of a renewal that has failed.
_RETRY: Final = 1.0
#: seconds between two looks at who has the open sessions. With the kill of an agent that makes less
#: than a second. While the database does not answer, only the renewal is tried.
_LOOK: Final = 0.5
#: days for which the row of a bridge that has ended stays, if no session is that bridge's.
_KEPT: Final = 1

#: a clock in seconds that goes on while the machine sleeps, if the system has one.
now: Final[Callable[[], float]] = (
    (lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)


class Had(Protocol):
    """An open session that this bridge has, as far as it knows (`file.CopiedFile`)."""

    async def take_again(self, connection: AsyncConnection[Any]) -> None:
        """Have the session under the lease's name, or lose it. Raises psycopg.Error."""


class Lease:
    """The lease of one bridge, for all sessions that it has."""

    def __init__(
        self,
        database: Database,
        home: Path,
        seconds: float,
        follow: Callable[[float | None], None] = lambda until: None,
        address: str | None = None,
    ) -> None:
        """Nothing is asked of the database yet.

        `home`: the folder of this machine's copies. `seconds`: how long the lease lasts. `follow`
        is called at each renewal with the time at which this bridge must have stopped, on the clock
        of `now`. `address`: the origin under which other machines reach this bridge.
        """
        self._database = database
        self._home = home
        self._seconds = seconds
        self._follow = follow
        self._address = address
        self._host = ""
        self._begun = anyio.Lock()
        #: the scope of `run` while it runs.
        self._renewing: anyio.CancelScope | None = None
        #: the error of the last lease that could not be begun.
        self._tried: JournalError | None = None
        #: why the last renewal has failed, if that stays until somebody changes something.
        self._refused: DatabaseRefuses | None = None
        #: the seconds for which this bridge may write after a renewal.
        self._lasts = seconds * (1 - _DRIFT) - KILL
        #: set at the next renewal.
        self._renewal = anyio.Event()
        #: the sessions that this bridge has left, by file name, with their last known fences.
        self._left: dict[str, int] = {}
        #: True if the bridge has a new name, and has not taken each open session again.
        self._is_new = False
        #: the names that this bridge has had; the last one is its name now.
        self.owners: list[str] = []
        #: the time, by `now`, until which this bridge may write and have agents work.
        self.until = 0.0
        #: called when half of that time has passed without a renewal, with the seconds left.
        self.on_half: Callable[[float], None] = lambda seconds: None
        #: returns the open sessions that this bridge has, by file name.
        self.had: Callable[[], Mapping[str, Had]] = dict

    @property
    def owner(self) -> str:
        """The name of this bridge in the database."""
        return self.owners[-1]

    @property
    def machine(self) -> str:
        """The name of the folder of this machine's copies, once the lease has begun."""
        return self._host.partition(" ")[0]

    @property
    def over(self) -> bool:
        """True when another bridge may have this one's sessions, or may soon."""
        return now() >= self.until

    @property
    def half(self) -> float:
        """Half of the seconds for which this bridge may write after a renewal."""
        return self._lasts / 2

    async def begin(self) -> None:
        """Get a lease, unless this bridge has one that is not over. Raises JournalError.

        Who waits while another one tries has its error, too.
        """
        tried = self._tried
        async with self._begun:
            if self.owners and not self.over:
                return
            if self._tried is not tried and self._tried:
                raise type(self._tried)(str(self._tried)) from self._tried
            try:
                await self._renew_now()
            except JournalError as error:
                self._tried = error
                raise

    async def run(self) -> None:
        """Renew the lease again and again until `end` or a cancellation, once it has begun.

        That of a server, which has an address, begins here; any other with `begin`.
        """
        async with anyio.create_task_group() as tasks:
            self._renewing = tasks.cancel_scope
            tasks.start_soon(self._watch)
            renewed, wait = True, 0.0 if self._address else self._seconds / _RENEWALS
            while True:
                await (self._look_for(wait) if renewed else anyio.sleep(_RETRY))
                renewed = not (self.owners or self._address) or await self._works(self._renew)
                wait = self._seconds / _RENEWALS

    async def _look_for(self, seconds: float) -> None:
        """Look at the open sessions again and again for so long, or until a look fails.

        Sessions that were left, and that the database does not know of yet, are let go as well.
        """
        due = now() + seconds
        while (left := due - now()) > 0:
            await anyio.sleep(min(left, _LOOK))
            if (self.had() or self._left) and not await self._works(self._look):
                return

    async def _watch(self) -> None:
        """Call `on_half` when half of the time has passed, also while a renewal is unanswered."""
        while True:
            renewal = self._renewal
            if (left := self.until - now()) > 0:
                with anyio.move_on_after(left - self.half):
                    await renewal.wait()
                if not renewal.is_set() and (left := self.until - now()) > 0:
                    self.on_half(left)
            await renewal.wait()

    async def _works(self, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except JournalError as error:
            event("database.away", what=error)
            self._refused = error if isinstance(error, DatabaseRefuses) else None
            return False
        self._refused = None
        return True

    async def _renew(self) -> None:
        async with self._begun:
            await self._renew_now()

    async def _renew_now(self) -> None:
        sent = now()
        async with self._database.connection(_ANSWER, first=True) as connection:
            await self._let_go(connection)
            if not self.owners or not await self._prolonged(connection):
                await self._begin_anew(connection)
                self._is_new = True
            if self._is_new:
                await self._take_again(connection)
                self._is_new = False
        self.until = sent + self._lasts
        self._follow(self.until)
        self._renewal.set()
        self._renewal = anyio.Event()

    async def _look(self) -> None:
        async with self._database.connection(_ANSWER, first=True) as connection:
            await self._let_go(connection)
            await self._take_again(connection)

    async def _take_again(self, connection: AsyncConnection[Any]) -> None:
        """Take each open session whose row does not have the bridge's name, or lose it.

        A plain SELECT may come from a copy that is behind, so it alone loses no session. Raises
        psycopg.Error.
        """
        if had := self.had():
            ours = await log.named(connection, [*had], self.owner)
            for name in had.keys() - ours:
                await had[name].take_again(connection)

    async def _prolonged(self, connection: AsyncConnection[Any]) -> bool:
        cursor = await connection.execute(
            "UPDATE acp_bridge.bridges SET until = clock_timestamp() + make_interval(secs => %s)"
            f" WHERE owner = %s AND until > clock_timestamp() AND {KNOWN}",
            (self._seconds, self.owner),
        )
        return bool(cursor.rowcount)

    async def _begin_anew(self, connection: AsyncConnection[Any]) -> None:
        self._host = self._host or await in_thread(_host, self._home)
        owner = uuid4().hex
        await connection.execute(
            "WITH gone AS (DELETE FROM acp_bridge.bridges WHERE until < now() - make_interval(days"
            " => %s) AND NOT EXISTS (SELECT 1 FROM acp_bridge.sessions WHERE sessions.owner ="
            " bridges.owner))"
            " INSERT INTO acp_bridge.bridges SELECT"
            f" %s, %s, %s, clock_timestamp() + make_interval(secs => %s), %s WHERE {KNOWN}",
            (_KEPT, owner, socket.gethostname(), self._host, self._seconds, self._address),
        )
        self.owners.append(owner)

    async def claim(self, session_id: str) -> Head:
        """Make this bridge the only one that may write a session; returns what the database has.

        The caller holds the session's lock on this machine.

        Raises:
            UnknownSession: the database has none of this id, or it was deleted.
            HeldElsewhere: a bridge of another machine has it.
            JournalError: the database can't be used.
        """
        await self.begin()
        self._left.pop(file_name(session_id), None)
        try:
            return await repeated(partial(self._claim, session_id))
        except BaseException:  # it may be ours all the same
            self._left[file_name(session_id)] = 0
            raise

    async def _claim(self, session_id: str) -> Head:
        name = file_name(session_id)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(
                f"SELECT 1 FROM acp_bridge.sessions WHERE name = %s AND {KNOWN} FOR UPDATE", (name,)
            )
            found = await head(connection, session_id)
            if found is None:
                raise UnknownSession("the database has no such session")
            if found.owner is not None and found.owner not in self.owners:
                await self._check(connection, found.owner)
            await connection.execute(
                "UPDATE acp_bridge.sessions SET owner = %s, fence = fence + 1 WHERE name = %s",
                (self.owner, name),
            )
            return found._replace(owner=self.owner, fence=found.fence + 1)

    async def _check(self, connection: AsyncConnection[Any], owner: str) -> None:
        """Raise HeldElsewhere if the bridge of this name is alive, as far as can be known.

        A bridge of this machine counts as dead, since the session's lock is ours. The error has the
        address of the bridge, or else of a server on its data folder, which passes the session on.
        """
        cursor = await connection.execute(
            "SELECT machine, host, until > clock_timestamp(), coalesce(address, (SELECT"
            " max(address) FROM acp_bridge.bridges AS server WHERE server.host = holder.host"
            " AND server.until > clock_timestamp())) FROM acp_bridge.bridges AS holder"
            " WHERE owner = %s FOR SHARE OF holder",
            (owner,),
        )
        row = await cursor.fetchone()
        if row and row[2] and row[1] != self._host:
            raise HeldElsewhere(str(row[0]), row[3])

    async def release(self, session_id: str, fence: int) -> None:
        """Let other bridges have a session, now or when the database can be reached.

        `fence`: the last one under which this bridge had it, as far as it knows. Never raises.
        """
        self._left[file_name(session_id)] = fence
        with suppress(JournalError):
            async with self._database.connection(_RELEASE) as connection:
                await self._let_go(connection)

    async def _let_go(self, connection: AsyncConnection[Any]) -> None:
        """Note in the database which sessions this bridge has left and not opened again.

        Each is given away under one fence, so a statement that comes late can't give away a session
        that this bridge has opened again. Raises psycopg.Error.
        """
        while left := {name: self._left[name] for name in self._left.keys() - self.had().keys()}:
            names, fences = [*left], [*left.values()]
            cursor = await connection.execute(
                "WITH free AS (UPDATE acp_bridge.sessions SET owner = NULL FROM"
                " unnest(%(names)s::text[], %(fences)s::bigint[]) AS one(name, fence)"
                " WHERE sessions.name = one.name AND sessions.fence = one.fence"
                f" AND owner = ANY(%(owners)s) AND {KNOWN} RETURNING one.name)"
                " SELECT name, fence FROM acp_bridge.sessions WHERE name = ANY(%(names)s)"
                " AND owner = ANY(%(owners)s) AND name NOT IN (SELECT name FROM free)",
                {"names": names, "fences": fences, "owners": self.owners},
            )
            # An answer that got lost has brought these a fence that nobody here knew.
            still = dict(await cursor.fetchall())
            for name, fence in left.items():
                if self._left.get(name) != fence:
                    continue  # it is opened again meanwhile, or left under another fence
                if name in still:
                    self._left[name] = still[name]
                else:
                    del self._left[name]

    async def end(self) -> None:
        """Give the lease up: any bridge may have the sessions of this one. Never raises."""
        if self._renewing:
            self._renewing.cancel()
        with suppress(JournalError):
            if self.owners:
                async with self._database.connection() as connection:
                    await connection.execute(
                        "UPDATE acp_bridge.bridges SET until = clock_timestamp()"
                        f" WHERE owner = ANY(%s) AND {KNOWN}",
                        (self.owners,),
                    )

    def check(self) -> None:
        """Raise DatabaseAway or DatabaseRefuses if this bridge may not write any more."""
        if self.over and self._refused:
            raise DatabaseRefuses(str(self._refused))
        if self.over:
            raise DatabaseAway("the journal failed: the database could not be reached for too long")


def _host(home: Path) -> str:
    """Return a text that is the same for bridges that see each other's locks, until a restart.

    It has the name of the folder of copies `home`, which is kept there, and the system's boot id.
    Raises JournalError.
    """
    file = home / "host"
    with journal_errors():
        make_folder(home)
        with suppress(FileExistsError), file.open("x") as made:
            made.write(uuid4().hex)
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = socket.gethostname()
        return f"{file.read_text()} {boot}"
