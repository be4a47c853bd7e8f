"""A client that does nothing but measure: one thread, raw pipes, the time of each read.

It is not the tests' recording client because of what that one costs: to parse and keep every line
takes longer than the bridge takes to pass it on, and an event loop adds its own delay to each read,
so the figures would be the client's. This one parses answers only and looks at no update's content
before the measurement is over.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

now = time.monotonic
_STAMP = re.compile(rb"@(\d+) ")
_TICK = os.sysconf("SC_CLK_TCK")
#: what runs the bridge that is measured.
PROGRAM: list[str] = [sys.executable, "-m", "acp_bridge"]


class Client:
    """One agent or bridge process. `updates` are (time, line); `answers` id -> (time, message)."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.began = now()
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            bufsize=0,
            start_new_session=True,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._in, self._out = self.process.stdin, self.process.stdout
        os.set_blocking(self._out.fileno(), False)
        self.updates: list[tuple[float, bytes]] = []
        self.answers: dict[int, tuple[float, dict[str, Any]]] = {}
        self.told: list[tuple[float, dict[str, Any]]] = []
        self.session_id = ""
        self._rest = b""
        #: the id of the last request.
        self.last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._in.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()

    # --- sending -------------------------------------------------------------------------------

    def notify(self, method: str, params: dict[str, Any]) -> float:
        self._in.write(_line({"method": method, "params": params}))
        return now()

    def ask(self, method: str, params: dict[str, Any]) -> int:
        self.last += 1
        self._in.write(_line({"id": self.last, "method": method, "params": params}))
        return self.last

    def call(self, method: str, params: dict[str, Any], seconds: float = 60) -> dict[str, Any]:
        return self.answer(self.ask(method, params), seconds)[1]

    def initialize(self) -> float:
        """Seconds from the start of the process to the answer."""
        meta = {"acp_bridge": {"accepted": True}}
        params = {"protocolVersion": 1, "clientCapabilities": {"_meta": meta}}
        self.call("initialize", params)
        return now() - self.began

    def new_session(self) -> str:
        answer = self.call("session/new", {"cwd": "/tmp", "mcpServers": []})
        self.session_id = answer["result"]["sessionId"]
        return self.session_id

    def prompt(self, text: str, session_id: str | None = None) -> int:
        block = {"type": "text", "text": text}
        params = {"sessionId": session_id or self.session_id, "prompt": [block]}
        return self.ask("session/prompt", params)

    def cancel(self) -> float:
        return self.notify("session/cancel", {"sessionId": self.session_id})

    # --- waiting -------------------------------------------------------------------------------

    def answer(self, request: int, seconds: float = 60) -> tuple[float, dict[str, Any]]:
        self.until(lambda: request in self.answers, seconds)
        return self.answers[request]

    def until(self, done: Callable[[], bool], seconds: float = 60) -> None:
        end = now() + seconds
        while not done():
            if now() > end:
                raise TimeoutError(f"nothing for {seconds} s")
            self.read(min(1.0, end - now()))

    def until_updates(self, count: int, seconds: float = 60) -> float:
        """The time of the update of that number."""
        self.until(lambda: len(self.updates) >= count, seconds)
        return self.updates[count - 1][0]

    def read(self, seconds: float) -> None:
        ready, _, _ = select.select([self._out], [], [], seconds)
        if not ready:
            return
        data = os.read(self._out.fileno(), 1 << 20)
        at = now()
        if not data:
            raise EOFError("the process closed its stdout")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if b'"session/update"' in line:
                self.updates.append((at, line))
            elif line:
                self._take(at, json.loads(line))

    def _take(self, at: float, message: dict[str, Any]) -> None:
        if "method" in message:
            self.told.append((at, message))
        else:
            self.answers[message["id"]] = (at, message)

    # --- looking -------------------------------------------------------------------------------

    def lags(self, since: int = 0, session_id: str = "") -> list[float]:
        """Seconds from the writing of each update by the agent to its reading here."""
        of = session_id.encode()
        found = ((at, _STAMP.search(line)) for at, line in self.updates[since:] if of in line)
        return [at - int(stamp[1]) / 1e6 for at, stamp in found if stamp]

    def guards(self) -> list[int]:
        return children(self.process.pid)

    def agents(self) -> list[int]:
        return [agent for guard in self.guards() for agent in children(guard)]

    def kill_agent(self) -> float:
        os.kill(self.agents()[0], signal.SIGKILL)
        return now()


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise ValueError("no VmHWM")


def bridge(home: Path, *command: str) -> list[str]:
    """The command of a bridge, before an agent or before the built-in one."""
    words = [*PROGRAM, "--home", str(home)]
    return [*words, "--", *command] if command else words


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
