"""One bridge of a run: its client, its gates, and the requests that it owes an answer to."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from tests.crash.rounds import CAPABILITIES, GONE_WITHIN
from tests.crash.told import Lost
from tests.fuzz.ledger import Ledger, Prompt, key
from tests.support.client import RecordingClient
from tests.support.client_side import never_answers
from tests.support.fixture_agents import FixtureLog, fixture_command
from tests.support.gates import Gates
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
                life = Life(self, number, client, gates, () if plain else self.behaviours)
                self.recordings.append(client.recording)
                yield life
                self.ledger.turns.append(len(self.log.turns()))
                self.ledger.judge_life(
                    client.recording, client.stderr.decode(), life.prompts, quiet=life.quiet
                )


@dataclass
class Life:
    """One bridge and its client."""

    place: Place
    number: int
    client: RecordingClient
    gates: Gates
    behaviours: tuple[str, ...]
    #: by the key of their ids.
    prompts: dict[str, Prompt] = field(default_factory=dict)
    #: every id that was used, in order.
    ids: list[Any] = field(default_factory=list)
    listening: bool = True
    #: everything was answered, and nothing is on its way.
    quiet: bool = False

    @property
    def ledger(self) -> Ledger:
        return self.place.ledger

    # --- sending -------------------------------------------------------------------------------

    def ask(self, method: str, params: Any, request_id: Any = None) -> Any:
        """Returns the id, or None if the bridge takes nothing any more."""
        self.quiet = False
        with contextlib.suppress(BrokenPipeError):
            self.ids.append(self.client.send_request(method, params, request_id))
            return self.ids[-1]

    def prompt(self, prompt: Prompt, request_id: Any, **extra: Any) -> Any:
        """It is owed an answer under the id, which is returned."""
        blocks = [{"type": "text", "text": prompt.text}]
        params = {"sessionId": prompt.session_id, "prompt": blocks, **extra}
        with contextlib.suppress(BrokenPipeError):
            found = self.ask("session/prompt", params, request_id)
            self.prompts[key(found)] = prompt
            return found

    def notify(self, method: str, params: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.client.notify(method, params)

    def stop(self, session_id: str) -> None:
        """From now on prompts of this session may be cancelled."""
        self.ledger.stops.add((self.number, session_id))
        for prompt in self.prompts.values():
            prompt.stoppable |= prompt.session_id == session_id

    # --- waiting -------------------------------------------------------------------------------

    async def begin(self) -> None:
        """`initialize`; an agent that never answers it is given up."""
        self.gates.open("initialize")
        params = {"protocolVersion": 1, "clientCapabilities": CAPABILITIES}
        request = self.ask("initialize", params)
        if not await self.answered(request, within=10 if self._starts else 0.5):
            self.notify("$/cancel_request", {"requestId": request})

    @property
    def _starts(self) -> bool:
        return "never-starts" not in self.behaviours

    async def answered(self, request: Any, within: float) -> bool:
        """Until it is, or until the time is over; at once while the client doesn't read."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            if self.listening and request is not None:
                await self.client.answer_to(request, within)
                return True
        return False

    def unanswered(self) -> list[Message]:
        """Requests without an answer; an id that was used twice has two."""
        open_: dict[str, list[Message]] = {}
        for record in self.client.recording:
            message = record.message or {}
            if record.direction == "out" and "method" in message and "id" in message:
                open_.setdefault(key(message["id"]), []).append(message)
            elif record.direction == "in" and "method" not in message:
                waiting = open_.get(key(message.get("id")))
                if waiting:
                    waiting.pop()
        return [message for waiting in open_.values() for message in waiting]

    async def settle(self) -> None:
        """Nothing holds anything up any more: until all is answered. Raises Lost."""
        self.listen()
        self.client.side.permission = "reject"
        self.client.side.handlers.clear()
        self._answer_late()
        self._go_on()
        self.gates.open_for_good(*GATES)
        if "never-reads-stdin" in self.behaviours:
            self._stop_the_deaf()
        try:
            await self.client.until_recorded(lambda: not self.unanswered(), within=SETTLE)
        except TimeoutError as exc:
            left = json.dumps(self.unanswered())[:1000]
            raise Lost(f"unanswered after {SETTLE} s: {left}; {str(exc)[-3000:]}") from exc
        self.quiet = True

    def _go_on(self) -> None:
        """Nothing is paused or held any more."""
        mine = {prompt.session_id for prompt in self.prompts.values()}
        for session_id in sorted(mine | set(self.ledger.transcripts)):
            self.ask("_acp_bridge/go", {"sessionId": session_id})

    def _stop_the_deaf(self) -> None:
        """An agent that reads nothing answers nothing: its sessions are closed."""
        for session_id in {p.session_id for p in self.prompts.values()} | {
            message["params"]["sessionId"]
            for message in self.unanswered()
            if isinstance(message["params"].get("sessionId"), str)
        }:
            self.stop(session_id)
            self.ask("session/close", {"sessionId": session_id})

    def _answer_late(self) -> None:
        """What the client left unanswered because its user didn't say anything."""
        mine = [r.message or {} for r in self.client.recording if r.direction == "out"]
        done = {key(m.get("id")) for m in mine if "method" not in m}
        for asked in self.client.recording.incoming():
            if "method" in asked and "id" in asked and key(asked["id"]) not in done:
                self.client.answer(asked["id"], {"outcome": {"outcome": "cancelled"}})

    # --- the client ----------------------------------------------------------------------------

    def permit(self, how: str) -> None:
        """How the user answers from now on."""
        handlers = self.client.side.handlers
        handlers.clear()
        match how:
            case "allow" | "reject" | "cancel":
                self.client.side.permission = how
            case _:
                handlers["session/request_permission"] = never_answers
                handlers["elicitation/create"] = never_answers

    def turn_away(self) -> None:
        """The client reads nothing until `listen`."""
        self.listening = False
        self.client.pipe.pause_reading()

    def listen(self) -> None:
        self.listening = True
        self.client.pipe.resume_reading()

    # --- the end -------------------------------------------------------------------------------

    async def end(self, how: str, rng: random.Random) -> None:
        """Everything is gone in time, whatever the client does. Raises Lost."""
        if how == "EOF":
            self.client.close_stdin()
        else:
            self.client.terminate(signal.Signals[how])
        if rng.random() < 0.5:
            self.listen()
        try:
            await all_gone(self.place.mark, GONE_WITHIN)
        except TimeoutError as exc:
            raise Lost(f"after {how}: {exc}") from exc
        self.listen()
        with anyio.fail_after(10):
            await self.client.closed.wait()
        code = await self.client.wait()
        if code != (-signal.SIGKILL if how == "SIGKILL" else 0):
            raise Lost(f"exit code {code} after {how}: {self.client.situation()}")
