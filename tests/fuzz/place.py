"""Where the bridges and agents of a run live, and how one of them is started and judged."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from anyio.abc import TaskGroup

from tests.fuzz.caller import Caller
from tests.fuzz.ledger import Ledger
from tests.fuzz.life import Life
from tests.fuzz.owned import Owned
from tests.fuzz.prompts import Guest
from tests.support.client import RecordingClient
from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.gates import Gates
from tests.support.processes import MARK, kill_marked, marked
from tests.support.recording import Recording


@dataclass
class Place:
    """One run's folder, its bridges, and what is known of them."""

    folder: Path
    behaviours: tuple[str, ...]
    options: Sequence[str]
    ledger: Ledger = field(default_factory=Ledger)
    #: the bridges outlive their clients.
    keeps: bool = False
    #: every bridge of the run, by its number.
    lives: list[Life] = field(default_factory=list)
    #: what each client saw.
    recordings: list[Recording] = field(default_factory=list)
    #: runs the contexts of bridges and clients.
    tasks: TaskGroup = field(init=False)

    @property
    def log(self) -> FixtureLog:
        return FixtureLog(self.folder / "agent.log")

    @property
    def home(self) -> Path:
        return self.folder / "bridge"

    @property
    def living(self) -> list[Life]:
        """The bridges that live, the oldest first."""
        return [life for life in self.lives if life.number in self.ledger.alive]

    @property
    def cwd(self) -> str:
        """The folder of all sessions."""
        return str(self.folder / "project")

    def pids(self) -> set[int]:
        """The pids of all processes of the run."""
        return {pid for life in self.living for pid in marked(life.mark)}

    def kill_all(self) -> None:
        """Nothing of the run is left."""
        for life in self.lives:
            kill_marked(life.mark)

    def said(self) -> str:
        """The log of the bridges that were kept."""
        log = self.home / "bridge.log"
        return log.read_text() if log.exists() else ""

    async def start(self, guest: Guest | None = None, *, plain: bool = False) -> Life:
        """A bridge; `plain`: with an agent that behaves well, and without options.

        `guest`: the client that starts it is this one.
        """
        owned = await Owned.open(self.tasks, self._bridge(guest, plain=plain))
        owned.value.owned = owned
        return owned.value

    @asynccontextmanager
    async def _bridge(self, guest: Guest | None, *, plain: bool) -> AsyncIterator[Life]:
        behaviours = () if plain else self.behaviours
        options = () if plain else self.options
        agent = fixture_command(*behaviours)
        command = [sys.executable, "-m", "acp_bridge", *options, "--", *agent]
        mark = uuid4().hex
        async with Gates() as gates:
            env = {
                **gates.env,
                **self.log.env,
                "ACP_BRIDGE_HOME": str(self.home),
                "ACP_BRIDGE_LOG_LEVEL": "info",
                "FIXTURE_HOME": str(self.folder / "agent"),
                MARK: mark,
            }
            async with RecordingClient.start(command, env=env) as client:
                number = len(self.lives)
                first = Caller(client, self.ledger, number, guest)
                if guest:
                    guest.life, guest.began = number, time.monotonic()
                self.recordings.append(client.recording)
                life = Life(self, number, first, gates, behaviours, mark)
                life.keeps = self.keeps and not plain
                self.lives.append(life)
                self.ledger.alive.add(number)
                yield life

    async def leave(self, life: Life) -> None:
        """A bridge has ended: judge what all its clients were told. Raises Lost."""
        await life.leave()
        self.ledger.alive.discard(life.number)
        self.note_end()
        for caller in life.callers:
            self.judge(life, caller)
        assert life.owned
        await life.owned.close()

    def note_end(self) -> None:
        """A bridge has ended."""
        self.ledger.turns.append(len(self.log.turns()))
        for other in self.living:
            other.note_end_of_another()

    def judge(self, life: Life, caller: Caller) -> None:
        """Judge what one client was told, once, when its connection has ended. Raises Lost."""
        if caller.judged:
            return
        caller.judged = True
        self.ledger.judge_life(
            caller.client.recording,
            life.said,
            caller.prompts,
            quiet=caller.quiet,
            guest=caller.guest,
            company=self.ledger.several or len(life.callers) > 1 or life.keeps,
            declared=caller.declared,
            ends=caller.ends,
            drops=caller.drops,
        )
