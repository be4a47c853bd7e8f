"""One round: its processes, its clients, and what must hold when something was killed."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import anyio

from acp_bridge.core.settings import Settings
from acp_bridge.terminal.cli.naming import agent_name, former_names
from tests.crash.store import Database
from tests.crash.told import Lost, Told, held_in, judge, pieces, turns
from tests.support.client import FULL_CAPABILITIES, RecordingClient
from tests.support.fixture_agents import V2_AGENT, FixtureLog, fixture_command
from tests.support.inside import inside
from tests.support.joined import joined, listening
from tests.support.model_server import ModelServer
from tests.support.processes import MARK, all_gone, descendants
from tests.support.shared_processes import faults_of_sharing

CAPABILITIES = {**FULL_CAPABILITIES, "_meta": {"acp_bridge": {"accepted": True}}}
#: what the built-in agent says, and the line that makes it ignore a cancel
DIALOGUE = """
when: ^say
echo

when: ^stream
{deaf}
pace: 1
repeat: 500
text: word{{i}}
"""
#: the model of a built-in agent that is to load LiteLLM; its provider is on the loopback.
_MODEL = "openai/gpt-4o"
#: seconds within which every process of a dead bridge is gone (invariant P1).
GONE_WITHIN = 3
#: seconds: settings of every bridge.
DRAIN, SLEEP_AFTER = 0.3, 0.001


@dataclass
class Round:
    """One round's folder, processes, and what its clients were told."""

    rng: random.Random
    home: Path
    #: the agent is the built-in one, whose processes are forked; else the fixture agent.
    built_in: bool = False
    #: the built-in agent's models are this one's, so it loads LiteLLM; else they are scripted.
    provider: ModelServer | None = None
    #: where the sessions are; None: in the folder of the bridge.
    database: Database | None = None
    #: the folder of all that a machine keeps itself.
    machine: str = "bridge"
    mark: str = field(default_factory=lambda: uuid4().hex)
    session_id: str = ""
    #: a prompt may have been cancelled, or its agent killed, without a word to a client.
    cut: bool = False
    #: what may be left over, in order; empty: that is not known.
    held: list[list[str]] = field(default_factory=list)
    #: what was told of the other sessions that client 0 has, by their ids.
    others: dict[str, Told] = field(default_factory=dict)
    #: by the client's number; a client that comes again for another has the same.
    told: dict[int, Told] = field(default_factory=dict)
    #: the agent speaks version 2.
    newer_agent: bool = False
    _prompts: int = 0

    @property
    def patience(self) -> float:
        """Seconds for the answer to a prompt; a model library may have to be imported first."""
        return 60 if self.provider else 15

    @property
    def spoken(self) -> bool:
        """The agent says what `told.words` says."""
        return self.provider is not None or not self.built_in

    @property
    def log(self) -> FixtureLog:
        return FixtureLog(self.home / "agent.log")

    @property
    def bridge_home(self) -> Path:
        return self.home / self.machine

    def bridge(
        self, *behaviours: str, keep: bool = False
    ) -> AbstractAsyncContextManager[RecordingClient]:
        agent, env = self.agent(*behaviours)
        options = ["--keep", "1h"] if keep else []
        command = [sys.executable, "-m", "acp_bridge", *options, *agent]
        return RecordingClient.start(command, env=env)

    @asynccontextmanager
    async def again(self) -> AsyncIterator[RecordingClient]:
        """A bridge with the same agent and folder, which is not killed.

        With the fixture agent it is in this process: to start bridges is half of a round.
        """
        if self.built_in or self.database:
            async with self.bridge() as client:
                yield client
            return
        (_, *command), env = self.agent()
        settings = Settings(
            tuple(command),
            agent_name(command),
            self.bridge_home,
            former_names=former_names(command),
            drain_timeout=DRAIN,
            sleep_after=SLEEP_AFTER,
        )
        with patch.dict(os.environ, env):
            async with inside(settings) as client:
                yield client

    def agent(self, *behaviours: str) -> tuple[list[str], dict[str, str]]:
        """Return a bridge's words for its agent, and its environment."""
        env = {
            "ACP_BRIDGE_HOME": str(self.bridge_home),
            "ACP_BRIDGE_DRAIN_TIMEOUT": str(DRAIN),
            "ACP_BRIDGE_SLEEP_AFTER": str(SLEEP_AFTER),
            "ACP_BRIDGE_PROCESS_PER_SESSION": "off",
            "FIXTURE_HOME": str(self.home / "agent"),
            **self.log.env,
            MARK: self.mark,
            **(self.database.env if self.database else {}),
        }
        agent = ["--", *(V2_AGENT if self.newer_agent else fixture_command(*behaviours))]
        if self.provider:
            agent = ["--model", _MODEL]
            env |= {"OPENAI_API_KEY": "sk-made-up", "OPENAI_BASE_URL": self.provider.openai_url}
            env |= {"ACP_BRIDGE_MODELS": _MODEL, "ACP_BRIDGE_LOG_LEVEL": "info"}
        elif self.built_in:
            dialogue = self.home / "dialogue"
            dialogue.write_text(DIALOGUE.format(deaf="deaf" if behaviours else ""))
            agent = ["--model", f"scripted:{dialogue}"]
        return agent, env

    @asynccontextmanager
    async def joined(self, pid: int) -> AsyncIterator[RecordingClient]:
        """One more client of the bridge with this pid, initialized; see `support.joined`."""
        bridge = await listening(self.bridge_home, pid)
        async with joined(bridge.socket) as client:
            await client.initialize(CAPABILITIES)
            yield client

    async def begin(self, client: RecordingClient) -> None:
        await client.initialize(CAPABILITIES)
        self.session_id = await client.new_session(self.home)

    def text(self, *commands: str) -> str:
        """A prompt of these commands with a word that no other prompt has."""
        self._prompts += 1
        return "; ".join([*commands, f"say w{self._prompts}."])

    # --- what clients were told ----------------------------------------------------------------

    def of(self, number: int) -> Told:
        """What the client with this number was told."""
        return self.told.setdefault(number, Told())

    async def note(self, client: RecordingClient, number: int = 0, *, version: int = 1) -> None:
        """What a client that was cut off had been told: everything up to the end of its pipe."""
        with anyio.fail_after(GONE_WITHIN):
            await client.closed.wait()
        self.note_so_far(client, number, version=version)

    def note_so_far(self, client: RecordingClient, number: int = 0, *, version: int = 1) -> None:
        told = self.of(number)
        (told.note if version == 1 else told.note_v2)(client)
        for other in self.others.values() if number == 0 else ():
            other.note(client)
        if b"Traceback" in client.stderr:
            raise Lost(f"the bridge's log: {client.stderr[-3000:].decode()}")

    # --- afterwards ----------------------------------------------------------------------------

    def move(self, database: Database) -> None:
        """What comes is at the other machine of two, where nothing is seen of this one.

        All processes of this one are dead.
        """
        self.machine = "elsewhere" if self.machine == "bridge" else "bridge"
        database.leases_end()

    async def check(self) -> None:
        """A new bridge loads the session twice: all is there, the same each time."""
        async with self.again() as client:
            await client.initialize(CAPABILITIES)
            await self._check_session(client, self.session_id, list(self.told.values()))
            for session_id, told in self.others.items():
                await self._check_session(client, session_id, [told])
        await self.nothing_left()
        for fault in faults_of_sharing(self.log.events()):
            raise Lost(fault)

    async def _check_session(
        self, client: RecordingClient, session_id: str, told: list[Told]
    ) -> None:
        result = await client.load_session(session_id, self.home)
        said, held = agent_text(client, session_id), held_in(result)
        if self.held and held not in self.held:
            raise Lost(f"left over: {held}, and not one of {self.held}")
        shown = turns(client.recording.updates(session_id))
        judge(told, shown, held, cut=self.cut, spoken=self.spoken)
        mark = client.mark()
        again = await client.load_session(session_id, self.home)
        if agent_text(client, session_id, mark) != said or held_in(again) != held:
            raise Lost("a second load shows something else")
        answer = await client.prompt("say after", within=self.patience)
        if answer != {"stopReason": "end_turn"}:
            raise Lost(f"the session is of no use any more: {answer}")

    async def nothing_left(self) -> None:
        try:
            await all_gone(self.mark, GONE_WITHIN)
        except TimeoutError as exc:
            raise Lost(str(exc)) from exc


def agent_text(client: RecordingClient, session_id: str, since: int = 0) -> str:
    """What the agent said to this client, without what the bridge said by itself."""
    return "".join(pieces(client.recording.updates(session_id, since=since)))


# --- the kills -------------------------------------------------------------------------------


def kill_bridge(client: RecordingClient) -> None:
    client.kill()


def kill_agent(it: Round, client: RecordingClient, bridge: int | None = None) -> bool:
    """The agent itself, not its guard; False if there is none just now.

    Of the built-in agent, any process behind the bridge: the agent, its guard, or the parent.
    `bridge` is the pid of the client's bridge if the client has not started that itself.
    """
    assert client.process is not None
    pid = bridge or client.process.pid
    if it.built_in:
        behind = descendants(pid)
        return bool(behind) and kill(it.rng.choice(behind))
    for guard in descendants(pid):
        for agent in descendants(guard):
            if kill(agent):
                return True
    return False


def kill(pid: int) -> bool:
    """SIGKILL it; False if it has ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


async def steps(count: int) -> None:
    """Let the event loop go round: a moment, drawn by the seed, too short to name."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
