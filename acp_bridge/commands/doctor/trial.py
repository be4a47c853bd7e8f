"""Starts an agent as the bridge does, initializes it, and kills its whole process tree.

No session is opened and no login tried, since these would change something at the agent.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from acp_bridge.agents.link import AgentCommand, Link, Owner
from acp_bridge.agents.spoken_version import SpokenVersion
from acp_bridge.bridge_client.connection import hello
from acp_bridge.protocol import Json
from acp_bridge.runtime import waits
from acp_bridge.sessions.pool import Pool
from acp_bridge.settings import Settings
from acp_bridge.wire.jsonrpc import RpcError


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial of an agent."""

    #: why it did not come to a session; None if it has answered `initialize`.
    error: RpcError | None = None
    #: its answer to `initialize`, as version 1 has it.
    result: Json | None = None
    #: how many seconds after the start the answer came.
    seconds: float = 0.0
    #: the first line on stdout that is no message.
    noise: str | None = None
    #: the version of ACP that was spoken.
    version: int = 0


class _Source:
    """Makes the links of the trial's processes."""

    def __init__(self, tasks: TaskGroup, command: AgentCommand) -> None:
        self.tasks, self.command = tasks, command

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        return Link(self.command, owner, name, parked=parked)


async def try_agent(settings: Settings) -> Trial:
    """Start an agent, initialize it as the bridge does, end it; returns how that went."""
    spoken = SpokenVersion(settings.agent_protocol)
    command = AgentCommand(
        settings.command,
        hello("acp-bridge doctor"),
        version=spoken,
        folder=settings.folder,
        name=settings.agent_name,
        keys_in=settings.home,
    )
    async with anyio.create_task_group() as tasks:
        pool = Pool(_Source(tasks, command), lambda: None, settings.start_timeout)
        began = anyio.current_time()
        try:
            link = await pool.ready()
            seconds = anyio.current_time() - began
            trial = Trial(None, link.initialized, seconds, link.noise, spoken.asks)
        except RpcError as error:
            trial = Trial(error=error)
        finally:
            with anyio.CancelScope(shield=True):  # bounded
                await pool.close(waits.CLOSE_GRACE)
    return trial
