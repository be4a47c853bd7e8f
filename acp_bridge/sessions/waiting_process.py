"""The agent process that has no session yet, and what it asks of the client as such.

The process that answered `initialize` becomes the first session's; one that gave up a session
never comes back here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup

from acp_bridge import errors
from acp_bridge.agents.link import Link, Owner
from acp_bridge.agents.outcome import Exit, StartFailed
from acp_bridge.clients.client import Client
from acp_bridge.protocol import CANCEL_REQUEST, Json
from acp_bridge.session.clients.to_client import ToClient
from acp_bridge.updates import Updates
from acp_bridge.wire.jsonrpc import UNSET, RpcError
from acp_bridge.wire.peer import Call

_Given = TypeVar("_Given", Link, Link | None)
_Result = TypeVar("_Result")


class LinkSource(Protocol):
    """Where processes come from (`session_context.SessionContext`)."""

    tasks: TaskGroup

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        """Return a link that is not started."""


@dataclass(slots=True)
class _Start:
    """A process that is being started for whoever needs one next; one session may claim it."""

    claimed: bool = False
    #: what the claim was given; None if the process did not start.
    link: Link | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)


class WaitingProcess:
    """Holds at most one process. It owns the links that have no session."""

    def __init__(
        self,
        source: LinkSource,
        client: Callable[[], Client | None],
        timeout: float,
        limit: int = 8 * 1024 * 1024,
    ) -> None:
        """`client`: who is asked what the process asks. `timeout`: seconds for a process to start
        and answer `initialize`. `limit`: bytes that may wait for the client before the process is
        read no further."""
        self._source = source
        self._client = client
        self._timeout = timeout
        self._limit = limit
        self._link: Link | None = None
        #: the process that is to wait here.
        self._coming: _Start | None = None
        self._count = 0
        self._closed = False
        #: set when the process that waits is taken, or has ended.
        self.emptied = anyio.Event()
        #: is called when a session has got a process from here.
        self.on_taken: Callable[[], None] = lambda: None

    @property
    def link(self) -> Link | None:
        """The process that waits for a session, or None."""
        return self._link

    @property
    def empty(self) -> bool:
        """No process waits, nor is one on its way, and there may be one."""
        return self._link is None and self._coming is None and not self._closed

    async def ready(self) -> Link:
        """Return the waiting process, started if there is none; raises RpcError."""
        while self._link is None:
            if self._coming:
                await self._coming.settled.wait()
            elif link := await self._start_next():
                return self._link or link  # it may be gone already: it is not tried for ever
        return self._link

    def take_ready(self) -> Link | None:
        """Return the waiting process, if there is one, which the caller owns now.

        One that would have to be replaced, though a better one can be had by now, is ended.
        """
        link = self._let_go()
        if link and link.light and link.command.parent and link.command.parent.ready:
            self._source.tasks.start_soon(link.kill)
            return None
        return self._taken(link)

    async def take(self) -> Link:
        """Return a process for a session, which the caller owns now; raises RpcError.

        Nobody waits for a start that another session needs (invariant P11).
        """
        return self.take_ready() or await self._take_fresh()

    async def take_for(self, work: Callable[[Link], Awaitable[_Result]]) -> _Result:
        """Return what `work` does with a process for a session, which it owns then.

        If one that waited was killed, then or meanwhile, the work is done once more, with another
        one (invariant Q12). Raises RpcError, also when the process dies of the work.
        """
        if waited := self.take_ready():
            try:
                return await work(waited)
            except errors.AgentEnded as exc:
                if not exc.killed:
                    raise
        return await work(await self._take_fresh())

    async def _take_fresh(self) -> Link:
        return await self.take_warming() or self._taken(await self._start())

    async def take_warming(self) -> Link | None:
        """Return the process that is being started for nobody yet, which the caller owns now.

        None if there is none, if another one has claimed it, or if it does not start.
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

    async def give_back(self, link: Link) -> None:
        """Keep a process of which no session came, if no other one waits."""
        link.at_clients.give_up_session()
        link.park()
        if self._link is None and not link.gone:
            self._link, self.emptied = link, anyio.Event()
        elif self._link is not link:
            await link.kill()

    async def warm(self) -> None:
        """Start a process ahead of any need; what fails is said to the request that needs one."""
        try:
            if self.empty:
                await self._start_next()
        except RpcError:
            return
        except Exception as exc:  # the system's: too many files, say (invariant P6)
            errors.internal(exc, "an agent could not be started")

    async def close(self, grace: float) -> None:
        """End the waiting process; none is started ahead of a need any more."""
        self._closed = True
        if link := self._link:
            await self.end(link, grace)

    async def end(self, link: Link, grace: float) -> None:
        """End a process if it still waits."""
        if self.give_up(link):
            await link.close(grace)

    def give_up(self, link: Link) -> bool:
        """Give a process to nobody any more; False if it does not wait. The caller ends it."""
        waits = self._link is link
        if waits:
            self._let_go()
        return waits

    def _let_go(self) -> Link | None:
        link, self._link = self._link, None
        self.emptied.set()
        return link

    def _taken(self, link: _Given) -> _Given:
        if link is not None:
            self.on_taken()
        return link

    async def _start_next(self) -> Link | None:
        """Start the process that is to wait here; returns None if a session has claimed it."""
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
        self._count += 1
        link = self._source.new_link(self, f"waiting#{self._count}", parked=True)
        try:
            with link.at_clients.limit(self._timeout):
                await link.start(self._source.tasks)
        except TimeoutError:
            raise errors.agent_trouble("the agent did not answer in time") from None
        except StartFailed as exc:
            raise errors.agent_trouble(f"the agent could not be started: {exc}") from exc
        return link

    # --- Owner ---------------------------------------------------------------------------------

    def on_update(self, link: Link, params: Json) -> None:
        """Drop it: an update without a session is nobody's."""

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
        """Do nothing: nothing is collected here."""

    async def room(self, link: Link) -> None:
        """Wait while the client doesn't read: what the process asks and tells waits for it."""
        if client := self._client():
            await client.outgoing.drain_below(self._limit)

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        if self._link is link:
            self._let_go()
        link.at_clients.release()

    def on_dead(self, link: Link) -> None:
        """Do nothing: nobody waits for that."""
