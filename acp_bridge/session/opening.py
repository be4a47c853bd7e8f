"""How a process gets a session again: resume or load, then the user's settings.

The order and the fall-backs are those of the design's decision table; whoever calls has made
sure that no other process has the session open (HAZARDS P12).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from acp_bridge.agents.link import Link
from acp_bridge.wire.jsonrpc import ErrorCode, RpcError

Json = dict[str, Any]

FORGOT_YOUNG = (
    "[acp-bridge] The agent did not keep this session, since no turn of it had ended. It goes on"
    " as a new session of the agent: what was said before is shown here, but the agent does not"
    " remember it."
)
MEMORY_LOST = (
    "[acp-bridge] Memory lost: this agent can neither load nor resume sessions, and its process"
    " had to be started again. It does not remember what was said before."
)


class Refused(Exception):
    """The process does not take the session; `permanent` when another try is useless."""

    def __init__(self, why: str, *, permanent: bool) -> None:
        super().__init__(why)
        self.permanent = permanent


class AuthNeeded(Exception):
    """The process wants the client to authenticate; `error` is its answer."""

    def __init__(self, error: RpcError) -> None:
        super().__init__("authentication required")
        self.error = error


@dataclass(frozen=True, slots=True)
class Setup:
    """What the client gave with `session/new`, `load` or `resume`; MCP servers are never kept
    on disk."""

    cwd: str
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: tuple[Any, ...] = ()
    extra: Json = field(default_factory=dict)

    @property
    def roots(self) -> tuple[str, ...]:
        """The additional roots; leaving them out and giving none is the same (spec)."""
        return self.additional_directories or ()

    def params(self, session_id: str | None = None) -> Json:
        """The parameters for the agent."""
        params: Json = {**self.extra, "cwd": self.cwd, "mcpServers": list(self.mcp_servers)}
        if self.additional_directories is not None:
            params["additionalDirectories"] = list(self.additional_directories)
        if session_id is not None:
            params["sessionId"] = session_id
        return params


@dataclass(slots=True)
class Reopening:
    """One try to give a session to a process."""

    link: Link
    setup: Setup
    agent_session_id: str | None
    #: turns that the agent itself has ended: one that never ended any may forget the session.
    turns_finished: int
    #: parameters of `authenticate` that may be repeated to a later process.
    credentials: Json | None
    notice: Callable[[str], None]
    #: the session was loaded: the agent replays it, some agents later than they should.
    replays: bool = False

    async def run(self) -> Json:
        """The agent's answer, with `link.agent_session_id` set; raises Refused, AuthNeeded."""
        link = self.link
        if self.agent_session_id is not None:
            # Set before the call: what the agent replays meanwhile belongs to the session.
            link.agent_session_id = self.agent_session_id
            for method in self._methods():
                try:
                    result = await self._ask(method, self.setup.params(self.agent_session_id))
                    self.replays = method == "session/load"
                    return result
                except RpcError as exc:
                    refusal = exc
            if self._methods() and self.turns_finished:
                raise Refused(
                    f"the agent would not load the session: {refusal.message}",
                    permanent=refusal.code == ErrorCode.RESOURCE_NOT_FOUND,
                ) from refusal
        return await self._anew()

    def _methods(self) -> list[str]:
        methods = []
        if self.link.can("sessionCapabilities", "resume"):
            methods.append("session/resume")
        if self.link.can("loadSession"):
            methods.append("session/load")
        return methods

    async def _anew(self) -> Json:
        self.link.park()
        try:
            result = await self._ask("session/new", self.setup.params())
        except RpcError as exc:
            why = f"the agent would not open a session: {exc.message}"
            raise Refused(why, permanent=False) from exc
        session_id = result.get("sessionId")
        if not isinstance(session_id, str):
            raise Refused("the agent gave no session id", permanent=False)
        self.link.agent_session_id = session_id
        if self.agent_session_id is not None:
            self.notice(FORGOT_YOUNG if self._methods() else MEMORY_LOST)
        return result

    async def _ask(self, method: str, params: Json) -> Json:
        while True:
            try:
                result = await self.link.ask(method, params)
            except RpcError as exc:
                if exc.code != ErrorCode.AUTH_REQUIRED:
                    raise
                await self._authenticate(exc)
            else:
                return result if isinstance(result, dict) else {}

    async def _authenticate(self, error: RpcError) -> None:
        """Repeat the client's `authenticate`, once a process."""
        if self.credentials is None or self.link.authenticated:
            raise AuthNeeded(error)
        self.link.authenticated = True
        try:
            await self.link.ask("authenticate", self.credentials)
        except RpcError:
            raise AuthNeeded(error) from None
