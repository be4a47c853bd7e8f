"""What all sessions of one bridge share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from anyio.abc import TaskGroup

from acp_bridge.core.agents.connection import AgentCommand, Connection, OfSession, can_share
from acp_bridge.core.agents.holder import Holder
from acp_bridge.core.agents.identity import AgentIdentity
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process_pool import ProcessPool, Sharing
from acp_bridge.core.agents.standing import StandingRequests
from acp_bridge.core.clients.client import Client
from acp_bridge.core.journal import Journal, JournalError
from acp_bridge.core.journal.index import Reloads
from acp_bridge.core.protocol import SOCKET_PROTOCOL, Json, as_object, has
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.open_files import OpenFiles
from acp_bridge.core.session.core import Core, SessionState
from acp_bridge.core.session.feature import Found, Plugin
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.settings import Settings


class Kept(Protocol):
    """Has the record of the agents that were seen to reload a session (`journal.index.Index`)."""

    reloads: Reloads


class Follows(Protocol):
    """Follows all sessions of a bridge, to tell the user (`notify.notifier.Notifier`)."""

    def follow(self, core: Core, after: SessionState, *, held: bool) -> None:
        """Note the state of a session; `held`: the bridge holds its queue, not the user."""

    def note_death(self, core: Core) -> None:
        """Note that the agent of a session has died."""


class SeenReloads:
    """Tells whether the agent was seen to take up a session again, and so may be ended meanwhile.

    That is kept for all bridges by the name and version that the agent gives itself. Of an agent
    without a version, which can be upgraded unseen, only what this bridge has seen counts. No
    method raises.
    """

    def __init__(self, kept: Kept, settings: Settings) -> None:
        """Nothing was seen yet."""
        self._kept = kept.reloads
        self._settings = settings
        #: names and versions of which this bridge has seen a reload.
        self._here: set[tuple[str, str]] = set()

    @property
    def is_ours(self) -> bool:
        """True for the built-in agent: every child process of it is a tool at work."""
        return self._settings.builtin

    async def seen(self, link: Link) -> bool:
        """Return True if a reload of the agent of this process has worked."""
        name, version = self._known_as(link)
        if self._settings.builtin or (not version and (name, version) in self._here):
            return True
        if not version:
            return False
        try:
            return await self._kept.seen(name, version)
        except JournalError as exc:
            event("journal.failed", what=exc)
            return False

    async def note(self, link: Link) -> None:
        """Note that a process of the agent has taken up a session that another one had."""
        known = self._known_as(link)
        if known in self._here or self._settings.builtin:
            return
        self._here.add(known)
        if known[1]:
            await _tried(self._kept.note(*known))

    async def forget(self, link: Link) -> None:
        """Note that a process of the agent has refused a session that it should know."""
        known = self._known_as(link)
        self._here.discard(known)
        if known[1]:
            await _tried(self._kept.forget(*known))

    def _known_as(self, link: Link) -> tuple[str, str]:
        """Return the agent's name, the bridge's if it gives none, and its version or ""."""
        info = as_object(link.initialized.get("agentInfo"))
        name, version = info.get("name"), info.get("version")
        return (
            name if isinstance(name, str) and name else self._settings.agent_name,
            version if isinstance(version, str) else "",
        )


async def _tried(work: Awaitable[None]) -> None:
    try:
        await work
    except JournalError as exc:
        event("journal.failed", what=exc)


@dataclass(slots=True)
class SessionContext:
    """What all sessions of a bridge use: settings, journal, tasks, and how agents are started."""

    settings: Settings
    journal: Journal
    tasks: TaskGroup
    #: how an agent is started; `initialize` is empty before a client has said what to tell.
    command: AgentCommand
    #: what the agent said in `initialize` that it can do; None before that.
    capabilities: object = None
    #: the agent takes words into a turn that runs.
    steers: bool = False
    #: the name that the agent gives itself in `initialize`; None if it has none, or before that.
    agent_info: str | None = None
    #: where other clients reach this bridge; None: nowhere.
    socket: Path | None = None
    #: whether there is room for one more session.
    open_files: OpenFiles = field(default_factory=OpenFiles)
    #: what is plugged in, in the order in which a session calls its features.
    plugins: Sequence[Plugin] = ()
    #: told when a session may have begun or ended its work.
    note_work: Callable[[], None] | None = None
    #: tells the user when a session waits; None: the user wants to be told nothing.
    notifier: Follows | None = None
    #: whether the agent was seen to take up a session again.
    reloads: SeenReloads = field(init=False)
    #: by method, the answer to a request that names no session, while no process lives.
    remembered: dict[str, Json] = field(default_factory=dict)
    #: all living processes of the agent, and what is decided about them.
    processes: ProcessPool[OfSession] = field(init=False, default_factory=ProcessPool)

    def __post_init__(self) -> None:
        """Make `reloads`, whose record is kept in the journal's index."""
        self.reloads = SeenReloads(self.journal.index, self.settings)

    async def find(self, cwd: str) -> list[Found]:
        """Return what the plugins find for a session in the folder `cwd`."""
        finds = [plugin.find for plugin in self.plugins if plugin.find]
        return [await find(self.settings, cwd) for find in finds]

    @property
    def kept_params(self) -> frozenset[str]:
        """The parameters of requests that open a session which stay with the session."""
        return frozenset[str]().union(*(plugin.keeps for plugin in self.plugins))

    def check_opening(self, client: Client, given: Json) -> None:
        """Raise RpcError if a plugin refuses the parameters of a request that opens a session."""
        for plugin in self.plugins:
            if plugin.check:
                plugin.check(client, given, self.capabilities)

    @property
    def standing(self) -> StandingRequests:
        """The logins, logouts and settings that every process of the agent is given."""
        return self.command.standing

    @property
    def identity(self) -> AgentIdentity:
        """The names by which this agent's sessions are told from those of other agents."""
        settings = self.settings
        info = None if settings.named else self.agent_info
        return AgentIdentity(settings.agent_name, settings.former_names, info)

    @property
    def holder(self) -> Holder | None:
        """The content of this bridge's lock files, its socket and agent; None without a socket."""
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
        """Return a link that is not started; `name` and `parked` are those of `Link`."""
        return Link(Connection(self.command, name, self.processes), owner, name, parked=parked)

    @property
    def shares(self) -> Sharing:
        """How the sessions of the agent may share a process."""
        single = self.settings.process_per_session
        if single or self.settings.ours or self.command.parent:
            return Sharing.NEVER
        from acp_bridge.core.agents.known_agents import seen_to_share  # not for the first session

        seen = Sharing(seen_to_share().get(self.agent_info or "", Sharing.NEVER))
        if not can_share(self.capabilities):
            return seen if seen is Sharing.FRESH else Sharing.NEVER
        return Sharing.RESTING if single is False else seen

    def leaves_nothing(self, workspace: Workspace) -> bool:
        """Return True if a new session leaves nothing behind in a process that it leaves.

        A session that the agent can't close stays there, with its MCP servers.
        """
        closes = has(self.capabilities, "sessionCapabilities", "close")
        return closes or not workspace.mcp_servers

    @property
    def ready_links(self) -> list[Link]:
        """One link of every process that has been started and lives, the newest process last."""
        newest = [[*process][-1] for process in self.processes.ready]
        return [link for link in newest if isinstance(link, Link)]
