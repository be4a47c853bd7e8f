"""Gives sessions their processes, as `agents.process_pool` decides; at most one process waits.

- *Take*: a session gets a place in a process that others have, or the process that waits, or the
  one that is being started, or a new one. A process that has had a session never waits again.
- *Warm*: a process is started ahead of any need. With `--spare` one is kept warm: when a session
  has taken a process, the next is started a moment later, if another session beside it has room.
  One that dies or does not start is started again, with growing pauses, and not often.
- *Give back*: a process whose session was refused waits for another session.
- *Retire*: a process that waits is ended, for a reason (`Reason`).

The process that answered the client's `initialize` is the first that waits in the pool. What a
process asks before it has a session goes to the client that started the bridge.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.agents.connection import Connection, OfSession
from acp_bridge.core.agents.failed_start import OPENS
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process import Exit, StartFailed
from acp_bridge.core.agents.process_pool import (
    Begin,
    End,
    Need,
    PooledProcess,
    ProcessPool,
    Reason,
    Share,
    Sharing,
    Start,
    Step,
    Take,
    Wait,
    Warmth,
)
from acp_bridge.core.agents.spoken_version import OtherVersion
from acp_bridge.core.clients.client import Client
from acp_bridge.core.protocol import CANCEL_REQUEST, Json
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.clients.to_client import ToClient
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.core.wire.peer import Call
from acp_bridge.core.wire.runs import Run

_Result = TypeVar("_Result")


class LinkSource(Protocol):
    """Makes links to processes (`session_context.SessionContext`)."""

    tasks: TaskGroup

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        """Return a link to a process that is not started; `owner` gets what the process sends.

        `name`: its name in the log. `parked`: it has no session yet.
        """

    @property
    def processes(self) -> ProcessPool[OfSession]:
        """All living processes that the links are to, and what is decided about them."""

    @property
    def shares(self) -> Sharing:
        """How the sessions of the agent may share a process."""


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
    #: what is decided about that process.
    decided: Warmth[OfSession] = field(default_factory=Warmth)


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
        self._processes = source.processes
        #: set, and replaced, when those who wait for a start are to look again.
        self._news = anyio.Event()
        #: the places made so far, for their names in the log.
        self._count = 0
        #: set when the process that waits is taken, or has ended.
        self._emptied = anyio.Event()
        #: None unless a process is kept warm.
        self._warmth: _Warmth | None = None

    @property
    def link(self) -> Link | None:
        """The process that waits for a session, or None."""
        waiting = self._processes.waiting
        return _link(waiting) if waiting else None

    # --- take ----------------------------------------------------------------------------------

    async def ready(self) -> Link:
        """Return the waiting process without taking it, or one at rest that sessions share.

        One is started if there is none. Raises RpcError.
        """
        while (link := self.link) is None:
            if shared := self._processes.shared(Need(self._source.shares, fresh=True)):
                return _link(shared)
            if self._processes.coming:
                await self._news.wait()
            elif started := await self._start_next():
                return self.link or started  # it may be gone already: it is not tried for ever
        return link

    def take_ready(
        self,
        first: Connection | None = None,
        *,
        agent_session_id: str | None = None,
        back: Connection | None = None,
    ) -> Link | None:
        """Return a process that is ready for a session, for the caller to own; None if none is.

        It is one at rest that other sessions have, `first` if it will do, or the one that waits.
        `agent_session_id`: the session's id, if the agent has given it one. `back`: the process
        that it has left and that holds on to it. A light process is retired instead as soon as a
        complete one can be forked.
        """
        need = self._need(agent_session_id, first)
        need.back = back.links if back else None
        return self._taken(self._now(self._step(need)), need)

    async def take_coming(
        self,
        agent_session_id: str | None = None,
        prompted: Callable[[], bool] = lambda: False,
    ) -> Link | None:
        """Return a process as `take_ready` does, or wait for one that is being started.

        None if the caller has to start one, `starting` it: nobody waits for a start that another
        session needs and can't share (invariant P11). `prompted` returns True if a prompt of the
        session waits.
        """
        need = self._need(agent_session_id)
        need.prompted = prompted
        return self._taken(await self._soon(need), need)

    def starting(self, prompted: Callable[[], bool]) -> AbstractContextManager[None]:
        """Let sessions wait for the process that the block starts for one; see `take_coming`."""
        return self._started(self._processes.begin(Need(self._source.shares, prompted=prompted)))

    async def take(self) -> Link:
        """Return a process for a session, which the caller owns now; raises RpcError."""
        return await self._take(self._need(None))

    async def take_for(
        self,
        work: Callable[[Link], Awaitable[_Result]],
        first: Connection | None = None,
        *,
        fresh: bool = False,
    ) -> _Result:
        """Take a process for a session, call `work` with it, which owns it then; return the result.

        If the process was ready, and was killed before the work was done, `work` is called once
        more, with another one (invariant Q12). `first` as for `take_ready`; `fresh`: the session
        is new. Raises RpcError, also when the process dies of the work.
        """
        need = self._need(None, first)
        need.fresh = fresh
        if waited := self._taken(self._now(self._step(need)), need):
            try:
                return await work(waited)
            except errors.AgentEnded as exc:
                if not exc.killed:
                    raise await waited.why_not(exc, OPENS) from exc
        another = await self._take(need)
        try:
            return await work(another)
        except errors.AgentEnded as exc:
            raise await another.why_not(exc, OPENS) from exc

    async def _take(self, need: Need[OfSession]) -> Link:
        link = await self._soon(need) or await self._start(self._processes.begin(need))
        self._taken(link, need)
        return link

    def note_held(self) -> None:
        """Note that the agent holds on to a session that it has closed: only fresh ones share."""
        if not self._processes.holds_on:
            event("agent.holds_on")
        self._processes.holds_on = True

    def _need(
        self, agent_session_id: str | None, first: Connection | None = None
    ) -> Need[OfSession]:
        return Need(
            self._source.shares,
            agent_session_id=agent_session_id,
            first=first.links if first else None,
        )

    def _step(self, need: Need[OfSession]) -> Step[OfSession]:
        waits = self.link
        parent = waits.command.parent if waits and waits.light else None
        return self._processes.step(need, light=parent is not None and parent.ready)

    def _now(self, step: Step[OfSession]) -> Link | None:
        """Do what needs no wait; returns the process that the session gets by it, if any."""
        match step:
            case Share(process, for_one):
                self._count += 1
                process.for_one = for_one
                link = _link(process)
                return Link(link.connection, self, f"shared#{self._count}", parked=True)
            case Take(process):
                self._let_go(process)
                return _link(process)
            case End(process, reason):
                self._withdraw(process, reason)
                self._source.tasks.start_soon(_link(process).kill)
            case Wait() | Begin():
                pass
        return None

    async def _soon(self, need: Need[OfSession]) -> Link | None:
        """Give a process that is ready, or that is being started; None if neither is there."""
        try:
            while not isinstance(step := self._step(need), Begin):
                match step:
                    case Wait(start, claimed):
                        self._processes.begin_wait(need, start)
                        if not claimed:
                            await self._news.wait()
                        elif process := await self._claimed(start):
                            return _link(process)
                    case _:
                        if link := self._now(step):
                            return link
            return None
        finally:
            self._processes.end_wait(need)

    def look_again(self) -> None:
        """Have those who wait for a start look again: one has ended, or a session has a prompt."""
        self._news.set()
        self._news = anyio.Event()

    async def _claimed(self, start: Start[OfSession]) -> PooledProcess[OfSession] | None:
        """Claim a start and wait for its process; None if it does not start.

        Who gives up leaves the process to the next one.
        """
        start.claimed = True
        try:
            while self._processes.under_way(start):
                await self._news.wait()
        except BaseException:
            start.claimed = False
            if start.process:
                with anyio.CancelScope(shield=True):
                    await self.give_back(_link(start.process))
            raise
        return start.process

    def _taken(self, link: Link | None, need: Need[OfSession]) -> Link | None:
        """Note that a session has got a process, and begin to start the next one to keep warm.

        Returns `link`; does nothing if that is None.
        """
        if link is not None:
            if not need.fresh:
                link.note_prompted()
            if self._warmth and self._warmth.decided.note_taken():
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
        was_empty = self._processes.waiting is None
        if link.gone or not self._processes.keep(link.connection.links):
            await link.kill()
        elif was_empty:
            self._emptied = anyio.Event()

    async def retire(self, link: Link, reason: Reason, grace: float) -> None:
        """End a process if it still waits; it has `grace` seconds to end by itself."""
        if self._withdraw(link.connection.links, reason):
            await link.close(grace)

    async def close(self, grace: float) -> None:
        """Retire the waiting process, and start none ahead of a need any more."""
        self._processes.close()
        if link := self.link:
            await self.retire(link, Reason.END, grace)

    def note_change(self, told: Link) -> None:
        """Note that a login, a logout or a setting went to the process `told`.

        The process that is kept warm is retired, unless it is `told`: what it has read at its start
        may no longer hold.
        """
        if (warmth := self._warmth) is None:
            return
        outdated = warmth.decided.note_change(told.connection.links)
        if outdated and self._withdraw(outdated, Reason.OUTDATED):
            self._source.tasks.start_soon(_link(outdated).close, warmth.times.grace)

    def _withdraw(self, process: PooledProcess[OfSession], reason: Reason) -> bool:
        """Take a waiting process out of the pool, for the caller to end.

        False if the process doesn't wait.
        """
        waits = self._let_go(process)
        if waits:
            event(f"spare.{reason}", agent=_link(process).name)
        return waits

    def _let_go(self, process: PooledProcess[OfSession]) -> bool:
        waits = self._processes.withdraw(process)
        if waits:
            self._emptied.set()
        return waits

    # --- warm ----------------------------------------------------------------------------------

    async def warm(self) -> None:
        """Start a process if none waits or is being started; an error is left to a later `take`."""
        try:
            if self._processes.wants_one:
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
        """Start a process whenever the last one is gone, until none is wanted any more."""
        decided = warmth.decided
        try:
            while decided.goes_on and await self._warm_one(warmth):
                pass
        except Exception as exc:  # no session is to suffer from it (invariant P6)
            errors.internal(exc, "no process is kept ready")
        finally:
            decided.kept = False

    async def _warm_one(self, warmth: _Warmth) -> bool:
        """Start a process after a pause, doubled for each failure, and watch it while it waits.

        Returns True if another one is to be started after it.
        """
        times, decided = warmth.times, warmth.decided
        await anyio.sleep(times.pause * 2**decided.tries)
        if not self._processes.wants_one:
            return False
        decided.note_start()
        try:
            with warmth.room():
                await self.warm()
        except RpcError:
            return False
        if (link := self.link) is None:
            return True
        event("spare.ready", agent=link.name)
        if decided.note_come(link.connection.links):
            await self.retire(link, Reason.OUTDATED, times.grace)
            return True
        return not await self._unused(link, times)

    async def _unused(self, link: Link, times: WarmTimes) -> bool:
        """Wait until a process is taken or dead, or retire it as unused; True if it was retired."""
        while self.link is link:
            with anyio.move_on_after(times.unused) as waited:
                await self._emptied.wait()
            if waited.cancelled_caught and not link.busy:
                await self.retire(link, Reason.UNUSED, times.grace)
                return True
        return False

    # --- start ---------------------------------------------------------------------------------

    async def _start_next(self) -> Link | None:
        """Start a process and let it wait; return None if a session has claimed it meanwhile."""
        start = self._processes.begin()
        link = await self._start(start)
        return None if start.claimed else link

    async def _start(self, start: Start[OfSession]) -> Link:
        """Start a process. One for the next session waits then, unless a session has claimed it."""
        with self._started(start):
            link = await self._start_in_either_version()
            start.process = link.connection.links
            if start.waits:
                await self.give_back(link)  # if another was given back meanwhile, that one stays
            return link

    @contextmanager
    def _started(self, start: Start[OfSession]) -> Iterator[None]:
        """End a start with the block, and tell those who wait for it."""
        try:
            yield
        finally:
            self._processes.end(start)
            self.look_again()

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

    def on_run(self, link: Link, run: Run) -> None:
        """Drop updates of a process that has no session."""

    def on_agent_request(self, link: Link, call: Call) -> None:
        # Nothing is known of a session before it is there: ids of tool calls pass as they are.
        asks = ToClient(link.at_clients.session_id, self._client, Updates(set()))
        asks.forward(link, call, stopped=False)

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        if method == CANCEL_REQUEST:
            link.at_clients.take_back(params["requestId"])
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
        if self._processes.waiting is None:
            self._emptied.set()
        link.at_clients.release()

    def on_dead(self, link: Link) -> None:
        """Do nothing: the pool does not wait for the death of a tree."""


def _link(process: PooledProcess[OfSession]) -> Link:
    """Return the oldest place in a process."""
    place = next(iter(process), None)
    assert isinstance(place, Link)
    return place
