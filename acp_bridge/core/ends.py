"""The seam between bytes and a peer: what an end of the wire puts in between.

An end is a client or an agent. Core speaks version 1 of ACP with both. An end of version 2
translates what passes, and a trace records it. Core knows neither; `serving.py` hands both in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from acp_bridge.core.agents.activity import Activity
from acp_bridge.core.wire.held import Laned
from acp_bridge.core.wire.jsonrpc import Heard, Message
from acp_bridge.core.wire.peer import Peer
from acp_bridge.core.wire.streams import Incoming, Lines, Outgoing, Streams


class Trace(Protocol):
    """Records what passes on the wire."""

    def of_client(self, incoming: Incoming, outgoing: Outgoing) -> Streams:
        """Return a client's streams, recorded."""

    def of_agent(self, outgoing: Outgoing) -> tuple[Heard, Outgoing]:
        """Return what is told of each line of an agent, and the stream to it, recorded."""


class ClientOfVersion2(Laned, Protocol):
    """The stream to a client of version 2, which takes lines of version 1."""

    def reader(self) -> Callable[[Message], Iterable[Message]]:
        """Return a function that turns a message of the client into messages of version 1."""


class AgentOfVersion2(Lines, Protocol):
    """Stands between the peer and an agent of version 2."""

    @property
    def agreed(self) -> bool:
        """True once the agent has answered `initialize` as version 2 has it."""

    def activity(self, session_id: str | None) -> Activity:
        """Return what the agent says that it does in a session."""

    def send(self, line: bytes) -> None:
        """Translate one message of the peer, a line, and send it to the agent."""

    def tell_lines(self, heard: Heard) -> None:
        """Have `heard` told of every line of the agent."""

    def feed(self, data: bytes) -> None:
        """Translate bytes from the agent for the peer."""

    def eof(self) -> None:
        """Translate what is left of the agent's output at its end, and tell the peer of the end."""


class Ends(Struct, frozen=True):
    """What one bridge puts between bytes and its peers; nothing by default."""

    #: records what passes.
    trace: Trace | None = None
    #: gets the stream to a client; None: clients of version 2 are answered in version 1.
    client: Callable[[Laned], ClientOfVersion2] | None = None
    #: gets the peer, what takes bytes for the agent, and what is called when `activity` may have
    #: changed; None: agents are asked for version 1 alone.
    agent: Callable[[Peer, Callable[[bytes], None], Callable[[], None]], AgentOfVersion2] | None = (
        None
    )
