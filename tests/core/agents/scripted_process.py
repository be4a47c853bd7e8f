"""An agent process that is none: pipes, and a process whose end the test decides."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.connection import AgentCommand, Connection
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process import AgentProcess, Exit
from acp_bridge.core.wire.peer import Call
from acp_bridge.core.wire.runs import Run

Json = dict[str, Any]


class ScriptedProcess:
    """Stands in for AgentProcess: it has answered `initialize`; `exit` and `die` end it."""

    def __init__(self) -> None:
        self.pid = 1
        self.light = False
        self._stdin_read, self._stdin = os.pipe()
        self._stdout, self._stdout_write = os.pipe()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._exited = anyio.Event()
        self._dead = anyio.Event()
        #: `kill` has no effect, as if a process of the tree could not be killed.
        self.immortal = False
        self.says({"id": 1, "result": {"protocolVersion": 1}})

    def says(self, message: Json) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
        self.writes(line.encode())

    def writes(self, data: bytes) -> None:
        os.write(self._stdout_write, data)

    def exit(self) -> None:
        """End the main process, with code 7; descendants live."""
        os.close(self._stdout_write)
        self._exited.set()

    def die(self) -> None:
        """End the whole tree."""
        if not self._exited.is_set():
            self.exit()
        self._dead.set()

    def take_pipes(self) -> tuple[int, int]:
        return self._stdin, self._stdout

    def hold_lock(self, lock_fd: int) -> None:
        raise AssertionError("there is no guard")

    async def wait_exit(self) -> Exit:
        await self._exited.wait()
        return Exit(7, None)

    async def wait_dead(self) -> bool:
        await self._dead.wait()
        return True

    async def kill(self) -> bool:
        if self.immortal:
            return self._dead.is_set()
        if not self._exited.is_set():
            self.exit()
        await self._dead.wait()
        return True

    async def close(self, grace: float) -> None:
        os.close(self._stdin_read)


class Listener:
    """An owner that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_update(self, link: Link, params: Json) -> None:
        self.told.append(("update", params["update"]))

    def on_run(self, link: Link, run: Run) -> None:
        self.told += [("update", each["params"]["update"]) for each in run.each()]

    def on_agent_request(self, link: Link, call: Call) -> None:
        self.told.append(("request", call.method))

    def on_agent_notification(self, link: Link, method: str, params: Any) -> None:
        self.told.append(("notification", method))

    def on_batch_end(self, link: Link) -> None:
        """Nothing is collected."""

    def on_occupied(self, link: Link) -> None:
        self.told.append("occupied")

    def on_free(self, link: Link) -> None:
        self.told.append("free")

    async def room(self, link: Link) -> None:
        """There always is."""

    def on_gone(self, link: Link, exit_: Exit | None) -> None:
        self.told.append(("gone", exit_))

    def on_dead(self, link: Link) -> None:
        self.told.append("dead")


@asynccontextmanager
async def linked(
    monkeypatch: pytest.MonkeyPatch, owner: Owner, *, parked: bool = False, ours: bool = False
) -> AsyncIterator[tuple[Link, ScriptedProcess]]:
    """A started link to a scripted process, which is dead when the block is left."""
    process = ScriptedProcess()

    async def start(*args: object, **options: object) -> ScriptedProcess:
        return process

    monkeypatch.setattr(AgentProcess, "start", start)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            connection = Connection(AgentCommand(("agent",), {}, ours=ours), "agent")
            link = Link(connection, owner, "agent", parked=parked)
            await link.start(tasks)
            try:
                yield link, process
            finally:
                process.die()
