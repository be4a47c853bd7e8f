"""One bridge of a run: its client, its gates, and the requests that it owes an answer to."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from tests.crash.rounds import GONE_WITHIN, steps
from tests.crash.told import Lost
from tests.fuzz.caller import Caller
from tests.fuzz.ledger import Ledger
from tests.fuzz.owned import Owned
from tests.fuzz.prompts import Guest
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.joined import joined, listening
from tests.support.processes import all_gone, children, command_line, marked
from tests.support.recording import Message

if TYPE_CHECKING:
    from tests.fuzz.place import Place

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
#: The exit code of a waiter whose bridge has left it none.
_LEFT_NONE = 1


@dataclass
class Life:
    """One bridge and its clients."""

    place: Place
    number: int
    #: the one that has started it.
    first: Caller
    gates: Gates
    behaviours: tuple[str, ...]
    #: what its processes carry.
    mark: str
    #: it outlives the client that has started it, and does so now.
    keeps: bool = False
    is_kept: bool = False
    #: the one that joined, while it is there.
    second: Caller | None = None
    #: all that there were; the first one comes first.
    callers: list[Caller] = field(default_factory=list)
    #: the context of this bridge, and of the connection of the second client.
    owned: Owned[Life] | None = None
    _connection: Owned[RecordingClient] | None = None

    def __post_init__(self) -> None:
        self.callers.append(self.first)

    @property
    def ledger(self) -> Ledger:
        return self.place.ledger

    @property
    def said(self) -> str:
        """The bridge's log."""
        return self.first.client.stderr.decode(errors="replace")

    @property
    def here(self) -> list[Caller]:
        """The clients that there are now."""
        first = [] if self.is_kept else [self.first]
        second = [self.second] if self.second and self.second.is_here else []
        return [*first, *second]

    # --- who comes and goes --------------------------------------------------------------------

    async def begin(self) -> None:
        """`initialize`; an agent that never answers it is given up."""
        self.gates.open("initialize")
        await self.first.greet(within=10 if "never-starts" not in self.behaviours else 0.5)

    def pid(self) -> int | None:
        """The process that is the bridge; None if there is none yet, or no more.

        Of a kept one: what has its command line and is no child of another one, or the waiter.
        """
        process = self.first.client.process
        assert process is not None
        if not self.keeps:
            return process.pid if process.poll() is None else None
        alike = [pid for pid in marked(self.mark) if "--keep" in command_line(pid)]
        below = {child for pid in alike for child in children(pid)}
        return next((pid for pid in alike if pid not in {process.pid, *below}), None)

    async def join(self, number: int, own: Message) -> bool:
        """Let one more client join over the socket; `own`: what it declares. False if it can't."""
        pid = self.pid()
        if pid is None:
            return False
        try:
            bridge = await listening(self.place.home, pid, within=1)
            await self.leave()
            opened = joined(bridge.socket)
            self._connection = await Owned.open(self.place.tasks, opened)
        except (TimeoutError, OSError):  # it does not listen yet, or has ended
            return False
        client = self._connection.value
        guest = Guest(number, self.number, time.monotonic())
        self.second = Caller(client, self.ledger, self.number, guest, joined=True, declared=own)
        self.callers.append(self.second)
        self.place.recordings.append(client.recording)
        return await self.second.greet(within=10)

    async def leave(self) -> None:
        """The connection of the client that joined ends, whatever is on its way."""
        connection, self._connection = self._connection, None
        if self.second:
            self.second.quiet &= self.second.is_here
            self.second = None
        if connection:
            await connection.close()

    def note_end_of_another(self) -> None:
        """Another bridge has ended: what it had not passed on is missing here."""
        for caller in self.here:
            caller.ends.append(len(caller.client.recording))

    # --- waiting -------------------------------------------------------------------------------

    def let_all_go_on(self, sessions: Iterable[str]) -> None:
        """Nothing holds anything up any more; each client says so behind what it has sent."""
        for caller in self.here:
            caller.listen()
            caller.client.side.permission = "reject"
            caller.client.side.handlers.clear()
            caller.answer_late()
            for session_id in sessions:
                caller.ask("_acp_bridge/go", {"sessionId": session_id})
        self.gates.open_for_good(*GATES)
        if "never-reads-stdin" in self.behaviours:
            self._stop_the_deaf()

    async def all_answered(self) -> None:
        """Until its clients have all answers. Raises Lost."""
        for caller in self.here:
            await self._all_answered(caller)

    async def _all_answered(self, caller: Caller) -> None:
        def is_over() -> bool:
            return not caller.unanswered() or (caller.joined and not caller.is_here)

        try:
            await caller.client.until_recorded(is_over, within=SETTLE)
        except TimeoutError as exc:
            left = json.dumps(caller.unanswered())[:1000]
            raise Lost(f"unanswered after {SETTLE} s: {left}; {str(exc)[-3000:]}") from exc
        except ConnectionError as exc:
            raise Lost(f"its bridge has ended: {str(exc)[-3000:]}") from exc
        caller.quiet = caller.is_here

    async def at_rest(self) -> None:
        """Until no turn runs in it, and no prompt waits. Raises Lost."""
        pid = self.pid()
        # A card that is open in a late replay can't be told from work which goes on: Stop ends it.
        over = ("working",) if "late-replay" in self.place.behaviours else ()
        if pid is None:
            return
        try:
            bridge = await listening(self.place.home, pid, within=1)
            connection = await Owned.open(self.place.tasks, joined(bridge.socket))
        except (TimeoutError, OSError):  # nothing has begun, or it has ended for want of work
            return
        client, rows = connection.value, []
        try:
            await client.initialize({})
            with anyio.fail_after(SETTLE):
                while rows := [each for each in await _live(client) if _works(each, over)]:
                    await steps(200)
        except TimeoutError as exc:
            raise Lost(f"a kept bridge does not come to rest: {rows}") from exc
        except (ConnectionError, BrokenPipeError):
            return
        finally:
            await connection.close()

    def _stop_the_deaf(self) -> None:
        """An agent that reads nothing answers nothing: its sessions are closed, and new ones, which
        have no id yet, are given up.
        """
        for caller in self.here:
            for message in caller.unanswered():
                if message["method"] == "session/new":
                    caller.notify("$/cancel_request", {"requestId": message["id"]})
        asked = [message for caller in self.here for message in caller.unanswered()]
        named = {message["params"].get("sessionId") for message in asked}
        named |= {p.session_id for caller in self.here for p in caller.prompts.values()}
        for session_id in {name for name in named if isinstance(name, str)}:
            for caller in self.here:
                caller.stop(session_id)
                caller.ask("_acp_bridge/close", {"sessionId": session_id})

    # --- the end -------------------------------------------------------------------------------

    async def end(self, how: str, rng: random.Random) -> None:
        """The client that has started it ends, and it too; everything is gone in time, whatever
        the other clients do. Raises Lost.
        """
        client = self.first.client
        if how == "EOF":
            client.close_stdin()
        else:
            client.terminate(signal.Signals[how])
        await self._ended(how, rng)
        code = await client.wait()
        if code != (-signal.SIGKILL if how == "SIGKILL" else 0):
            raise Lost(f"exit code {code} after {how}: {client.situation()}")

    async def end_at_once(self, rng: random.Random) -> None:
        """The client closes stdin, and all ends; a kept bridge gets SIGTERM. Raises Lost."""
        if not self.keeps:
            await self.end("EOF", rng)
            return
        await self.part("EOF")
        await self.end_kept("SIGTERM", rng)

    async def end_behind_waiter(self, rng: random.Random) -> bool:
        """The bridge is killed, and the client sees it; False if there is none. Raises Lost."""
        if (pid := self.pid()) is None:
            return False
        os.kill(pid, signal.SIGKILL)
        await self._ended("SIGKILL of the bridge", rng)
        code = await self.first.client.wait()
        if code != _LEFT_NONE:
            raise Lost(f"the waiter's exit code is {code}: {self.first.client.situation()}")
        return True

    async def end_kept(self, how: str, rng: random.Random) -> None:
        """The bridge ends, whose client has ended before. Raises Lost."""
        if pid := self.pid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[how])
        await self._ended(how, rng)

    async def part(self, how: str) -> None:
        """The client that has started it ends, and the bridge goes on. Raises Lost."""
        client = self.first.client
        assert client.process is not None
        self.first.listen()
        match how:
            case "EOF":
                client.close_stdin()
            case "GROUP":
                os.killpg(client.process.pid, signal.SIGKILL)
            case _:
                client.terminate(signal.Signals[how])
        try:
            with anyio.fail_after(GONE_WITHIN):
                await client.closed.wait()
            await client.stderr_ended(GONE_WITHIN)
            code = await client.wait(GONE_WITHIN)
        except TimeoutError as exc:
            raise Lost(f"after {how} the client waits: {client.situation()}") from exc
        if code != (-signal.SIGKILL if how in ("SIGKILL", "GROUP") else 0):
            raise Lost(f"the waiter's exit code is {code} after {how}: {client.situation()}")
        self.is_kept = True

    async def _ended(self, how: str, rng: random.Random) -> None:
        if rng.random() < 0.5:
            self._listen()
        try:
            await all_gone(self.mark, GONE_WITHIN)
        except TimeoutError as exc:
            raise Lost(f"after {how}: {exc}") from exc
        self._listen()
        with anyio.fail_after(10):
            for caller in self.here:
                await caller.client.closed.wait()

    def _listen(self) -> None:
        for caller in self.here:
            caller.listen()


#: States in which a turn runs or may begin at once, or the agent works without one.
_WORKING = ("running", "working", "permission", "paused", "cancelling", "starting")


async def _live(client: RecordingClient) -> list[Message]:
    found: Message = await client.request("_acp_bridge/live", {}, within=10)
    rows: list[Message] = found["sessions"]
    return rows


def _works(row: Message, over: tuple[str, ...]) -> bool:
    """True if the session works; the states in `over` count as rest."""
    return bool(row["waiting"]) or (row["state"] in _WORKING and row["state"] not in over)
