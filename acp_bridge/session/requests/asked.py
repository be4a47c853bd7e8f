"""A request of a client's, on its way to the agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from acp_bridge.agents.link import Link
from acp_bridge.clients.client import ClientRequest
from acp_bridge.wire.jsonrpc import Answer


@dataclass(slots=True, eq=False)
class Asked:
    """A request on its way to the agent, and who is told of its one answer."""

    request: ClientRequest
    tell: Callable[[Answer], None]
    method: str
    params: Any
    #: it is asked beside the session: nothing of the session depends on it, or waits for it.
    beside: bool = False
    #: takes an answer that comes when somebody has answered in the agent's place.
    tell_late: Callable[[Link, Answer], None] | None = None
    #: the process that has it, and its id there.
    link: Link | None = None
    agent_request: int = 0
    #: the process was told that nobody waits for the answer.
    called_back: bool = False
    #: set when it is answered, by the agent or in its place.
    settled: anyio.Event = field(default_factory=anyio.Event)
