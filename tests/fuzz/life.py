"""One bridge of a run: its client, its gates, and the requests that it owes an answer to."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import anyio

from tests.crash.rounds import CAPABILITIES, GONE_WITHIN
from tests.crash.told import Lost
from tests.fuzz.caller import Caller
from tests.fuzz.ledger import Guest, Ledger
from tests.support.client import RecordingClient
from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.gates import Gates
from tests.support.joined import joined, listening
from tests.support.processes import MARK, all_gone
from tests.support.recording import Message, Recording

#: Every gate of the prompts and of the fixture agents.
GATES = (
    *("g", "cancel", "load", "initialize", "late-replay", "replayed", "die"),
    *("end of input", "stopped reading"),
    *(f"{did}-{what}" for did in ("leak", "leaked") for what in ("message", "tool", "write")),
)
#: Leaks that a turn which follows can't be told from stay behind their gates until then.
UNTOLD = ("leak-plain", "leak-new-tool")
#: Seconds for everything to be answered once nothing holds it up; a restart takes some of them.
SETTLE = 30


@dataclass
class Place:
    """Where a run's bridges and agents live."""

    folder: Path
    behaviours: tuple[str, ...]
    options: Sequence[str]
    ledger: Ledger = field(default_factory=Ledger)
    mark: str = field(default_factory=lambda: uuid4().hex)
    #: what each bridge's client saw.
    recordings: list[Recording] = field(default_factory=list)

    @property
    def log(self) -> FixtureLog:
        return FixtureLog(self.folder / "agent.log")

    @asynccontextmanager
    async def bridge(self, number: int, *, plain: bool = False) -> AsyncIterator[Life]:
        """A bridge; `plain`: with an agent that behaves well. Judged on leaving."""
        agent = fixture_command(*(() if plain else self.behaviours))
        command = [sys.executable, "-m", "acp_bridge", *self.options, "--", *agent]
        async with Gates() as gates:
            env = {
                **gates.env,
                **self.log.env,
                "ACP_BRIDGE_HOME": str(self.folder / "bridge"),
                "ACP_BRIDGE_LOG_LEVEL": "info",
                "FIXTURE_HOME": str(self.folder / "agent"),
                MARK: self.mark,
            }
            async with RecordingClient.start(command, env=env) as client:
                first = Caller(client, self.ledger, number)
                behaviours = () if plain else self.behaviours
                self.recordings.append(client.recording)
                async with AsyncExitStack() as stack:
                    life = Life(self, number, first, gates, behaviours, stack)
                    yield life
                self.ledger.turns.append(len(self.log.turns()))
                self._judge(life, client.stderr.decode())

    def _judge(self, life: Life, said: str) -> None:
        for caller in life.callers:
            self.ledger.judge_life(
                caller.client.recording,
                said,
                caller.prompts,
                quiet=caller.quiet,
                guest=caller.guest,
                company=len(life.callers) > 1,
            )


