"""The agent process that has no session yet, and what it asks of the client as such.

The process that answered `initialize` becomes the first session's; one that gave up a session
never comes back here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from acp_bridge import errors
from acp_bridge.agents.link import Link, Owner
from acp_bridge.agents.outcome import Exit, StartFailed
from acp_bridge.clients.client import Client
from acp_bridge.protocol import CANCEL_REQUEST, Json
from acp_bridge.session.to_client import ToClient
from acp_bridge.updates import Updates
from acp_bridge.wire.jsonrpc import RpcError
from acp_bridge.wire.peer import Call


class LinkSource(Protocol):
    """Where processes come from (`session_context.SessionContext`)."""

    tasks: TaskGroup

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        """Return a link that is not started."""


@dataclass(slots=True)
class _Claim:
    """A session's wait for the process that is starting."""

    link: Link | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)


class WaitingProcess:
    """Holds at most one process. It owns the links that have no session."""

    def __init__(
        self, source: LinkSource, client: Callable[[], Client | None], timeout: float
    ) -> None:
        """`client`: who is asked what the process asks. `timeout`: seconds for a process to start
        and answer `initialize`."""
        self._source = source
        self._client = client
        self._timeout = timeout
        self._link: Link | None = None
        self._starting = anyio.Lock()
        #: `warm` is starting a process; so many wait to take one, or one session has claimed it.
        self._warming = False
        self._wanted = 0
        self._claim: _Claim | None = None
        self._to_client = ToClient(None, client, Updates(set()))
        self._count = 0

    @property
    def link(self) -> Link | None:
        """The process that waits for a session, or None."""
        return self._link

    async def ready(self) -> Link:
        """Return the waiting process, started if there is none; raises RpcError."""
        async with self._starting:
            if self._link:
                return self._link
            link = await self._start()
            await self.give_back(link)  # if another was given back meanwhile, that one stays
            return self._link or link

    def take_ready(self) -> Link | None:
        """Return the waiting process, if there is one, which the caller owns now."""
        link, self._link = self._link, None
        return link

    async def take(self) -> Link:
        """Return a process for a session, which the caller owns now; raises RpcError."""
        self._wanted += 1
        try:
            async with self._starting:
                return self.take_ready() or await self._start()
        finally:
            self._wanted -= 1

    async def take_warming(self) -> Link | None:
        """Return the process that `warm` is starting, waited for, which the caller owns now.

        None if there is none, if another one wants it already, or if it does not start.
        """
        if not self._warming or self._wanted or self._claim:
            return None
        claim = self._claim = _Claim()
        try:
            await claim.settled.wait()
        except BaseException:
            self._claim = None
            if claim.link:
                with anyio.CancelScope(shield=True):
                    await self.give_back(claim.link)
            raise
        return claim.link

    async def give_back(self, link: Link) -> None:
        """Keep a process of which no session came, if no other one waits."""
        if self._link is None and not link.gone:
            self._link = link
        elif self._link is not link:
            await link.kill()

    async def warm(self) -> None:
        """Have a process ready; what fails is said to the request that needs one."""
        self._warming = True
        try:
            await self.ready()
        except RpcError:
            return
        except Exception as exc:  # the system's: too many files, say (invariant P6)
            errors.internal(exc, "an agent could not be started")
        finally:
            self._warming = False
            if claim := self._claim:  # it comes before those that began to wait later
                self._claim = None
                claim.link = self.take_ready()
                claim.settled.set()

    async def close(self, grace: float) -> None:
        """End the waiting process."""
        if link := self.take_ready():
            await link.close(grace)

    async def _start(self) -> Link:
        self._count += 1
        link = self._source.new_link(self, f"waiting#{self._count}", parked=True)
        try:
            with anyio.fail_after(self._timeout):
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
        self._to_client.forward(link, call, stopped=False)

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        if method == CANCEL_REQUEST and isinstance(params, dict):
            self._to_client.cancel_request(link, params.get("requestId"))
        elif client := self._client():
            client.peer.notify(method, params)

    def on_batch_end(self, link: Link) -> None:
        """Do nothing: nothing is collected here."""

    async def room(self, link: Link) -> None:
        """Return at once: a process without a session says little."""

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        if self._link is link:
            self._link = None
        self._to_client.release(link)

    def on_dead(self, link: Link) -> None:
        """Do nothing: nobody waits for that."""
