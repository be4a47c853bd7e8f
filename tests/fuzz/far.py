"""An editor behind `acp-bridge connect`, in front of an `acp-bridge serve` of the run's home.

The wire between the two is cut, held up and cut into pieces, and the server is killed and started
again. The editor is a client like the others, and what they are judged by holds for it: it was
answered once, and shown each word once, in the order of a load, whatever the wire did. A line that
drops is no reason for a gap.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio

from tests.crash.rounds import GONE_WITHIN, steps
from tests.crash.told import Lost
from tests.fuzz.caller import Caller
from tests.fuzz.life import SETTLE, Life
from tests.fuzz.owned import Owned
from tests.fuzz.prompts import Guest, key
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.gates import Gates
from tests.support.processes import MARK, all_gone
from tests.support.served import Served

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fuzz.place import Place

#: what happens to the wire or the server, and how often, in parts of the sum.
_HAPPENS: Final = {
    "nothing": 8,
    "cut": 4,
    "break": 4,
    "flap": 1,
    "hold": 3,
    "flow": 4,
    "down": 1,
    "up": 4,
    "pieces": 3,
    "kill": 1,
}
#: seconds for what was left over to run by the user's word, before it is given up.
_RUNS: Final = 5


@dataclass
class FarLife(Life):
    """A server, and the editor that comes to it over the wire."""

    served: Served | None = None

    @property
    def _served(self) -> Served:
        assert self.served
        return self.served

    @property
    def said(self) -> str:
        return super().said + self._served.log.read_text(errors="replace")

    def pid(self) -> int | None:
        return self._served.pid()

    def note_end_of_another(self) -> None:
        """It has cursors: what another bridge had not passed on is shown to it from the journal."""

    # --- the wire ------------------------------------------------------------------------------

    async def step(self, rng: random.Random) -> None:
        """Something happens to what is between the editor and its session."""
        (what,) = rng.choices(list(_HAPPENS), list(_HAPPENS.values()))
        await steps(rng.choice([0, 0, 50, 200]))
        wire = self._served.wire
        match what:
            case "cut":
                await wire.cut()
            case "break":
                setattr(wire, rng.choice(["breaks_after", "takes_only"]), rng.randrange(1, 3000))
            case "flap":
                wire.pieces, wire.to_break = rng, 3
            case "hold":
                wire.hold()
            case "flow":
                wire.flow()
            case "down" | "up":
                wire.down = what == "down"
            case "pieces":
                wire.pieces = rng if wire.pieces is None else None
            case "kill":
                await self._serve_again(rng)
        self.ledger.counts[f"wire: {what}"] += 1
        if rng.random() < 0.5:
            request = self.first.ask("session/list", {})
            await self.first.answered(request, within=1.5)

    async def _serve_again(self, rng: random.Random) -> None:
        """The server ends, and the next one has what it had."""
        number = rng.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGKILL])
        await self._end_server(number)
        self.place.note_end()
        self._served.start()

    async def _end_server(self, number: signal.Signals) -> None:
        try:
            code = await self._served.end(number, GONE_WITHIN)
            await all_gone(self.mark, GONE_WITHIN)
        except TimeoutError as exc:
            raise Lost(f"after {number.name} to the server: {exc}") from exc
        if code != (-signal.SIGKILL if number == signal.SIGKILL else 0):
            raise Lost(f"the server's exit code is {code} after {number.name}: {self.said[-2000:]}")

    # --- waiting -------------------------------------------------------------------------------

    def let_all_go_on(self, sessions: Iterable[str]) -> None:
        self._served.wire.mend()
        super().let_all_go_on(sessions)

    async def all_answered(self) -> None:
        """As everybody; but a prompt that an end of its bridge has left over stays open."""
        caller = self.first
        if not await caller.answered(caller.ask("session/list", {}), SETTLE):
            raise Lost(f"there is no line after {SETTLE} s: {self.said[-1500:]}")
        named = {message["params"].get("sessionId") for message in caller.unanswered()}
        for session_id in filter(None, named):
            caller.ask("_acp_bridge/go", {"sessionId": session_id})
            run = [{"type": "text", "text": "/queue run"}]
            caller.ask("session/prompt", {"sessionId": session_id, "prompt": run})
        with anyio.move_on_after(_RUNS):
            await caller.client.until_recorded(lambda: not caller.unanswered(), _RUNS + 1)
        for message in caller.unanswered():
            if prompt := caller.prompts.get(key(message["id"])):
                prompt.stoppable = prompt.own_stop = prompt.given_up = True
                caller.notify("$/cancel_request", {"requestId": message["id"]})
        if "never-reads-stdin" in self.behaviours:
            self._stop_the_deaf()  # when it was closed first there may have been no line
        await super().all_answered()

    # --- the end -------------------------------------------------------------------------------

    async def end(self, how: str, rng: random.Random) -> None:
        """The editor leaves, and the server is told to end. Raises Lost."""
        client = self.first.client
        client.close_stdin()
        code = await client.wait(GONE_WITHIN)
        if code:
            raise Lost(f"the exit code of connect is {code}: {client.situation()}")
        await self._end_server(signal.SIGTERM)


async def far_editor(place: Place, number: int) -> FarLife:
    """A server of the run's home, and an editor that starts `connect`; `number`: of a client."""
    owned = await Owned.open(place.tasks, _far(place, Guest(number, 0)))
    owned.value.owned = owned
    assert isinstance(owned.value, FarLife)
    return owned.value


@asynccontextmanager
async def _far(place: Place, guest: Guest) -> AsyncIterator[Life]:
    mark, folder = uuid4().hex, place.folder
    agent = fixture_command(*place.behaviours)
    async with Gates() as gates:
        env = {
            **gates.env,
            **place.log.env,
            "ACP_BRIDGE_LOG_LEVEL": "info",
            "FIXTURE_HOME": str(folder / "agent"),
            MARK: mark,
        }
        words = [*place.options, "--", *agent]
        served = Served(place.home, folder / "laptop", folder, words, env)
        async with served.wired():
            served.start()
            async with RecordingClient.start(served.connect) as client:
                number = len(place.lives)
                guest.life, guest.began = number, time.monotonic()
                first = Caller(client, place.ledger, number, guest)
                first.drops = served.wire.ended
                place.recordings.append(client.recording)
                life = FarLife(place, number, first, gates, place.behaviours, mark, served=served)
                place.lives.append(life)
                place.ledger.alive.add(number)
                yield life