@dataclass
class Life:
    """One bridge and its clients."""

    place: Place
    number: int
    first: Caller
    gates: Gates
    behaviours: tuple[str, ...]
    #: the connections of those who joined.
    stack: AsyncExitStack
    #: the one that joined, while it is there.
    second: Caller | None = None
    #: all that there were; the first one comes first.
    callers: list[Caller] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.callers.append(self.first)

    @property
    def ledger(self) -> Ledger:
        return self.place.ledger

    @property
    def here(self) -> list[Caller]:
        """The clients that there are now."""
        second = [self.second] if self.second and self.second.is_here else []
        return [self.first, *second]

    # --- who comes and goes --------------------------------------------------------------------

    async def begin(self) -> None:
        """`initialize`; an agent that never answers it is given up."""
        self.gates.open("initialize")
        params = {"protocolVersion": 1, "clientCapabilities": CAPABILITIES}
        request = self.first.ask("initialize", params)
        if not await self.first.answered(request, within=10 if self._starts else 0.5):
            self.first.notify("$/cancel_request", {"requestId": request})

    @property
    def _starts(self) -> bool:
        return "never-starts" not in self.behaviours

    async def join(self, number: int, own: Message) -> bool:
        """Let one more client join over the socket; `own`: what it declares. False if it can't."""
        process = self.first.client.process
        assert process is not None
        try:
            bridge = await listening(self.place.folder / "bridge", process.pid, within=1)
            await self.leave()
            client = await self.stack.enter_async_context(joined(bridge.socket))
        except (TimeoutError, OSError):  # it does not listen yet, or has ended
            return False
        guest = Guest(number, self.number)
        self.second = Caller(client, self.ledger, self.number, guest)
        self.callers.append(self.second)
        self.place.recordings.append(client.recording)
        able = {**CAPABILITIES, "_meta": {"acp_bridge": {"accepted": True, **own}}}
        params = {"protocolVersion": 1, "clientCapabilities": able}
        return await self.second.answered(self.second.ask("initialize", params), within=10)

    async def leave(self) -> None:
        """The connection of the client that joined ends, whatever is on its way."""
        if self.second:
            self.second.quiet = False
            self.second = None
            await self.stack.pop_all().aclose()

    # --- waiting -------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Nothing holds anything up any more: until all is answered. Raises Lost."""
        for caller in self.here:
            caller.listen()
            caller.client.side.permission = "reject"
            caller.client.side.handlers.clear()
            caller.answer_late()
        self._go_on()
        self.gates.open_for_good(*GATES)
        if "never-reads-stdin" in self.behaviours:
            self._stop_the_deaf()
        for caller in self.here:
            await self._all_answered(caller)

    async def _all_answered(self, caller: Caller) -> None:
        def is_over() -> bool:
            return not caller.unanswered() or (caller.guest is not None and not caller.is_here)

        try:
            await caller.client.until_recorded(is_over, within=SETTLE)
        except TimeoutError as exc:
            left = json.dumps(caller.unanswered())[:1000]
            raise Lost(f"unanswered after {SETTLE} s: {left}; {str(exc)[-3000:]}") from exc
        caller.quiet = caller.is_here

    def _sessions(self) -> set[str]:
        return {prompt.session_id for caller in self.here for prompt in caller.prompts.values()}

    def _go_on(self) -> None:
        """Nothing is paused or held any more: each says so behind what it has sent itself."""
        for session_id in sorted(self._sessions() | set(self.ledger.transcripts)):
            for caller in self.here:
                caller.ask("_acp_bridge/go", {"sessionId": session_id})

    def _stop_the_deaf(self) -> None:
        """An agent that reads nothing answers nothing: its sessions are closed."""
        asked = [message for caller in self.here for message in caller.unanswered()]
        named = {message["params"].get("sessionId") for message in asked}
        for session_id in self._sessions() | {name for name in named if isinstance(name, str)}:
            self.first.stop(session_id)
            self.first.ask("_acp_bridge/close", {"sessionId": session_id})

    # --- the end -------------------------------------------------------------------------------

    async def end(self, how: str, rng: random.Random) -> None:
        """Everything is gone in time, whatever the client does. Raises Lost."""
        if how == "EOF":
            self.first.client.close_stdin()
        else:
            self.first.client.terminate(signal.Signals[how])
        if rng.random() < 0.5:
            self._listen()
        try:
            await all_gone(self.place.mark, GONE_WITHIN)
        except TimeoutError as exc:
            raise Lost(f"after {how}: {exc}") from exc
        self._listen()
        with anyio.fail_after(10):
            for caller in self.here:
                await caller.client.closed.wait()
        code = await self.first.client.wait()
        if code != (-signal.SIGKILL if how == "SIGKILL" else 0):
            raise Lost(f"exit code {code} after {how}: {self.first.client.situation()}")

    def _listen(self) -> None:
        for caller in self.here:
            caller.listen()
