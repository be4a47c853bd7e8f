"""The pool of agent processes without a session; at most one waits to be taken by a session.

- *Take*: a session gets the process that waits, or the one that is being started, or a new one. It
  owns that process from then on; a process that has had a session never comes back.
- *Warm*: a process is started ahead of any need. With `--spare` one is kept warm: when a session
  has taken a process, the next is started a moment later, if another session beside it has room.
  One that dies or does not start is started again, with growing pauses, and not often.
- *Give back*: a process whose session was refused waits for another session.
- *Retire*: a process that waits is ended, for a reason (`Reason`).

The process that answered the client's `initialize` is the first that waits in the pool. What a
process asks before it has a session goes to the client that started the bridge.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.agents.connection import Connection
from acp_bridge.core.agents.failed_start import OPENS
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process import Exit, StartFailed
from acp_bridge.core.agents.spoken_version import OtherVersion
from acp_bridge.core.clients.client import Client
from acp_bridge.core.protocol import CANCEL_REQUEST, Json
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.clients.to_client import ToClient
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import UNSET, RpcError
from acp_bridge.core.wire.peer import Call

_Given = TypeVar("_Given", Link, Link | None)
_Result = TypeVar("_Result")

#: the most starts in a row whose process no session takes; then none is kept warm until one does.
_TRIES: Final = 3


class Reason(StrEnum):
    """The reasons for which a process that waits is ended."""

    #: no session has taken the process in time.
    UNUSED = "unused"
    #: a login, a logout or a setting went to another process after this one had read them.
    OUTDATED = "outdated"
    #: the process has no model library, and by now one that has it can be forked.
    LIGHT = "light"
    #: the bridge ends.
    END = "end"


class LinkSource(Protocol):
    """Makes links to processes (`session_context.SessionContext`)."""

    tasks: TaskGroup

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        """Return a link to a process that is not started; `owner` gets what the process sends.

        `name`: its name in the log. `parked`: it has no session yet.
        """

    @property
    def shares(self) -> bool:
        """True if a process of the agent may have several sessions."""

    @property
    def sharing(self) -> Sequence[Link]:
        """A session's link to each process that takes a further session, the oldest first."""

    def note_link(self, link: Link) -> None:
        """Note a further link to a process."""


class WarmTimes(Struct, frozen=True):
    """The waits of a pool that keeps a process warm, in seconds."""

    #: a process that no session takes is retired after this time.
    unused: float
    #: the time from the taking of a process to the next start; doubled after each failed start.
    pause: float
    #: the time in which a retired process may end by itself, before it is killed.
    grace: float


class _Warmth(Struct, frozen=True):
    """The rules by which a process is kept warm."""

    times: WarmTimes
    #: keeps room for a session beside the process while the process is started; raises RpcError if
    #: there is none.
    room: Callable[[], AbstractContextManager[None]]


class _Start(Struct):
    """A process that is being started for the next session; one session may claim it."""

    claimed: bool = False
    #: the process that the claiming session gets; None if it did not start.
    link: Link | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)


