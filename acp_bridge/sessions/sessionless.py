"""Requests that name no session: they are for the agent as a whole, which is several processes.

What sets something reaches every process that lives, and is kept for those to come (R14).
"""

from __future__ import annotations

from typing import Any

from acp_bridge import errors
from acp_bridge.agents.link import Link
from acp_bridge.agents.standing import carries_credentials, sets_something
from acp_bridge.clients.client import ClientRequest
from acp_bridge.protocol import AUTHENTICATE, LOGOUT, Json
from acp_bridge.session.session_context import SessionContext
from acp_bridge.sessions.pool import Pool


class Sessionless:
    """Answers `authenticate`, `logout` and other requests that name no session."""

    def __init__(self, context: SessionContext, pool: Pool) -> None:
        """`pool` has the process that is asked while no session has one."""
        self._context = context
        self._pool = pool

    async def authenticate(self, request: ClientRequest, params: Json) -> Any:
        """Log in at the processes that want a login, the last to ask first.

        That is every process that asked for a login, one after the other, and every one at all
        if the login needs no user. Raises the first one's RpcError.
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
        """Return the process for a login that none has asked for: that of the next session.

        For credentials any process will do, since the others are given them as well.
        """
        if carries_credentials(params):
            return await self._any()
        return await self._pool.ready()

    async def _login_at(self, links: list[Link], params: Json, number: int) -> None:
        """Let the user log in at one process after the other, until a logout."""
        for link in links:
            if not self._context.standing.counts(number):
                return
            if link.requests.login_wanted is not None:
                await self._context.standing.tell(link, AUTHENTICATE, params)

    async def logout(self, request: ClientRequest, params: Json) -> Any:
        """Log out everywhere; the parameters of `authenticate` are forgotten at once."""
        self._context.standing.note(LOGOUT, params)
        first = await self._any()
        self._pool.note_change(first)
        self._tell_others(first, LOGOUT, params)
        return await self._ask(first, request)

    async def pass_on(self, request: ClientRequest, params: Json) -> Any:
        """Send a request to one process, or to all if it sets something."""
        first = await self._any()
        if not sets_something(request.method):
            return await first.ask_for(request, request.method, request.params)
        number = self._context.standing.number()
        result = await self._ask(first, request)
        self._pool.note_change(first)
        if self._context.standing.note(request.method, params, number):
            self._tell_others(first, request.method, params)
        return result

    async def _ask(self, link: Link, request: ClientRequest) -> Any:
        """Return the agent's answer, which must come in time; raises RpcError."""
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
        """Send the request to every other process, without a wait for slow ones (invariant P6)."""
        for link in self._context.ready_links:
            if link is not first:
                self._context.tasks.start_soon(self._context.standing.tell, link, method, params)
