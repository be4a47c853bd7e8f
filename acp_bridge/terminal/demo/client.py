"""The client of the demo: starts a bridge, records every line, and kills the bridge or its agent.

Invariants:
- A line is recorded before anything is concluded from it; every wait has a bound.
- `close` leaves no process behind: no bridge, guard or agent, and nothing that they started.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from acp_bridge.core import protocol as acp
from acp_bridge.core.agents.guard import processes
from acp_bridge.core.clients.handshake import hello
from acp_bridge.core.protocol import Json
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import NullListener
from acp_bridge.sharing.bridge_client.own_process import END, BridgeProcess
from acp_bridge.terminal.demo.recording import Direction, Line, Recording, Unexpected

T = TypeVar("T")

#: seconds that any wait may take; each step of the demo takes far less.
PATIENCE = 15.0
#: seconds between two checks of processes that are not children of this one.
LOOK_AGAIN = 0.01


class Client(NullListener):
    """A client with one session, opened by `new_session` or `load_session`. Made by `start`."""

    def __init__(self, bridge: BridgeProcess, on_wait: Callable[[str], None]) -> None:
        """`on_wait` is called with the description of each wait that begins, to show it."""
        self.recording = Recording()
        self.session_id = ""
        self._bridge, self._on_wait = bridge, on_wait
        self._connection = Connection(bridge.streams, self, tap=self._record)
        self._news = anyio.Event()
        self._closed = False
        #: the process ids of the bridge and of every process ever seen in its tree.
        self._seen = {bridge.pid}

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        tasks: TaskGroup,
        on_wait: Callable[[str], None],
    ) -> Self:
        """Start a bridge by `command`, and return a client whose task in `tasks` reads it.

        The bridge's stderr is appended to `log`. Raises Unexpected if `command` can't be executed.
        """
        try:
            with log.open("ab") as stderr:
                bridge = await BridgeProcess.start(command, stderr.fileno(), env=env)
        except OSError as exc:
            raise Unexpected("the bridge started", f"{exc.strerror}: {command[0]}") from exc
        client = cls(bridge, on_wait)
        tasks.start_soon(client._run)
        return client

    async def _run(self) -> None:
        await self._connection.run()
        self._news.set()

    def _record(self, direction: Direction, raw: bytes) -> None:
        self.recording.append(Line.of(direction, time.monotonic(), raw))

    def note(self, **facts: Any) -> None:
        """Add facts that are in no message, such as a kill, to the recording."""
        self._record("note", json.dumps(facts).encode())

    # --- messages to the bridge --------------------------------------------------------------

    def request(self, method: str, **params: Any) -> int:
        """Send a request to the bridge; returns its id."""
        return self._connection.send(method, params).id

    async def initialize(self) -> None:
        """Send `initialize` without capabilities, so that the agent asks nothing.

        Raises Unexpected.
        """
        own: Json = {acp.HEARS_ACCEPTED: True}
        await self.result(self.request(acp.INITIALIZE, **hello("acp-bridge demo", own)))

    async def new_session(self, cwd: Path) -> None:
        """Open a new session that works in `cwd`. Raises Unexpected."""
        opened = await self.result(self.request(acp.SESSION_NEW, cwd=str(cwd), mcpServers=[]))
        self.session_id = opened["sessionId"]

    def load_session(self, session_id: str, cwd: Path) -> int:
        """Send a request to load a session; returns the request's id."""
        self.session_id = session_id
        where = {"cwd": str(cwd), "mcpServers": []}
        return self.request(acp.SESSION_LOAD, sessionId=session_id, **where)

    def prompt(self, text: str, **own: str) -> int:
        """Send a prompt, with `own` as its `_meta.acp_bridge`; returns the request's id."""
        params = {"sessionId": self.session_id, "prompt": [{"type": "text", "text": text}]}
        return self.request(acp.SESSION_PROMPT, **acp.with_own_meta(params, own) if own else params)

    def cancel(self) -> None:
        """Send a cancel of the running turn."""
        self._connection.notify(acp.SESSION_CANCEL, {"sessionId": self.session_id})

    # --- waiting -----------------------------------------------------------------------------

    async def room(self) -> None:
        """Wake what waits in `until`; the connection calls this after each read."""
        self._news.set()
        self._news = anyio.Event()

    async def until(self, look: Callable[[], T], what: str) -> T:
        """Call `look` after each read until its result is true, and return that.

        Raises Unexpected, naming `what` was awaited, after `PATIENCE` seconds or when the bridge
        has ended.
        """
        self._on_wait(what)
        with anyio.move_on_after(PATIENCE):
            while not (found := look()):
                if self._connection.ended.is_set():
                    raise Unexpected(what, f"the bridge ended; {self._last()}")
                await self._news.wait()
            return found
        raise Unexpected(f"{what} within {PATIENCE:g} s", self._last())

    async def answered(self, *requests: int) -> None:
        """Wait until each of these requests has an answer. Raises Unexpected."""
        for request in requests:
            what = f"the answer to {self.recording.text_of(request)!r}"
            await self.until(partial(self.recording.answers, request), what)

    async def result(self, request: int) -> Json:
        """Wait for the result of a request and return it. Raises Unexpected, also for an error."""
        await self.answered(request)
        message = self.recording[self.recording.answers(request)[0]].message
        if "result" not in message:
            raise Unexpected(f"{self.recording.text_of(request)} done", str(message["error"]))
        return dict(message["result"])

    async def accepted(self, request: int) -> None:
        """Wait until the bridge says that it has written a prompt to disk. Raises Unexpected."""

        def look() -> bool:
            told = self.recording.places("in", method=acp.ACCEPTED)
            return any(self.recording[at].message["params"]["requestId"] == request for at in told)

        await self.until(look, f"{self.recording.text_of(request)!r} accepted")

    async def streaming(self, prompt: int, pieces: int) -> None:
        """Wait for `pieces` updates of the conversation after the sending of the prompt.

        Raises Unexpected.
        """
        since = self.recording.sent(prompt)
        what = f"{pieces} updates of {self.recording.text_of(prompt)!r}"
        await self.until(lambda: len([*self.recording.chunks(since)]) >= pieces, what)

    def _last(self) -> str:
        read = self.recording.places("in")
        if not read:
            return "nothing came"
        return f"last: {self.recording[read[-1]].raw.decode(errors='replace')[:300]}"

    # --- processes ---------------------------------------------------------------------------

    async def kill_bridge(self) -> None:
        """Kill the bridge with SIGKILL; wait until its connection has ended. Raises Unexpected."""
        self._look_around()
        self.note(killed="bridge", pid=self._bridge.pid)
        self._bridge.kill()
        await self.until(self._connection.ended.is_set, "the end of the bridge")

    def kill_agent(self) -> None:
        """Kill the agent, the only child of the bridge's guard, with SIGKILL. Raises Unexpected."""
        self._look_around()
        agents = _children(_children({self._bridge.pid}))
        if len(agents) != 1:
            raise Unexpected("one agent process", f"{len(agents)}")
        (agent,) = agents
        self.note(killed="agent", pid=agent)
        os.kill(agent, signal.SIGKILL)

    def look_at(self, pid: int) -> None:
        """Add a note to the recording that says whether the process `pid` is alive."""
        self.note(pid=pid, alive=bool(_alive({pid})))

    async def close(self) -> None:
        """End the bridge by closing its stdin; record which processes are left, and kill them."""
        if self._closed:
            return
        self._closed = True
        start = time.monotonic()
        with anyio.CancelScope(shield=True):
            self._look_around()
            await self._bridge.hang_up()
            left = _alive(self._seen)
            with anyio.move_on_after(END):
                while left:
                    await anyio.sleep(LOOK_AGAIN)
                    left = _alive(left)
            self.note(left=sorted(left), of=len(self._seen), seconds=time.monotonic() - start)
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._connection.close()
            await self._bridge.end()

    def _look_around(self) -> None:
        generation = {self._bridge.pid}
        while generation:
            self._seen |= generation
            generation = _children(generation) - self._seen


def _children(parents: set[int]) -> set[int]:
    """Return the ids of the living children of these processes."""
    return {pid for pid, parent, _, dead in processes() if parent in parents and not dead}


def _alive(pids: set[int]) -> set[int]:
    return {pid for pid, _, _, dead in processes() if pid in pids and not dead}
