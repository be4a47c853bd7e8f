"""What the tests of guard and agent process share: agents started under a mark, and proc files."""

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import anyio
import pytest

from acp_bridge.core.agents import guard
from acp_bridge.core.agents.process import AgentProcess, StartFailed
from tests.support.processes import MARK, kill_marked

FOLDER = Path(__file__).parent

#: a guard that starts the agent, says so, and then does nothing that it is told
HANGING_GUARD = (
    *guard.COMMAND_LINE[:4],
    "import sys, time; sys.path.append(sys.argv.pop(1)); import guard;"
    "guard.Guard.watch = lambda self: time.sleep(1000); guard.main()",
    guard.COMMAND_LINE[-1],
)


def stand_in(name: str) -> list[str]:
    """The command for one of the agents in guard_agent.py."""
    return [sys.executable, "-I", "-S", str(FOLDER / "guard_agent.py"), name]


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def marked_env(env: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """A new mark, and the environment that carries it."""
    mark = uuid4().hex
    return mark, {**(os.environ if env is None else env), MARK: mark}


@asynccontextmanager
async def started(
    command: list[str], *, env: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[AgentProcess, str]]:
    """The agent, and the mark that it, its guard and every descendant carry.

    `env` is what the bridge has as its environment while the agent is started.
    """
    mark, environment = marked_env(env)
    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                with patch.dict(os.environ, environment, clear=True):
                    process = await AgentProcess.start(tasks, command, **options)
                try:
                    yield process, mark
                finally:
                    await process.close(0)
    finally:
        kill_marked(mark)


async def failure_of(command: list[str], **options: Any) -> StartFailed:
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(5), pytest.raises(StartFailed) as caught:
            await AgentProcess.start(tasks, command, **options)
    return caught.value


async def read_line(process: AgentProcess, within: float = 5) -> str:
    """Read the agent's first line."""
    line = b""
    with anyio.fail_after(within):
        while not line.endswith(b"\n"):
            await anyio.wait_readable(process.stdout_fd)
            data = os.read(process.stdout_fd, 1)
            assert data, f"stdout ended after {line!r}"
            line += data
    return line.decode().strip()


async def read_all(fd: int) -> bytes:
    """Read up to the end of the pipe."""
    content = bytearray()
    with anyio.fail_after(5):
        while True:
            await anyio.wait_readable(fd)
            data = os.read(fd, 1 << 16)
            if not data:
                return bytes(content)
            content += data


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def session_of(pid: int) -> int:
    return int(_stat(pid)[3])


def exists(pid: int) -> bool:
    """Return whether there is such a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


def _stat(pid: int) -> list[str]:
    """State, parent, group and session of a process, and what follows."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def open_files(pid: int) -> dict[int, str]:
    """Return what each descriptor of a process is: a path, or e.g. "pipe:[123]"."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue  # closed meanwhile; in our own case the one that lists
    return found


def zombies() -> list[int]:
    """Return children of this process that have ended and were not waited for."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = _stat(int(name))[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.append(int(name))
    return found
