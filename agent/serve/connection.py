"""Runs one connection of the built-in agent.

This module builds the parts; the rest is `agent.serve.sdk_connection`, which OpenHands' agent
shares.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.model import Models
from agent.secrets import Secrets
from agent.serve.acp_agent import AcpAgent
from agent.serve.sdk_connection import Wire, serve_agent
from agent.serve.sdk_transport import SdkTransport
from agent.session.shared_parts import SharedParts
from agent.settings import Settings
from agent.tools.standard import standard_tools


async def serve(
    transport: SdkTransport,
    models: Models,
    settings: Settings,
    secrets: Secrets,
    environment: Mapping[str, str],
    *,
    light: bool = False,
) -> None:
    """Serves until the client has left or a signal asks the process to end.

    `environment`: for processes that tools start. `light`: another process replaces this one before
    a prompt comes.
    """

    def make(wire: Wire) -> AcpAgent:
        shared = SharedParts(
            models=models,
            settings=settings,
            tools=standard_tools(),
            secrets=secrets,
            environment=environment,
            light=light,
            request=wire.request,
            notify=wire.notify,
        )
        return AcpAgent(shared, later=wire.later)

    await serve_agent(transport, make, secrets.mask)
