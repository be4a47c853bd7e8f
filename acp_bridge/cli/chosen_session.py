"""Which session a command goes on with: one that the user names, or the last one of this folder."""

from __future__ import annotations

from pathlib import Path

from acp_bridge.agents.identity import AgentIdentity
from acp_bridge.cli.own_bridge import OwnBridge
from acp_bridge.journal.records import SessionInfo
from acp_bridge.terminal import known
from acp_bridge.terminal.harmless import one_line


class OtherAgent(Exception):
    """The session belongs to another agent than the one that would be run; the text says so."""


def chosen(bridge: OwnBridge, given: str | None) -> SessionInfo:
    """Return the session whose id begins with `given`, None: the last one of this folder.

    Raises known.NotFound, OtherAgent.
    """
    settings = bridge.settings
    agent = AgentIdentity(settings.agent_name, settings.former_names)
    if given is not None:
        info = known.session(settings.home, given)
    else:
        info = known.last_used(settings.home, Path.cwd(), agent if bridge.agent_given else None)
    # What an agent says of itself is known only when it runs: its name may have changed.
    by_itself = bridge.agent_given and info.agent_info is not None
    if not by_itself and not agent.owns(info.agent, info.agent_info):
        hint = "" if bridge.agent_given else ": give its command after --"
        session = f"session {info.session_id[:8]}"
        raise OtherAgent(f"{session} is of the agent '{one_line(info.agent)}'{hint}")
    return info
