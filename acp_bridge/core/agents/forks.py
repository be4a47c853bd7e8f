"""Knows the forks that an agent's process has made of its session, for questions beside it.

What the agent says of a fork goes to its question, and not to the session.
"""

from __future__ import annotations

from typing import Any, Protocol

from acp_bridge.core.wire.peer import Call, Peer


class Beside(Protocol):
    """Gets the messages of a process about one fork of its session."""

    def on_update(self, params: dict[str, Any]) -> None:
        """Handle a `session/update` with these parameters."""

    def on_agent_request(self, peer: Peer, call: Call) -> None:
        """Answer a request of the agent's at once."""


class Forks:
    """The forks that one process has made of its session, by their ids at the agent.

    A fork is for a question beside the session: the agent's messages there go to the question, and
    not to the session. It is known until the process ends.
    """

    def __init__(self) -> None:
        """Begin without forks."""
        self._forks: dict[str, Beside] = {}

    @property
    def some(self) -> bool:
        """True if the process has made any fork."""
        return bool(self._forks)

    def has(self, agent_session_id: str) -> bool:
        """Return True if a fork has this id."""
        return agent_session_id in self._forks

    def add(self, agent_session_id: str, fork: Beside) -> None:
        """Give `fork` the messages under this id from now on."""
        self._forks[agent_session_id] = fork

    def take_update(self, params: dict[str, Any]) -> bool:
        """Hand an update to the fork that it is about; returns False when it is about none."""
        if fork := self._of(params):
            fork.on_update(params)
        return fork is not None

    def take_request(self, peer: Peer, call: Call) -> bool:
        """Let the fork that a request is about answer it; returns False when it is about none."""
        if fork := self._of(call.params):
            fork.on_agent_request(peer, call)
        return fork is not None

    def _of(self, params: Any) -> Beside | None:
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        return self._forks.get(session_id) if isinstance(session_id, str) else None
