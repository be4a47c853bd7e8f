"""Agent processes that have no session yet, and what the client asks of the agent as such.

The process that answered `initialize` becomes the first session's; one that gave up a session
never comes back here.
"""

from __future__ import annotations

from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from acp_bridge import errors
from acp_bridge.agents.link import AgentCommand, Link
from acp_bridge.agents.process import Exit, StartFailed
from acp_bridge.relay import ClientAbilities, Relay
from acp_bridge.updates import Updates
from acp_bridge.wire.jsonrpc import RpcError
from acp_bridge.wire.peer import Call, Peer

Json = dict[str, Any]


class LobbyHost(Protocol):
    """What the lobby needs of its bridge."""

    command: AgentCommand
    client: Peer
    abilities: ClientAbilities
    tasks: TaskGroup


class Lobby:
    """Holds at most one waiting process. Owner of the links that have no session."""

    def __init__(self, host: LobbyHost, timeout: float) -> None:
        """`timeout`: seconds for a process to start and answer `initialize`."""
        self._host = host
        self._timeout = timeout
        self._waiting: Link | None = None
        self._starting = anyio.Lock()
        self._relay = Relay(None, host.client, host.abilities, Updates(set()))
        self._count = 0

    @property
    def waiting(self) -> Link | None:
        """The process that waits for a session."""
        return self._waiting

    async def wait_for(self) -> Link:
        """The waiting process, started if there is none; raises RpcError."""
        async with self._starting:
            if self._waiting is None:
                self._waiting = await self._start()
            return self._waiting

    def take_ready(self) -> Link | None:
        """The waiting process, if there is one, which the caller owns now."""
        link, self._waiting = self._waiting, None
        return link

    async def take(self) -> Link:
        """A process for a session, which the caller owns now; raises RpcError."""
        link = await self.wait_for()
        if self._waiting is link:
            self._waiting = None
            return link
        # Another request took it while we waited.
        return await self._start()

    async def give_back(self, link: Link) -> None:
        """No session came of it: keep the process for the next request, if none waits."""
        if self._waiting is None and not link.gone:
            self._waiting = link
        elif self._waiting is not link:
            await link.kill()

    async def warm(self) -> None:
        """Have a process ready; what fails is said to the request that needs one."""
        try:
            await self.wait_for()
        except RpcError:
            return
        except Exception as exc:  # the system's: too many files, say (HAZARDS P6)
            errors.internal(exc, "an agent could not be started")

    async def close(self, grace: float) -> None:
        """End the waiting process."""
        link, self._waiting = self._waiting, None
        if link:
            await link.close(grace)

    async def _start(self) -> Link:
        self._count += 1
        link = Link(self._host.command, self, f"lobby#{self._count}", parked=True)
        try:
            with anyio.fail_after(self._timeout):
                await link.start(self._host.tasks)
        except TimeoutError:
            raise errors.agent_trouble("the agent did not answer in time") from None
        except StartFailed as exc:
            raise errors.agent_trouble(f"the agent could not be started: {exc}") from exc
        return link

    # --- Owner ---------------------------------------------------------------------------------

    def on_update(self, link: Link, params: Json) -> None:
        """An update without a session is nobody's."""

    def on_agent_request(self, link: Link, call: Call) -> None:
        self._relay.forward(link, call, stopped=False)

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        if method == "$/cancel_request" and isinstance(params, dict):
            self._relay.cancel_request(link, params.get("requestId"))
        else:
            self._host.client.notify(method, params)

    def on_batch_end(self, link: Link) -> None:
        """Nothing is collected here."""

    async def room(self, link: Link) -> None:
        """A process without a session says little."""

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        if self._waiting is link:
            self._waiting = None
        self._relay.release(link)

    def on_dead(self, link: Link) -> None:
        """Nobody waits for that."""
