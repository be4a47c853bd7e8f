"""Starts an agent as the bridge does, asks it for a session, and kills its whole process tree.

The session gets no prompt. It is closed and deleted as far as the agent can do that. No login is
tried. The built-in agent is asked for none: it refuses none, and makes its folder for the first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core.agents.link import AgentCommand, Link, Owner
from acp_bridge.core.agents.spoken_version import SpokenVersion
from acp_bridge.core.clients.handshake import hello
from acp_bridge.core.ends import Ends
from acp_bridge.core.protocol import SESSION_CLOSE, SESSION_DELETE, SESSION_NEW, Json
from acp_bridge.core.records import replace
from acp_bridge.core.runtime import waits
from acp_bridge.core.session.opening import Opening, Workspace, in_time
from acp_bridge.core.sessions.pool import Pool
from acp_bridge.core.settings import Settings
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.versions.ends import agent_of_version_2

#: how a session is ended: the ability that an agent needs for it, and the method.
_ENDINGS: Final = (("close", SESSION_CLOSE), ("delete", SESSION_DELETE))


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial of an agent."""

    #: why it did not come to a session; None if it did.
    error: RpcError | None = None
    #: its answer to `initialize`, as version 1 has it; None if it gave none.
    result: Json | None = None
    #: how many seconds after the start the answer came.
    seconds: float = 0.0
    #: the first line on stdout that is no message.
    noise: str | None = None
    #: the version of ACP that was spoken.
    version: int = 0
    #: it has opened a session.
    opened: bool = False


class _Source:
    """Makes the links of the trial's processes."""

    def __init__(self, tasks: TaskGroup, command: AgentCommand) -> None:
        self.tasks, self.command = tasks, command

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        return Link(self.command, owner, name, parked=parked)


async def try_agent(settings: Settings) -> Trial:
    """Start an agent, open a session in it as the bridge does, end it; returns how that went.

    The session's folder is the one in which agents start: an agent may look at what stands there,
    and refuse a session for it.
    """
    spoken = SpokenVersion(settings.agent_protocol)
    command = AgentCommand(
        settings.command,
        hello("acp-bridge doctor"),
        version=spoken,
        folder=settings.folder,
        name=settings.agent_name,
        keys_in=settings.home,
        ours=settings.ours,
        ends=Ends(agent=agent_of_version_2),
    )
    async with anyio.create_task_group() as tasks:
        pool = Pool(_Source(tasks, command), lambda: None, settings.start_timeout)
        trial, began = Trial(), anyio.current_time()
        try:
            link = await pool.ready()
            seconds = anyio.current_time() - began
            trial = Trial(None, link.initialized, seconds, link.noise, spoken.asks)
            if not settings.builtin:
                await pool.take_for(partial(_open_and_end, settings))
                trial = replace(trial, opened=True)
        except RpcError as error:
            trial = replace(trial, error=error)
        finally:
            with anyio.CancelScope(shield=True):  # bounded
                await pool.close(waits.CLOSE_GRACE)
    return trial


async def _open_and_end(settings: Settings, link: Link) -> None:
    """Open a session in a process and end both; raises RpcError if it opens none."""
    try:
        opening = Opening(link, Workspace(settings.folder or os.getcwd()))
        await in_time(link, SESSION_NEW, settings.request_timeout, opening.new)
        with anyio.move_on_after(waits.UNDO):
            for ability, method in _ENDINGS:
                if link.can("sessionCapabilities", ability):
                    with suppress(RpcError):
                        await link.ask(method, {"sessionId": link.agent_session_id})
    finally:
        with anyio.CancelScope(shield=True):  # bounded
            await link.close(waits.CLOSE_GRACE)
