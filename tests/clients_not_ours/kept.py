"""A bridge with `--keep` behind a client that is not ours, and what must hold when that is gone."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from acp_bridge.sharing.listening.run_files import LiveBridge, live_bridges
from acp_bridge.terminal.shared import live
from tests.clients_not_ours.conftest import HERE
from tests.support.fixture_agents import fixture_command
from tests.support.gates import Gates
from tests.support.waiting import until

#: seconds for what starts several processes on a machine that may be busy
LIMIT = 60
LONGEST_LINE = 1 << 20
#: seconds between two questions to a bridge, which answers with CPU of its own.
PAUSE = 0.02
#: what runs when the client leaves, and what waits behind it; nobody ends it but a Stop.
RUNNING = "say a-one; gate left; say a-two; permission; say a-three"
WAITING = "say b-one; stream 1000000 5"
LAST = "history"


@dataclass(frozen=True, slots=True)
class Kept:
    """One home with a kept bridge, and its clients."""

    home: Path
    folder: Path
    env: dict[str, str]
    gates: Gates
    modules: Path
    mark: str

    def bridge(self, keep: str = "1h", *behaviours: str) -> list[str]:
        """The command of a kept bridge, with nothing between it and the client."""
        agent = fixture_command(*behaviours)
        return [sys.executable, "-m", "acp_bridge", "--keep", keep, "--", *agent]

    def script(self, name: str) -> list[str]:
        if name.endswith(".py"):
            return [sys.executable, str(HERE / name)]
        node = shutil.which("node")
        assert node, "there is no node"
        return [node, str(HERE / name)]

    @asynccontextmanager
    async def client(self, script: str, role: str, **given: Any) -> AsyncIterator["Client"]:
        """A client's process, in a group of its own; killed when the body is through."""
        about = {"cwd": str(self.folder), **given}
        env = {**self.env, "GIVEN": json.dumps(about)}
        with anyio.fail_after(LIMIT):
            async with await anyio.open_process(
                [*self.script(script), role], stderr=None, env=env, start_new_session=True
            ) as process:
                try:
                    yield Client(process)
                finally:
                    with suppress(ProcessLookupError):
                        process.kill()

    async def bridges(self) -> list[LiveBridge]:
        """Those that live, as soon as there is one."""
        return await until(lambda: live_bridges(self.home), LIMIT)

    async def until(self, session_id: str, **wanted: object) -> None:
        """Until a live bridge says this of the session."""
        with anyio.fail_after(LIMIT):
            while True:
                for answer in await live.ask_all(live_bridges(self.home), 5):
                    for about in answer.sessions or []:
                        if {"sessionId": session_id, **wanted}.items() <= about.items():
                            return
                await anyio.sleep(PAUSE)

    async def end(self) -> None:
        """End the bridges that live, which takes all that is theirs with them."""
        for bridge in live_bridges(self.home):
            with suppress(ProcessLookupError):
                os.kill(bridge.pid, signal.SIGTERM)
        await self.ended()

    async def ended(self, within: float = 5) -> None:
        await until(lambda: not live_bridges(self.home), within)


class Client:
    """Tells JSON lines, and takes words."""

    def __init__(self, process: Process) -> None:
        self.process = process
        assert process.stdout is not None
        self._out = BufferedByteReceiveStream(process.stdout)

    async def told(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(await self._out.receive_until(b"\n", LONGEST_LINE))
        return line

    async def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(word.encode() + b"\n")


def check_text(text: str) -> None:
    """Every word of both turns once and in order, and the agent remembers them."""
    found = re.fullmatch(
        r"a-onea-two\[permission allow\]a-threeb-one((?:\d+ )+)(.*)", text, re.DOTALL
    )
    assert found, text
    numbers = [int(number) for number in found[1].split()]
    assert numbers == list(range(len(numbers)))
    assert found[2] == f"{RUNNING} | {WAITING}"


def run(words: list[str], env: dict[str, str], cwd: Path) -> str:
    """A command of ours, which must exit with 0; what it prints."""
    command = [sys.executable, "-m", "acp_bridge", *words]
    done = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
