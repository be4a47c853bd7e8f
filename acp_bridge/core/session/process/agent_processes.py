"""The agent processes of one session: started, closed, killed.

At most one of them has the session open; the machine says when (invariant P12). An epoch is known
here from its start until it is released.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.agents.connection import Connection
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process import StartFailed
from acp_bridge.core.machine import events as ev
from acp_bridge.core.runtime import waits
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.wire.jsonrpc import RpcError


class LinkSource(Protocol):
    """Makes links to processes (`session_context.SessionContext`)."""

    tasks: TaskGroup

    def new_link(self, owner: Owner, name: str) -> Link:
        """Return a link that is not started."""


class ReadyProcesses(Protocol):
    """Has processes ready for sessions (`sessions.pool.Pool`)."""

    def take_ready(self, *, agent_session_id: str | None, back: Connection | None) -> Link | None:
        """Return an initialized process, for the caller to own; None if none is ready.

        None that has another session of this id; `back` if that is at rest.
        """

    def note_held(self) -> None:
        """Note that the agent holds on to a session that it has closed."""

    async def take_coming(
        self, agent_session_id: str | None, prompted: Callable[[], bool]
    ) -> Link | None:
        """Return a process as `take_ready` does, or wait for one that is being started.

        None if there is none that the session may have. `prompted` returns True if a prompt of the
        session waits.
        """

    def starting(self, prompted: Callable[[], bool]) -> AbstractContextManager[None]:
        """Let other sessions wait for the process that the block starts."""

    def look_again(self) -> None:
        """Have the sessions look again that wait for a process that is being started."""


class _Member(Struct):
    link: Link
    starting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    #: set when the start has ended, well or not.
    settled: anyio.Event = field(default_factory=anyio.Event)


class AgentProcesses:
    """Starts, closes and kills a session's processes, by epoch; the machine gets each outcome."""

    def __init__(
        self,
        source: LinkSource,
        pool: ReadyProcesses,
        lease: int,
        core: Core,
        agent_session_id: Callable[[], str | None],
    ) -> None:
        """`lease` is the session's lock, a descriptor; `agent_session_id` returns its id at the
        agent.
        """
        self._agent_session_id = agent_session_id
        self._source = source
        self._pool = pool
        #: is told what the processes say; set before the first is started.
        self.owner: Owner
        self._lease = lease
        self._core = core
        self._members: dict[int, _Member] = {}
        #: has the session open already; the next start takes it.
        self._offered: Link | None = None
        #: the process that the session has left last; it lives on if others have it.
        self._left: Connection | None = None
        #: that process, if another one was refused the session meanwhile.
        self._holds_on: Connection | None = None

    def add(self, link: Link, epoch: int) -> None:
        """Add the running process in which `session/new` opened the session."""
        self._add(link, epoch).settled.set()
        self._note_occupied(link)

    def offer(self, link: Link) -> None:
        """Let the next start take this process, which has the session open.

        If it has ended by then, another one starts as soon as its tree is dead (invariant P12).
        """
        self._offered = link

    async def end_offered(self) -> None:
        """End the process given to `offer`, or leave it to its others, if no start has taken it."""
        offered, self._offered = self._offered, None
        if offered:
            await offered.leave()
            await offered.kill()

    def link(self, epoch: int) -> Link:
        """Return the process of an epoch; raises KeyError."""
        return self._members[epoch].link

    def get(self, epoch: int) -> Link | None:
        """Return the process of an epoch, or None once it is forgotten."""
        member = self._members.get(epoch)
        return member.link if member else None

    def forget(self, epoch: int) -> Link | None:
        """Forget and return the process of an epoch whose tree is dead, or won't die."""
        member = self._members.pop(epoch, None)
        return member.link if member else None

    async def start(self, epoch: int, name: str) -> None:
        """Give an epoch a process: the one given to `offer`, else one of the pool, else a new one.

        The machine is told when it has answered `initialize`, or could not be started. `name` is
        for the log.
        """
        offered, self._offered = self._offered, None
        ended = offered if offered and offered.gone else None
        if waiting := None if ended else offered or self._take_ready():
            member = self._add(waiting, epoch)
            member.settled.set()
            self._core.feed(self._adopt(member, waiting, epoch))
            self._note_occupied(waiting)
            return
        link = self._source.new_link(self.owner, name)
        link.note_prompted()
        member = self._add(link, epoch)
        outcome: ev.Event | None = None
        try:
            with member.starting:
                if ended:  # until its tree is dead, no other has the session
                    await ended.kill()
                outcome = await self._come(member, epoch)
        finally:
            member.settled.set()
        if outcome:
            self._core.feed(outcome)

    def _take_ready(self) -> Link | None:
        back, self._holds_on = self._holds_on, None
        return self._pool.take_ready(agent_session_id=self._agent_session_id(), back=back)

    def _adopt(self, member: _Member, link: Link, epoch: int) -> ev.Event:
        member.link, link.epoch = link, epoch
        link.hold_lock(self._lease)
        link.adopt(self.owner)
        return ev.Started(epoch)

    async def _come(self, member: _Member, epoch: int) -> ev.Event:
        if coming := await self._pool.take_coming(self._agent_session_id(), self._prompted):
            return self._adopt(member, coming, epoch)
        return await self._started(member.link, epoch)

    async def _started(self, link: Link, epoch: int) -> ev.Event:
        try:
            with self._pool.starting(self._prompted):
                await link.start(self._source.tasks, lock_fd=self._lease)
        except (StartFailed, RpcError) as exc:
            permanent = isinstance(exc, StartFailed) and exc.permanent
            return ev.StartFailed(epoch, permanent, await link.why_not(exc))
        except Exception as exc:
            errors.internal(exc, "an agent could not be started")
            return ev.StartFailed(epoch, False, "the system refused")
        return ev.Started(epoch)

    def _prompted(self) -> bool:
        return bool(self._core.now.waiting)

    def note_prompt(self, before: SessionState, after: SessionState) -> None:
        """Note that a prompt waits, and none did before."""
        self._pool.look_again()

    def _add(self, link: Link, epoch: int) -> _Member:
        link.epoch = epoch
        member = self._members[epoch] = _Member(link)
        return member

    async def kill(self, epoch: int) -> None:
        """Kill the tree of an epoch's process, even while it starts.

        The machine is told when the tree is dead.
        """
        if member := self._members.get(epoch):
            member.starting.cancel()
            await member.settled.wait()
            await member.link.kill()
            if not member.link.started:  # nobody else can say of it that it is dead
                self._core.feed(ev.TreeDead(epoch))

    async def leave(self, epoch: int) -> None:
        """Leave an epoch's process to its other sessions, or kill it if it has none.

        The machine is told as of a death.
        """
        if link := self.get(epoch):
            self._left = link.connection
            await link.leave()
            await self.kill(epoch)

    def note_opened(self, link: Link, *, well: bool) -> None:
        """Note that a process has opened the session, or has not.

        If it has refused, although the process that was left lives, that one may still have it: the
        next start goes back there if it is at rest, and from now on only fresh sessions share.
        """
        left, self._left = self._left, None if well else self._left
        if left and not well and not left.gone and not link.gone:
            self._holds_on = left
            self._pool.note_held()

    async def close(self, epoch: int, grace: float) -> None:
        """Let an agent close the session and end in `grace` seconds, then kill what is left.

        If it has other sessions, it only closes this one, if it can. Of sessions that end at once
        the last one ends it.
        """
        if (link := self.get(epoch)) is None:
            return
        with anyio.move_on_after(grace) as bound:
            closed = await link.close_session()
            if closed and (last := link.requests.last):  # which takes nothing of the grace
                bound.deadline += waits.AGENT_PATIENCE
                with anyio.move_on_after(waits.AGENT_PATIENCE):
                    await last()
            if link.leaves_nothing:
                await link.leave()
            if not link.gone:
                await link.close(grace)
        if link.leaves_nothing:  # the time may be over before it has left
            await link.leave()
        await self.kill(epoch)

    def _note_occupied(self, link: Link) -> None:
        """Tell the machine if another session works in the process that it has got."""
        if link.occupied:
            self._core.feed(ev.Occupied(link.epoch))
