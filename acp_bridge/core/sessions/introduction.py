"""`initialize`: the agent is told of the client that started the bridge, and of no other.

Clients that join later get the agent's answer to the first client, whose abilities the agent counts
on. If no client has started the bridge, the agent is told of one that has neither files nor
terminals. What a client sends before its `initialize` is answered waits for the answer, since some
clients send all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.clients import handshake
from acp_bridge.core.clients.abilities import ClientAbilities
from acp_bridge.core.clients.client import ANSWERED, Client, ClientRequest, Stage
from acp_bridge.core.protocol import INITIALIZE, MAY, Json, can_steer
from acp_bridge.core.records import replace
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions import params as check
from acp_bridge.core.sessions.pool import Pool
from acp_bridge.core.wire.jsonrpc import RpcError

#: the parameters of `initialize` if no client has started the bridge. Forms are allowed: they go to
#: any client that has the session and can answer them.
_NOBODY: Final = handshake.hello("acp-bridge", capabilities={"elicitation": {"form": {}}})


class Introduction:
    """Answers `initialize`, once for each client."""

    def __init__(self, context: SessionContext, pool: Pool, came: Callable[[Client], None]) -> None:
        """`pool` has the agent process whose answer to `initialize` all clients get.

        `came` is called with each client just before its `initialize` is answered.
        """
        self._came = came
        self._context = context
        self._pool = pool
        self._agent: Json | None = None
        #: no client has started the bridge: the agent is told of `_NOBODY`.
        self._alone = False
        self._asking = anyio.Lock()
        #: the agent has been told of the first client.
        self.made = anyio.Event()

    def take(self, request: ClientRequest, params: Json) -> None:
        """Begin to answer `initialize`, or keep another request until that answer is sent.

        Raises RpcError for a request before `initialize`, and for a second `initialize`.
        """
        client = request.client
        if request.method == INITIALIZE:
            if client.stage is not Stage.NEW:
                raise errors.refused("already initialized")
            check.version(params)
            check.client_name(params)
            client.stage = Stage.INITIALIZING
            client.run(self._context.tasks, request, self._greet, params)
        elif client.stage is Stage.NEW:
            raise errors.refused("not initialized: send initialize first")
        else:
            client.early.add(request)

    async def _greet(self, request: ClientRequest, params: Json) -> object:
        """Answer `initialize`, then run the requests that waited; refuse them if that failed."""
        client = request.client
        try:
            request.answer(await self.answer(request, params))
        except BaseException:
            client.stage = Stage.NEW
            raise
        finally:
            client.early.go_on()
        return ANSWERED

    async def answer(self, request: ClientRequest, params: Json) -> Json:
        """Return the result of a client's `initialize`, and make it ready. Raises RpcError."""
        client = request.client
        client.abilities = ClientAbilities(params.get("clientCapabilities"))
        if not client.on_socket and client.abilities.shows_said:
            self._context.command.version.follow_client()
        agent = await (self._meet() if client.on_socket else self._introduce(params))
        client.abilities.note_shown(self._context.command.initialize.get("clientCapabilities"))
        client.stage = Stage.READY
        self._came(client)
        if client.rights:
            agent = handshake.for_remote(agent)
        settings = self._context.settings
        own = {"delivery": str(settings.delivery), "onCancel": str(settings.on_cancel)}
        if client.rights:
            own[MAY] = str(client.rights.may)
        told = handshake.for_client(agent, {"agent": settings.agent_name, **own})
        for plugin in self._context.plugins:
            if plugin.announce:
                plugin.announce(agent, told)
        return told

    async def _introduce(self, params: Json) -> Json:
        """Tell the agent of the client that sent `params`; returns and keeps the agent's answer."""
        settings = self._context.settings
        told = handshake.for_agent(params, kept=settings.keep > 0, builtin=settings.builtin)
        self._context.command = replace(self._context.command, initialize=told)
        if settings.builtin:
            agent = handshake.BUILTIN
            self._context.tasks.start_soon(self._pool.warm)
        else:
            agent = (await self._pool.ready()).initialized
        self._context.capabilities = agent.get("agentCapabilities")
        self._context.steers = can_steer(agent)
        self._context.agent_info = handshake.name_of(agent)
        self._agent = agent
        self.made.set()
        return agent

    async def alone(self) -> None:
        """Initialize the agent for a bridge that no client has started.

        If that fails, the next client's `initialize` tries again.
        """
        self._alone = True
        with suppress(RpcError):
            await self._meet()

    async def _meet(self) -> Json:
        """Return the agent's answer to the first client's `initialize`, waiting for it if need be.

        If no client has started the bridge, the agent is asked here. Raises RpcError.
        """
        if self._alone:
            async with self._asking:
                return self._agent or await self._introduce(_NOBODY)
        with anyio.move_on_after(self._context.settings.start_timeout):
            await self.made.wait()
        if self._agent is None:
            raise errors.refused(
                "the client that started this acp-bridge has not initialized it yet: try again"
            )
        return self._agent
