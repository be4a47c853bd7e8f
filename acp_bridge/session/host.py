"""What a session needs of the bridge that runs it."""

from __future__ import annotations

from typing import Any, Final, Protocol

from anyio.abc import TaskGroup

from acp_bridge.agents.link import AgentCommand
from acp_bridge.journal import Journal
from acp_bridge.lobby import Lobby
from acp_bridge.relay import ClientAbilities
from acp_bridge.settings import Settings
from acp_bridge.wire.peer import Peer
from acp_bridge.wire.stdio import Writer

#: returned by work that has answered its request itself.
ANSWERED: Final = object()


class Host(Protocol):
    """The bridge, as a session sees it."""

    settings: Settings
    command: AgentCommand
    client: Peer
    writer: Writer
    abilities: ClientAbilities
    journal: Journal
    tasks: TaskGroup
    lobby: Lobby
    #: parameters of `authenticate` that may be repeated to a later process.
    credentials: dict[str, Any] | None
    #: the client asked to be told when a prompt is accepted.
    tells_accepted: bool
