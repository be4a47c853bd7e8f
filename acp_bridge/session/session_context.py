"""What all sessions of one bridge share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from anyio.abc import TaskGroup

from acp_bridge.agents.command import AgentCommand
from acp_bridge.agents.identity import AgentIdentity
from acp_bridge.agents.link import Link, Owner
from acp_bridge.agents.standing import StandingRequests
from acp_bridge.journal import Journal
from acp_bridge.listening.holder import Holder
from acp_bridge.open_files import OpenFiles
from acp_bridge.protocol import SOCKET_PROTOCOL, has
from acp_bridge.session.reloads import SeenReloads
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
    #: where other clients reach this bridge; None: nowhere.
    socket: Path | None = None
    #: whether there is room for one more session.
    open_files: OpenFiles = field(default_factory=OpenFiles)
    #: told when a session may have begun or ended its work.
    note_work: Callable[[], None] = field(default=lambda: None)
    #: whether the agent was seen to take up a session again.
    reloads: SeenReloads = field(init=False)
    #: every process that somebody has, in the order of their making; one that nobody has any more,
    #: started or not, is forgotten.
    _links: WeakKeyDictionary[Link, None] = field(init=False, default_factory=WeakKeyDictionary)

    def __post_init__(self) -> None:
        """Whether the agent can reload is kept in the journal."""
        self.reloads = SeenReloads(self.journal.index, self.settings)

    @property
    def standing(self) -> StandingRequests:
        """What every process of the agent is told."""
        return self.command.standing

    @property
    def identity(self) -> AgentIdentity:
        """How the sessions of this agent are told from those of others."""
        settings = self.settings
        info = None if settings.named else self.agent_info
        return AgentIdentity(settings.agent_name, settings.former_names, info)

    @property
    def holder(self) -> Holder | None:
        """What stands in the lock files of the sessions of this bridge."""
        if self.socket is None:
            return None
        ours = self.identity
        return Holder(str(self.socket), SOCKET_PROTOCOL, ours.name, ours.info)

    @property
    def agent_replays(self) -> bool:
        """True when the agent gives a session back by `session/load`, which replays it."""
        resumes = has(self.capabilities, "sessionCapabilities", "resume")
        return has(self.capabilities, "loadSession") and not resumes

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        """Return a link that is not started; `name` is for the log."""
        link = Link(self.command, owner, name, parked=parked)
        self.note_link(link)
        return link

    def note_link(self, link: Link) -> None:
        """Count a process among those of the agent until it is gone."""
        self._links[link] = None

    @property
    def ready_links(self) -> list[Link]:
        """Every process of the agent that has been started and lives, the newest last."""
        return [link for link in self._links if link.initialized and not link.gone]
