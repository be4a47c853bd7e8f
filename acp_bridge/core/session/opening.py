"""Opens a session in an agent's process: a new one, or the agent's own again by resume or load.

- Nothing else does. The caller sees to it that no other process has it open (invariant P12).
- Resume comes before load, load before a new session (invariants C8, C9, R10).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.protocol import (
    SESSION_FORK,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_RESUME,
    ErrorCode,
    Json,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.updates import notices
from acp_bridge.core.updates.odd_answers import made_id, opened
from acp_bridge.core.wire.jsonrpc import RpcError

#: characters of the data of an agent's error that are told.
_DETAILS: Final = 1000


class Refused(Exception):
    """The process does not take the session; `permanent` when another try is useless."""

    def __init__(self, why: str, *, permanent: bool) -> None:
        super().__init__(why)
        self.permanent = permanent


class NotLoaded(Refused):
    """The process does not load a session that it should remember."""


class Workspace(Struct, frozen=True):
    """A session's folders and MCP servers, as `session/new`, `load` or `resume` gave them.

    MCP servers are never kept on disk.
    """

    cwd: str
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: tuple[Any, ...] = ()
    extra: Json = field(default_factory=dict)
    #: the parameters that stay with the session (`kept_params`); those in `extra` are newer.
    kept: Json = field(default_factory=dict)

    @property
    def roots(self) -> tuple[str, ...]:
        """The additional roots; leaving them out and giving none is the same (spec)."""
        return self.additional_directories or ()

    def params(self, session_id: str | None = None) -> Json:
        """Return the parameters of a request that opens the session; `session_id`: the agent's."""
        params: Json = {**self.kept, **self.extra, "cwd": self.cwd}
        params["mcpServers"] = list(self.mcp_servers)
        if self.additional_directories is not None:
            params["additionalDirectories"] = list(self.additional_directories)
        if session_id is not None:
            params["sessionId"] = session_id
        return params


class Known(Struct, frozen=True):
    """The agent's own session to be opened again, as far as the bridge knows it."""

    #: None when the agent never named one.
    agent_session_id: str | None
    #: False when the agent may forget the session, since it ended no turn of it.
    remembered: bool
    #: False when the agent has had no prompt: nothing that was said can be forgotten.
    begun: bool = True


class Opening:
    """One try to give a session to one process.

    The agent's refusals are raised as they came (RpcError).
    """

    def __init__(self, link: Link, workspace: Workspace, origin: object = None) -> None:
        """`origin`: the request of the client for which the session is opened, if there is one."""
        self._link = link
        self._workspace = workspace
        self._origin = origin
        #: `session/load` was used: the agent replays the session, maybe later than it should.
        self.replays = False
        #: the agent has resumed or loaded the session.
        self.taken_up = False
        #: the session is a new one of the agent, which remembers nothing.
        self.is_new = False

    async def new(self) -> Json:
        """Open a new session; returns the agent's answer and sets `link.agent_session_id`.

        Raises RpcError.
        """
        result = await self._ask(SESSION_NEW, self._workspace.params())
        self._link.agent_session_id = self._new_id(result)
        self._link.note_session()
        self.is_new = True
        return result

    async def fork(self, agent_session_id: str) -> Json:
        """Fork the agent's session with this id, which another process may have, and open the fork.

        Returns and raises as `new`.
        """
        result = await self._ask(SESSION_FORK, self._workspace.params(agent_session_id))
        self._link.agent_session_id = self._new_id(result, besides=agent_session_id)
        self._link.note_session()
        self._link.forked = result
        return result

    def _new_id(self, result: Json, besides: str | None = None) -> str:
        agent_id = new_id(result, besides)
        if self._link.connection.links.has_session(agent_id):
            # Nobody knows any more which of the two the process means: another one is taken.
            event("agent.same_id", agent=self._link.name)
            self._link.connection.doom()
            raise errors.AgentEnded("", killed=True)
        return agent_id

    async def load(self, agent_session_id: str) -> Json:
        """Load a session with its transcript, or resume it if that is all that the agent can.

        Raises RpcError.
        """
        ways = self._ways()
        return await self._take_up(ways[-1] if ways else SESSION_LOAD, agent_session_id)

    async def reopen(self, known: Known, notice: Callable[[str], None]) -> Json:
        """Open a session again after a restart: resume, else load, else a new one with a notice.

        Returns the agent's answer. `notice` shows clients a text. Nothing is sent to a process that
        has just made the session by a fork: it has the session open.

        Raises Refused, or RpcError of code AUTH_REQUIRED.
        """
        if (forked := self._link.take_fork()) is not None:
            return forked
        ways = self._ways()
        refusal: RpcError | None = None
        for way in ways if known.agent_session_id is not None else ():
            try:
                return await self._take_up(way, known.agent_session_id)
            except RpcError as exc:
                if exc.code == ErrorCode.AUTH_REQUIRED:
                    raise
                refusal = exc
        if refusal and known.remembered:
            why = f"the agent would not load the session: {in_words(refusal)}"
            gone = refusal.code == ErrorCode.RESOURCE_NOT_FOUND
            raise NotLoaded(why, permanent=gone) from refusal
        result = await self._new_instead()
        if known.agent_session_id is not None and known.begun:
            notice(notices.FORGOT_YOUNG if ways else notices.MEMORY_LOST)
        return result

    async def _new_instead(self) -> Json:
        self._link.park()
        try:
            return await self.new()
        except RpcError as exc:
            if exc.code == ErrorCode.AUTH_REQUIRED:
                raise
            why = f"the agent would not open a session: {in_words(exc)}"
            raise Refused(why, permanent=False) from exc

    def _ways(self) -> list[str]:
        ways = []
        if self._link.can("sessionCapabilities", "resume"):
            ways.append(SESSION_RESUME)
        if self._link.can("loadSession"):
            ways.append(SESSION_LOAD)
        return ways

    async def _take_up(self, way: str, agent_session_id: str | None) -> Json:
        # Set before the call: what the agent replays meanwhile belongs to the session.
        self._link.agent_session_id = agent_session_id
        result = await self._ask(way, self._workspace.params(agent_session_id))
        self._link.note_session()
        self.taken_up, self.replays = True, way == SESSION_LOAD
        return result

    async def _ask(self, method: str, params: Json) -> Json:
        return opened(await self._link.ask_for_session(self._origin, method, params))


async def in_time(
    link: Link, method: str, seconds: float, work: Callable[[], Awaitable[Json]]
) -> Json:
    """Call `work`, which opens a session by `method`, and return the agent's answer.

    Raises RpcError, with all that is known of the trouble, also if the agent is silent for
    `seconds`; AgentEnded as it is.
    """
    try:
        with link.at_clients.limit(seconds):
            return await work()
    except errors.AgentEnded:
        raise
    except (RpcError, TimeoutError) as failure:
        raise await link.why_not(failure, method, seconds) from failure


def new_id(result: Json, besides: str | None = None) -> str:
    """Return the session's id in an agent's answer; raises RpcError if it has none or `besides`."""
    agent_id = made_id(result)
    if agent_id is None or agent_id == besides:
        raise errors.agent_trouble("the agent gave no session id")
    return agent_id


def in_words(refusal: RpcError) -> str:
    """Return an agent's error as a person reads it: the message, and what its data say."""
    details = errors.details(refusal.data)
    if details in refusal.message:
        return refusal.message
    return f"{refusal.message}: {details[:_DETAILS]}"