class Pool:
    """Owns the agent processes that have no session. Of those, at most one waits for a session."""

    def __init__(
        self,
        source: LinkSource,
        client: Callable[[], Client | None],
        timeout: float,
        limit: int = 8 * 1024 * 1024,
    ) -> None:
        """`client` returns the client to which the processes' requests go. `timeout`: seconds for
        a process to start and answer `initialize`. `limit`: bytes that may wait for the client
        before a process is read no further."""
        self._source = source
        self._client = client
        self._timeout = timeout
        self._limit = limit
        self._link: Link | None = None
        self._coming: _Start | None = None
        #: one for each start that goes on, set at its end.
        self._starts: list[anyio.Event] = []
        self._count = 0
        self._closed = False
        #: set when the process that waits is taken, or has ended.
        self._emptied = anyio.Event()
        #: None unless a process is kept warm.
        self._warmth: _Warmth | None = None
        self._keeps_warm = False
        self._tries = 0
        #: the process that was last started to be kept warm.
        self._spare: Link | None = None
        #: counts the logins, logouts and settings, which a process reads when it starts.
        self._changes = 0

    @property
    def link(self) -> Link | None:
        """The process that waits for a session, or None."""
        return self._link

    @property
    def _empty(self) -> bool:
        """True if no process waits or is being started, and the pool is not closed."""
        return self._link is None and self._coming is None and not self._closed

    # --- take ----------------------------------------------------------------------------------

    async def ready(self) -> Link:
        """Return the waiting process without taking it, or one at rest that sessions share.

        One is started if there is none. Raises RpcError.
        """
        while self._link is None:
            if sharing := self._source.sharing:
                return sharing[0]
            if self._coming:
                await self._coming.settled.wait()
            elif link := await self._start_next():
                return self._link or link  # it may be gone already: it is not tried for ever
        return self._link

    def take_ready(
        self, first: Connection | None = None, *, agent_session_id: str | None = None
    ) -> Link | None:
        """Return a process that is ready for a session, for the caller to own; None if none is.

        It is one at rest that other sessions have, `first` if it will do, or the one that waits.
        `agent_session_id`: the session's id, if the agent has given it one. A light process is
        retired instead as soon as a complete one can be forked.
        """
        if shared := self._shared(first, agent_session_id):
            return shared
        link = self._link
        if link and link.light and link.command.parent and link.command.parent.ready:
            self._withdraw(link, Reason.LIGHT)
            self._source.tasks.start_soon(link.kill)
            return None
        self._let_go()
        return self._taken(link)

    def _shared(self, first: Connection | None, agent_session_id: str | None) -> Link | None:
        """Return a link to a process that sessions have; None if none takes another one.

        It is never one in which another session has this id: agents number them in each process and
        folder.
        """
        waiting = self._link.connection if self._link else None
        found = [link.connection for link in self._source.sharing]
        fit = [
            each for each in found if each is not waiting and not each.has_session(agent_session_id)
        ]
        if not fit:
            return None
        self._count += 1
        chosen = first if first in fit else fit[0]
        link = Link(chosen, self, f"shared#{self._count}", parked=True)
        self._source.note_link(link)
        return link

    async def take(self) -> Link:
        """Return a process for a session, which the caller owns now; raises RpcError.

        Nobody waits for a start that another session needs (invariant P11).
        """
        return self.take_ready() or await self._take_fresh()

    async def take_for(
        self, work: Callable[[Link], Awaitable[_Result]], first: Connection | None = None
    ) -> _Result:
        """Take a process for a session, call `work` with it, which owns it then; return the result.

        If the process was ready, and was killed before the work was done, `work` is called once
        more, with a fresh one (invariant Q12). `first` as for `take_ready`. Raises RpcError, also
        when the process dies of the work.
        """
        if waited := self.take_ready(first):
            try:
                return await work(waited)
            except errors.AgentEnded as exc:
                if not exc.killed:
                    raise await waited.why_not(exc, OPENS) from exc
        fresh = await self._take_fresh()
        try:
            return await work(fresh)
        except errors.AgentEnded as exc:
            raise await fresh.why_not(exc, OPENS) from exc

    async def _take_fresh(self) -> Link:
        if warming := await self.take_warming():
            return warming
        while self._starts and self._source.shares:  # by another session, which shares it
            await self._starts[0].wait()
            if ready := self.take_ready():
                return ready
        return self._taken(await self._start())

    async def take_warming(self) -> Link | None:
        """Wait for the process that is being started for the next session, and take it.

        Returns None if no process is being started, if another session has claimed that process, or
        if it does not start.
        """
        coming = self._coming
        if coming is None or coming.claimed:
            return None
        coming.claimed = True
        try:
            await coming.settled.wait()
        except BaseException:
            coming.claimed = False
            if coming.link:
                with anyio.CancelScope(shield=True):
                    await self.give_back(coming.link)
            raise
        return self._taken(coming.link)

    def _taken(self, link: _Given) -> _Given:
        """Note that a session has got the process, and begin to start the next one to keep warm.

        Returns `link`; does nothing if that is None.
        """
        if link is not None:
            self._tries = 0
            if self._warmth and not self._keeps_warm:
                self._keeps_warm = True
                self._source.tasks.start_soon(self._keep_warm, self._warmth)
        return link

    # --- give back, retire ---------------------------------------------------------------------

    async def give_back(self, link: Link) -> None:
        """Let a process whose session was refused wait in the pool; kill it if one waits there.

        One that has other sessions is left to them.
        """
        link.at_clients.give_up_session()
        link.park()
        await link.leave()
        if self._link is None and not link.gone:
            self._link, self._emptied = link, anyio.Event()
        elif self._link is not link:
            await link.kill()

    async def retire(self, link: Link, reason: Reason, grace: float) -> None:
        """End a process if it still waits; it has `grace` seconds to end by itself."""
        if self._withdraw(link, reason):
            await link.close(grace)

    async def close(self, grace: float) -> None:
        """Retire the waiting process, and start none ahead of a need any more."""
        self._closed = True
        if link := self._link:
            await self.retire(link, Reason.END, grace)

    def note_change(self, told: Link) -> None:
        """Note that a login, a logout or a setting went to the process `told`.

        The process that is kept warm is retired, unless it is `told`: what it has read at its start
        may no longer hold.
        """
        self._changes += 1
        link, warmth = self._spare, self._warmth
        if warmth and link and link is not told and self._withdraw(link, Reason.OUTDATED):
            self._source.tasks.start_soon(link.close, warmth.times.grace)

    def _withdraw(self, link: Link, reason: Reason) -> bool:
        """Take a waiting process out of the pool, for the caller to end.

        False if the process doesn't wait.
        """
        waits = self._link is link
        if waits:
            event(f"spare.{reason}", agent=link.name)
            self._let_go()
        return waits

    def _let_go(self) -> None:
        self._link = None
        self._emptied.set()

    # --- warm ----------------------------------------------------------------------------------

    async def warm(self) -> None:
        """Start a process if none waits or is being started; an error is left to a later `take`."""
        try:
            if self._empty:
                await self._start_next()
        except RpcError:
            return
        except Exception as exc:  # the system's: too many files, say (invariant P6)
            errors.internal(exc, "an agent could not be started")

    def keep_warm(self, times: WarmTimes, room: Callable[[], AbstractContextManager[None]]) -> None:
        """Keep one process ready for the next session, once a session has taken a process.

        `room` keeps room for a session beside that process; it raises RpcError if there is none.
        """
        self._warmth = _Warmth(times, room)

    async def _keep_warm(self, warmth: _Warmth) -> None:
        """Start a process whenever the last one is gone, until none is wanted any more.

        It also ends after `_TRIES` starts in a row whose process no session took.
        """
        try:
            while self._tries < _TRIES and await self._warm_one(warmth):
                pass
        except Exception as exc:  # no session is to suffer from it (invariant P6)
            errors.internal(exc, "no process is kept ready")
        finally:
            self._keeps_warm = False

    async def _warm_one(self, warmth: _Warmth) -> bool:
        """Start a process after a pause, doubled for each failure, and watch it while it waits.

        Returns True if another one is to be started after it.
        """
        times = warmth.times
        await anyio.sleep(times.pause * 2**self._tries)
        if not self._empty:
            return False
        self._tries += 1
        before = self._changes
        try:
            with warmth.room():
                await self.warm()
        except RpcError:
            return False
        link = self._spare = self._link
        if link is None:
            return True
        event("spare.ready", agent=link.name)
        if before != self._changes:
            await self.retire(link, Reason.OUTDATED, times.grace)
            return True
        return not await self._unused(link, times)

    async def _unused(self, link: Link, times: WarmTimes) -> bool:
        """Wait until a process is taken or dead, or retire it as unused; True if it was retired."""
        while self._link is link:
            with anyio.move_on_after(times.unused) as waited:
                await self._emptied.wait()
            if waited.cancelled_caught and not link.busy:
                await self.retire(link, Reason.UNUSED, times.grace)
                return True
        return False

    async def _start_next(self) -> Link | None:
        """Start a process and let it wait; return None if a session has claimed it meanwhile."""
        coming = self._coming = _Start()
        try:
            link = await self._start()
            if coming.claimed:
                coming.link = link
                return None
            await self.give_back(link)  # if another was given back meanwhile, that one stays
            return link
        finally:
            self._coming = None
            coming.settled.set()

    async def _start(self) -> Link:
        settled = anyio.Event()
        self._starts.append(settled)
        try:
            return await self._start_in_either_version()
        finally:
            self._starts.remove(settled)
            settled.set()

    async def _start_in_either_version(self) -> Link:
        try:
            return await self._start_one()
        except OtherVersion as other:
            try:
                return await self._start_one()
            except RpcError:
                if other.refusal:  # it is no better with the other version: its first word counts
                    raise other.refusal from None
                raise

    async def _start_one(self) -> Link:
        """Start a process and wait until it has answered `initialize`; raises RpcError.

        Raises OtherVersion if a new process is to be asked for another version of the protocol.
        """
        self._count += 1
        link = self._source.new_link(self, f"waiting#{self._count}", parked=True)
        try:
            with link.at_clients.limit(self._timeout):
                await link.start(self._source.tasks)
        except TimeoutError as late:
            raise await link.why_not(late, within=self._timeout) from None
        except OtherVersion:
            event("agent.other_version", agent=link.name, asks=link.command.version.asks)
            raise
        except (StartFailed, RpcError) as exc:
            raise await link.why_not(exc) from exc
        return link

    # --- Owner ---------------------------------------------------------------------------------

    def on_update(self, link: Link, params: Json) -> None:
        """Drop an update of a process that has no session."""

    def on_agent_request(self, link: Link, call: Call) -> None:
        # Nothing is known of a session before it is there: ids of tool calls pass as they are.
        asks = ToClient(link.at_clients.session_id, self._client, Updates(set()))
        asks.forward(link, call, stopped=False)

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        if method == CANCEL_REQUEST and isinstance(params, dict):
            link.at_clients.take_back(params.get("requestId", UNSET))
        elif client := self._client():
            client.peer.notify(method, params)

    def on_batch_end(self, link: Link) -> None:
        """Do nothing: the pool collects no messages of a batch."""

    def on_occupied(self, link: Link) -> None:
        """Do nothing: without a session there is no prompt."""

    def on_free(self, link: Link) -> None:
        """Do nothing: without a session there is no prompt that could go on."""

    async def room(self, link: Link) -> None:
        """Wait while the client is behind by too many bytes; the process is not read meanwhile."""
        if client := self._client():
            await client.outgoing.drain_below(self._limit)

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        if self._link is link:
            self._let_go()
        link.at_clients.release()

    def on_dead(self, link: Link) -> None:
        """Do nothing: the pool does not wait for the death of a tree."""
