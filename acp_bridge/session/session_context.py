"""What all sessions of one bridge share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anyio.abc import TaskGroup

from acp_bridge.agents.command import AgentCommand
from acp_bridge.agents.identity import AgentIdentity
from acp_bridge.agents.link import Link, Owner
from acp_bridge.journal import Journal
from acp_bridge.protocol import Json, has
from acp_bridge.settings import Settings


@dataclass(slots=True)
class SessionContext:
    """The settings, the journal, the tasks, and where agent processes come from."""

    settings: Settings
    journal: Journal
    tasks: TaskGroup
    #: how an agent is started; `initialize` is empty before a client has said what to tell.
    command: AgentCommand
    #: what the agent said in `initialize` that it can do; None before that.
    capabilities: object = None
    #: the name that the agent gives itself in `initialize`; None if it has none, or before that.
    agent_info: str | None = None
    #: parameters of `authenticate` that may be repeated to a later process.
    credentials: Json | None = None
    #: gives away the process that is initialized and has no session, if there is one.
    take_ready: Callable[[], Link | None] = field(default=lambda: None)

    @property
    def identity(self) -> AgentIdentity:
        """How the sessions of this agent are told from those of others."""
        settings = self.settings
        info = None if settings.named else self.agent_info
        return AgentIdentity(settings.agent_name, settings.former_names, info)

    @property
    def agent_replays(self) -> bool:
        """True when the agent gives a session back by `session/load`, which replays it."""
        resumes = has(self.capabilities, "sessionCapabilities", "resume")
        return has(self.capabilities, "loadSession") and not resumes

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        """Return a link that is not started; `name` is for the log."""
        return Link(self.command, owner, name, parked=parked)
