"""Requests that name no session: they are for the agent as a whole, which is several processes.

A request that sets something reaches every living process, and is kept for later ones (R14).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.agents.standing import carries_credentials, sets_something
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.protocol import AUTHENTICATE, LOGOUT, Json
from acp_bridge.core.session.session_context import SessionContext
from acp_bridge.core.sessions.pool import Pool


class Sessionless:
    """Answers `authenticate`, `logout` and other requests that name no session."""

    def __init__(
        self,
        context: SessionContext,
        pool: Pool,
        agent_id: Callable[[str], Awaitable[str | None]],
    ) -> None:
        """`pool` has the agent process that is asked while no session has one.

        `agent_id` returns the id that a session of clients has at the agent.
        """
        self._agent_id = agent_id
        self._context = context
        self._pool = pool

    async def authenticate(self, request: ClientRequest, params: Json) -> Any:
        """Send `authenticate` to the process that asked for a login last; return its answer.

        If none asked, another one gets it. The other processes that asked follow, one after the
        other, or all at once if `params` carry credentials, so that no user is needed. Raises the
        first one's RpcError.
        """
        links = self._context.ready_links
        wanting = [link for link in links if link.requests.login_wanted is not None]
        wanting.sort(key=lambda link: link.requests.login_wanted or 0.0, reverse=True)
        first = wanting[0] if wanting else await self._login_place(params)
        number = self._context.standing.number()
        result = await first.ask_for(request, AUTHENTICATE, params)
        self._pool.note_change(first)
        if not self._context.standing.note(AUTHENTICATE, params, number):
            return result  # a logout, or another login, came after it
        if carries_credentials(params):
            self._tell_others(first, AUTHENTICATE, params)
        else:
            self._context.tasks.start_soon(self._login_at, wanting[1:], params, number)
        return result

    async def _login_place(self, params: Json) -> Link:
        """Return the process for a login that no process has asked for.

        It is the process for the next session; for `params` with credentials any one will do, since
        all others are sent them as well.
        """
        if carries_credentials(params):
            return await self._any()
        return await self._pool.ready()

    async def _login_at(self, links: list[Link], params: Json, number: int) -> None:
        """Send `authenticate` to each process that still wants a login, one after the other.

        `number`: that of the login; a later login or logout ends this.
        """
        for link in links:
            if not self._context.standing.counts(number):
                return
            if link.requests.login_wanted is not None:
                await self._context.standing.tell(link, AUTHENTICATE, params)

    async def logout(self, request: ClientRequest, params: Json) -> Any:
        """Answer `logout`: log out at every process, and forget the parameters of `authenticate`.

        Returns the answer of one process; raises its RpcError.
        """
        self._context.standing.note(LOGOUT, params)
        first = await self._any()
        self._pool.note_change(first)
        self._tell_others(first, LOGOUT, params)
        return await self._ask(first, request)

    async def pass_on(self, request: ClientRequest, params: Json) -> Any:
        """Send a request to one process and return its answer; raises its RpcError.

        While no process lives, the answer is what a feature remembers for it, if one does. A
        request that sets something is sent to all other processes too. One of the agent's own may
        name sessions that are not open: they go under the agent's ids.
        """
        remembered = self._context.remembered.get(request.method)
        if remembered is not None and not self._context.ready_links:
            return remembered
        if ids := {"sessionId", "sessionIds"} & params.keys():
            params = {**params, **{name: await self._at_agent(params[name]) for name in ids}}
            return await (await self._any()).ask_for(request, request.method, params)
        first = await self._any()
        if not sets_something(request.method):
            return await first.ask_for(request, request.method, request.params)
        number = self._context.standing.number()
        result = await self._ask(first, request)
        self._pool.note_change(first)
        if self._context.standing.note(request.method, params, number):
            self._tell_others(first, request.method, params)
        return result

    async def _at_agent(self, named: object) -> object:
        """Return the id, or the ids, of sessions as the agent has them; raises RpcError."""
        if isinstance(named, list):
            return [await self._at_agent(each) for each in named]
        return (await self._agent_id(named) or named) if isinstance(named, str) else named

    async def _ask(self, link: Link, request: ClientRequest) -> Any:
        """Send a process the request and return its answer; raises RpcError, also if it is late."""
        method, seconds = request.method, self._context.settings.request_timeout
        try:
            with link.at_clients.limit(seconds):
                return await link.ask_for(request, method, request.params)
        except TimeoutError:
            raise errors.silent(method, seconds) from None

    async def _any(self) -> Link:
        links = self._context.ready_links
        return links[-1] if links else await self._pool.ready()

    def _tell_others(self, first: Link, method: str, params: Json) -> None:
        """Send a request to every process but `first`, without waiting for answers (P6)."""
        for link in self._context.ready_links:
            if link is not first:
                self._context.tasks.start_soon(self._context.standing.tell, link, method, params)
