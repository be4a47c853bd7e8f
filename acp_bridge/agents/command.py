"""The command that starts processes of an agent, and the first requests to each of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from acp_bridge.agents.parent import AgentParent
from acp_bridge.agents.process import AgentProcess
from acp_bridge.agents.standing import StandingRequests


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """The agent's command line, at least one word, and the first requests to each process."""

    words: tuple[str, ...]
    initialize: Mapping[str, Any]
    #: the requests that every process is sent after that.
    standing: StandingRequests = field(default_factory=StandingRequests)
    #: the soft limit of open files that each process gets; None: that of the bridge.
    open_files: int | None = None
    #: the folder that each process starts in; None: that of the bridge.
    folder: str | None = None
    #: forks the processes when it can; None: each is started by the command line.
    parent: AgentParent | None = None
    #: the agent is of this project: what it writes to stderr is its log.
    ours: bool = False

    async def start(
        self,
        tasks: TaskGroup,
        lock_fd: int | None,
        on_stderr: Callable[[str], None],
        *,
        patient: bool = False,
    ) -> AgentProcess:
        """Start a process; see `AgentProcess.start`, which raises StartFailed."""
        start = partial(AgentProcess.start, tasks, self.words, self.parent)
        return await start(
            self.open_files, self.folder, patient=patient, lock_fd=lock_fd, on_stderr=on_stderr
        )
