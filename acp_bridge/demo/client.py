"""The client of the demo starts a bridge, exchanges JSON lines with it, and records every one.

Invariants:
- A line is recorded before anything is concluded from it; every wait has a bound.
- `close` leaves no process behind: no bridge, guard or agent, and nothing that they started.
"""

from __future__ import annotations

import itertools
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
from anyio.abc import ByteReceiveStream, ByteSendStream, Process, TaskGroup

from acp_bridge.bridge_client.own_process import END
from acp_bridge.demo.processes import alive, children, descendants, survivors
from acp_bridge.demo.recording import ACCEPTED, Direction, Line, Message, Recording, Unexpected

T = TypeVar("T")

#: Seconds that any wait may take; what the demo shows takes far less.
PATIENCE = 15.0


class Client:
    """A client with one session, which `new_session` or `load_session` opens. Made by `start`."""

    def __init__(self, process: Process, on_wait: Callable[[str], None]) -> None:
        """`on_wait` is told what is being waited for."""
        assert process.stdin is not None
        assert process.stdout is not None
        self.recording = Recording()
        self.session_id = ""
        self._process = process
        self._stdin: ByteSendStream = process.stdin
        self._stdout: ByteReceiveStream = process.stdout
        self._on_wait = on_wait
        self._ids = itertools.count(1)
        self._news = anyio.Event()
        self._ended = False
        self._closed = False
        #: the bridge and every process of its tree that was ever seen.
        self._seen = {process.pid}

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        env: Mapping[str, str],
        stderr: Path,
        tasks: TaskGroup,
        on_wait: Callable[[str], None],
    ) -> Self:
        """Start a bridge in a session of its own, so that it gets no Ctrl-C of the terminal.

        Its stderr is appended to the file `stderr`. Raises Unexpected.
        """
        with stderr.open("ab") as file:
            try:
                process = await anyio.open_process(
                    command, env=env, stderr=file, start_new_session=True
                )
            except OSError as exc:
                raise Unexpected("the bridge started", f"{exc.strerror}: {command[0]}") from exc
        client = cls(process, on_wait)
        tasks.start_soon(client._read)
        return client

    # --- messages to the bridge --------------------------------------------------------------

    async def initialize(self) -> None:
        """Initialize without any capability, so that the agent asks nothing. Raises Unexpected."""
        own = {"_meta": {"acp_bridge": {"accepted": True}}}
        params = {"protocolVersion": 1, "clientCapabilities": own}
        await self.result(await self.request("initialize", params))

    async def new_session(self, cwd: Path) -> None:
        """Open a new session. Raises Unexpected."""
        request = await self.request("session/new", {"cwd": str(cwd), "mcpServers": []})
        self.session_id = (await self.result(request))["sessionId"]

    async def load_session(self, session_id: str, cwd: Path) -> int:
        """Ask for a session to be loaded; returns the id of the request."""
        self.session_id = session_id
        params = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        return await self.request("session/load", params)

    async def request(self, method: str, params: Message) -> int:
        """Send a request; returns its id."""
        request_id = next(self._ids)
        await self._send({"id": request_id, "method": method, "params": params})
        return request_id

    async def prompt(self, text: str, **own: str) -> int:
        """Send a prompt, with `own` as `_meta.acp_bridge`; returns the id of the request."""
        message = self._prompt(text)
        if own:
            message["params"]["_meta"] = {"acp_bridge": own}
        await self._send(message)
        return int(message["id"])

    async def prompts(self, *texts: str) -> list[int]:
        """Send prompts in one write; returns the ids of the requests."""
        messages = [self._prompt(text) for text in texts]
        await self._send(*messages)
        return [message["id"] for message in messages]

    async def cancel(self) -> None:
        await self._send({"method": "session/cancel", "params": {"sessionId": self.session_id}})

    def _prompt(self, text: str) -> Message:
        block = {"type": "text", "text": text}
        params = {"sessionId": self.session_id, "prompt": [block]}
        return {"id": next(self._ids), "method": "session/prompt", "params": params}

    async def _send(self, *messages: Message) -> None:
        lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
        for line in lines:
            self._record("out", line)
        # A bridge that is gone is noticed by the answers that don't come.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._stdin.send(b"".join(line + b"\n" for line in lines))

    # --- messages from the bridge ------------------------------------------------------------

    async def _read(self) -> None:
        partial = b""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                *lines, partial = (partial + await self._stdout.receive()).split(b"\n")
                for line in lines:
                    self._record("in", line)
                    await self._refuse(self.recording[-1].message)
                self._tell()
        if partial:
            self._record("in", partial)
        self._ended = True
        self._tell()

    async def _refuse(self, message: Message) -> None:
        if "method" in message and "id" in message:
            error = {"code": -32601, "message": "this client can do nothing"}
            await self._send({"id": message["id"], "error": error})

    def _record(self, direction: Direction, raw: bytes) -> None:
        self.recording.append(Line.of(direction, time.monotonic(), raw))

    def note(self, **facts: Any) -> None:
        """Record facts about a process that no pipe shows."""
        self._record("note", json.dumps(facts).encode())

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # --- waiting -----------------------------------------------------------------------------

    async def until(self, look: Callable[[], T], what: str) -> T:
        """Call `look` after each read until it gives something true; raises Unexpected."""
        self._on_wait(what)
        with anyio.move_on_after(PATIENCE):
            while True:
                news, ended = self._news, self._ended
                if found := look():
                    return found
                if ended:
                    raise Unexpected(what, f"the bridge ended; {self._last()}")
                await news.wait()
        raise Unexpected(f"{what} within {PATIENCE:g} s", self._last())

    async def answered(self, *requests: int) -> None:
        """Wait until each of these requests has an answer."""
        for request in requests:
            what = f"the answer to {self.recording.text_of(request)!r}"
            await self.until(partial(self.recording.answers, request), what)

    async def result(self, request: int) -> Message:
        """Wait for the result of a request; raises Unexpected for an error."""
        await self.answered(request)
        message = self.recording[self.recording.answers(request)[0]].message
        if "result" not in message:
            raise Unexpected(f"{self.recording.text_of(request)} done", str(message["error"]))
        return dict(message["result"])

    async def accepted(self, request: int) -> None:
        """Wait until the bridge says that it has written this prompt down."""

        def look() -> bool:
            told = (self.recording[at].message for at in self.recording.places(ACCEPTED))
            return any(message["params"]["requestId"] == request for message in told)

        await self.until(look, f"{self.recording.text_of(request)!r} accepted")

    async def streaming(self, prompt: int, pieces: int) -> None:
        """Wait until so many pieces of the conversation came since the prompt was sent."""
        since = self.recording.sent(prompt)
        what = f"{pieces} updates of {self.recording.text_of(prompt)!r}"
        await self.until(lambda: len(list(self.recording.chunks(since))) >= pieces, what)

    def _last(self) -> str:
        lines = [line for line in self.recording if line.direction == "in"]
        return f"last: {lines[-1].raw.decode(errors='replace')[:300]}" if lines else "nothing came"

    # --- processes ---------------------------------------------------------------------------

    def kill_bridge(self) -> None:
        """Kill the bridge with SIGKILL; its guards see its sockets close and kill the agents."""
        self._look_around()
        self.note(killed="bridge", pid=self._process.pid)
        self._process.kill()

    def kill_agent(self) -> None:
        """Kill the one process that the bridge's guard started with SIGKILL."""
        self._look_around()
        agents = children(children([self._process.pid]))
        if len(agents) != 1:
            raise Unexpected("one agent process", f"{len(agents)}")
        (agent,) = agents
        self.note(killed="agent", pid=agent)
        os.kill(agent, signal.SIGKILL)

    def look_at(self, pid: int) -> None:
        """Note whether a process lives."""
        self.note(pid=pid, alive=bool(alive([pid])))

    async def gone(self) -> None:
        """Wait until the bridge's output has ended."""
        await self.until(lambda: self._ended, "the end of the bridge")

    async def close(self) -> None:
        """End the bridge as an editor does, by closing its stdin, and record what is left."""
        if self._closed:
            return
        self._closed = True
        start = time.monotonic()
        with anyio.CancelScope(shield=True):
            self._look_around()
            with suppress(anyio.BrokenResourceError):
                await self._stdin.aclose()
            with anyio.move_on_after(END):
                await self._process.wait()
            left = await survivors(self._seen, END)
            self.note(left=sorted(left), of=len(self._seen), seconds=time.monotonic() - start)
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            await self._process.aclose()

    def _look_around(self) -> None:
        self._seen |= descendants(self._process.pid)
