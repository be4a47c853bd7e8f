"""The folder and the bridges of the demo, and tracks, on which steps follow each other."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anyio.abc import TaskGroup

from acp_bridge.demo.client import Client
from acp_bridge.demo.recording import Recording, Unexpected
from acp_bridge.demo.screen import Section

#: Lines of a bridge's log that are shown when a step could not be finished: the last ones.
_LOG_LINES = 5


@dataclass(slots=True)
class Stage:
    """The things that all tracks share.

    `home` is an empty folder, for everything that is kept; `bridge` is the command.
    """

    home: Path
    bridge: Sequence[str]
    tasks: TaskGroup
    clients: dict[str, Client] = field(default_factory=dict)

    @property
    def recordings(self) -> list[Recording]:
        """The recordings of all clients."""
        return [client.recording for client in self.clients.values()]

    def log(self, name: str) -> Path:
        """Return the path of the log that the bridge of this client writes."""
        return self.home / f"{name}.log"


@dataclass(slots=True)
class Track:
    """Runs steps of which each needs the client and the session of the one before."""

    stage: Stage
    #: the section in which the current step prints.
    section: Section
    #: the client started last.
    client: Client = field(init=False)
    _started: list[str] = field(default_factory=list)

    async def run(self, steps: Sequence[tuple[Section, Step]]) -> None:
        """Run the steps in order; after one that can't be finished, the rest is not tried."""
        failed = False
        for self.section, step in steps:
            if failed:
                self.section.fail("not tried, since a step before it was not finished")
            else:
                try:
                    await step(self)
                except Unexpected as unexpected:
                    failed = True
                    self.section.fail("the step could not be finished", unexpected)
                    self._quote_log()
            self.section.close()

    async def start(self, name: str, *arguments: str) -> Client:
        """Start a bridge and a client for it, and initialize; raises Unexpected.

        Variables with settings for the user's own bridges are left out.
        """
        own = {key: value for key, value in os.environ.items() if not key.startswith("ACP_BRIDGE_")}
        self._started.append(name)
        self.client = self.stage.clients[name] = await Client.start(
            [*self.stage.bridge, *arguments],
            {**own, "ACP_BRIDGE_HOME": str(self.stage.home), "ACP_BRIDGE_MODEL": "demo"},
            self.stage.log(name),
            self.stage.tasks,
            lambda what: self.section.waiting(what),
        )
        await self.client.initialize()
        return self.client

    def _quote_log(self) -> None:
        log = self.stage.log(self._started[-1])
        if log.exists():
            for line in log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]:
                self.section.quote("log:", line)


Step = Callable[[Track], Awaitable[None]]
