"""The ends that speak version 2: imported only for a client or an agent that does."""

from __future__ import annotations

from collections.abc import Callable

from acp_bridge.core.ends import AgentOfVersion2, ClientOfVersion2
from acp_bridge.core.wire.held import Laned
from acp_bridge.core.wire.peer import Peer


def client_of_version_2(to: Laned) -> ClientOfVersion2:
    """Return the end of a client of version 2; see `Ends.client`."""
    from acp_bridge.versions.second_version import TranslatedOutgoing

    return TranslatedOutgoing(to)


def agent_of_version_2(
    peer: Peer, send: Callable[[bytes], None], heard: Callable[[], None]
) -> AgentOfVersion2:
    """Return the end of an agent of version 2; see `Ends.agent`."""
    from acp_bridge.versions.translated import Translated

    return Translated(peer, send, heard)
